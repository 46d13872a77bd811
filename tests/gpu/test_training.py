"""Training steps on the GPU: their clock, precision, losses, loss scaling, input."""

import shutil
from importlib.util import find_spec
from math import isfinite

import pytest

pytestmark = pytest.mark.gpu

PRECISIONS = ("fp32", "amp", "bf16")
UPDATES = 10


@pytest.fixture(scope="session", params=PRECISIONS)
def precision(request):
    return request.param


@pytest.fixture(scope="session")
def training(ask, precision):
    """The answer about a training in each precision."""
    return ask("training", precision=precision)


def assert_losses_agree(first, second):
    assert all(map(isfinite, first + second))
    assert first[UPDATES] == pytest.approx(second[UPDATES], rel=0.05)


def test_events_of_a_window_sum_up_to_the_hosts_time(training, say):
    say(f"events {training['device'] * 1e3:.2f} ms, host {training['host'] * 1e3:.2f} ms")
    assert training["device"] == pytest.approx(training["host"], rel=0.02)


def test_nothing_synchronizes_in_the_window(framework, training):
    """PyTorch raises an error for a synchronization in the window, which fails `training`."""
    if framework != "torch":
        pytest.skip("PyTorch alone reports synchronizations")
    # The first event is the beginning of the window; a step ends with each other one.
    assert training["watched_events"] == training["steps"] + 1


def test_synthetic_batches_stay_on_the_gpu(training, say):
    device, address = training["places"][0]
    say(device)
    assert "gpu" in device.lower() or "cuda" in device.lower()
    assert training["places"] == [[device, address]] * 4


def test_precision_is_as_asked_and_tf32_off(training, precision):
    assert training["precision"] == precision
    assert not training["tf32"]


@pytest.mark.parametrize("other", ["amp", "bf16"])
def test_losses_of_a_precision_agree_with_fp32(ask, say, other):
    losses = [ask("training", precision=name)["losses"] for name in ("fp32", other)]
    say(" and ".join(f"{of_one[UPDATES]:.4f}" for of_one in losses))
    assert_losses_agree(*losses)


def test_an_overflow_in_the_first_step_ruins_no_weight(ask, say):
    answer = ask("overflow", precision="amp")
    say(f"{answer['skipped']} steps skipped")
    assert answer["skipped"] > 0
    assert answer["finite"] == answer["weights"]


def test_static_execution_agrees_with_eager(framework, ask, say):
    if framework == "torch" and not (shutil.which("g++") or shutil.which("gcc")):
        pytest.skip("torch.compile needs a C++ compiler")
    eager = ask("training", precision="bf16")
    static = ask("training", precision="bf16", execution="static")
    say(f"a step is {eager['step'] / static['step']:.2f} times as fast as eager")
    assert_losses_agree(eager["losses"], static["losses"])


def test_bert_trains(ask, say):
    losses = ask("training", model="bert", precision="bf16")["losses"]
    say(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    assert all(map(isfinite, losses))
    assert losses[-1] < losses[0]


def test_dali_gives_its_cpu_pipelines_batches_and_leaves_a_held_one(ask, say):
    # Only look for it: the import would start it in this process.
    if not find_spec("nvidia") or not find_spec("nvidia.dali"):
        pytest.skip("DALI is not installed")
    for module in ("h5py", "PIL"):
        pytest.importorskip(module, reason=f"making images needs {module}")
    answer = ask("dali", input="dali")
    say(f"{answer['difference']:.4f} from the CPU's normalized pixels")
    # Another decoder and resize; different crops differ by about 1.
    assert answer["difference"] < 0.15
    assert not answer["changed"]
