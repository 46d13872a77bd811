"""Synchronizations, copies, kernels and collectives of a training step on an accelerator.

The fake accelerator, as `gpu`, counts them. `static` has two more synchronizations: Paddle's
executor waits after the forward and the backward program, for custom devices only.
"""

import numpy as np
import pytest
from accelerator.fake import trained
from retried import holds_once

pytestmark = pytest.mark.slow

# With seed 1 no gradient of the narrow models overflows by itself.
ON_GPU = {"framework": "paddle", "device": "gpu", "gpus": 1, "input": "synthetic", "seed": 1}
IMAGES = {"batch_size": 4, "image_size": 32}
SEQUENCES = {"batch_size": 2, "sequence_length": 16}
BYTES = {"images": 4 * 3 * 32 * 32 * 4, "labels": 4 * 8}
"""Bytes of a batch: images in float32, labels in int64."""

CASES = {
    "resnet50 fp32": (0, 0),
    "resnet50 amp": (2, 1),
    "resnet50 bf16 static": (2, 0),
    "vgg16 bf16": (0, 0),
    "vgg16 pure_fp16": (2, 1),
    "bert fp32": (0, 0),
    "bert amp": (2, 1),
    "bert bf16": (0, 0),
    "gpt fp32": (0, 0),
    "gpt amp": (2, 1),
    "gpt bf16": (0, 0),
}
"""Model, precision and execution -> synchronizations and copies to the host per step. The copy
is `found_inf`, read by the loss scaler; Paddle synchronizes before and after it."""
DTYPES = {"fp32": "float32", "amp": "float16", "pure_fp16": "float16", "bf16": "bfloat16"}
PRODUCTS = {"resnet50": 18, "vgg16": 16, "bert": 20, "gpt": 13}
"""Matrix products of a forward pass of the narrow models."""


def configuration(case, **changes):
    model, precision, *execution = case.split()
    values = ON_GPU | {"model": model, "precision": precision}
    if model in ("bert", "gpt"):
        values |= SEQUENCES
    else:
        values |= IMAGES
    if execution:
        (values["execution"],) = execution
    return values | changes


KERNEL_SECONDS = 0.0005
LATE = configuration("resnet50 fp32") | {"kernel_seconds": KERNEL_SECONDS}
"""A training whose kernels all take this long."""


@pytest.fixture(scope="module")
def steps(plugin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("steps")
    configurations = [configuration(case) for case in CASES]
    answers = trained(plugin, "gpu", folder, configurations)
    return dict(zip(CASES, answers, strict=True))


@pytest.fixture(scope="module")
def special(plugin, samples, tmp_path_factory):
    """The output of train.py for special configurations, by name."""
    fp32 = configuration("resnet50 fp32")
    amp = configuration("resnet50 amp")
    dataloader = {"input": "dataloader", "data_dir": str(samples), "dataloader_workers": 1}
    configurations = {
        "overflow": amp | {"overflow_at": 4},
        "late": LATE,
        "forgetful": fp32 | {"kernel_seconds": 0.002, "forgetful": True},
        "accumulating": fp32 | {"accumulate": 2},
        "dataloader": fp32 | dataloader | {"warmup": 12},
        "untuned": amp | {"disable_tuning": "all", "layout": "NCHW"},
        "cpu": fp32 | {"device": "cpu", "gpus": 0},
    }
    folder = tmp_path_factory.mktemp("special")
    answers = trained(plugin, "gpu", folder, [*configurations.values()])
    return dict(zip(configurations, answers, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_step_has_no_extra_synchronizations_or_copies(steps, case):
    synchronisations, to_host = CASES[case]
    for step in steps[case]["steps"]:
        assert step.get("stream_syncs", 0) == synchronisations
        assert step.get("to_host", 0) == to_host
        assert not {"device_syncs", "event_syncs", "to_device"} & step.keys()


@pytest.mark.parametrize("case", CASES)
def test_synthetic_batches_stay_on_the_device(steps, case):
    answer = steps[case]
    assert {*answer["places"]} == {"Place(gpu:0)"}
    assert answer["told"]["device"] == "gpu"
    assert answer["addresses"] == 1


@pytest.mark.parametrize("case", CASES)
def test_effective_precision_comes_from_the_matrix_products(steps, case):
    model, precision, *_ = case.split()
    notes = steps[case]["notes"]
    assert notes["precision"] == precision
    assert notes["dtypes"] == {DTYPES[precision]: PRODUCTS[model]}


@pytest.mark.parametrize("case", CASES)
def test_only_losses_in_float16_are_scaled(steps, case):
    _synchronizations, reads_of_found_inf = CASES[case]
    notes = steps[case]["notes"]
    expected = 2**15 if reads_of_found_inf else None
    assert notes["loss_scaling"] == expected
    assert notes.get("loss_scale") == expected
    assert ("skipped_steps" in notes) == bool(reads_of_found_inf)


def test_the_device_matches_the_cpu(steps, special):
    on_device = steps["resnet50 fp32"]
    on_cpu = special["cpu"]
    assert on_device["losses"] == pytest.approx(on_cpu["losses"], rel=1e-6)
    assert on_cpu["told"]["device"] == "cpu"
    assert on_cpu["steps"] == [{}, {}]


def test_a_dataloader_batch_is_copied_once(special):
    answer = special["dataloader"]
    assert {*answer["places"]} == {"Place(gpu:0)"}
    for step in answer["steps"]:
        copied = step.get("to_device_bytes", 0)
        images, rest = divmod(copied, BYTES["images"])
        labels, rest = divmod(rest, BYTES["labels"])
        assert rest == 0
        assert images + labels == step.get("to_device", 0)
        assert "device_syncs" not in step
        assert "to_host" not in step
    # A thread copies up to four batches ahead: a step may include copies of the next ones, or
    # lack its own.
    copied_batches = answer["all_steps"]["to_device_bytes"] / sum(BYTES.values())
    assert copied_batches == pytest.approx(answer["all_steps_count"], abs=4)


def test_an_overflow_skips_the_step_and_halves_the_loss_scale(special):
    answer = special["overflow"]
    assert answer["notes"]["skipped_steps"] == 1
    assert answer["notes"]["loss_scale"] == 2**14
    assert answer["steps"][0]["to_host"] == 1
    assert "momentum" not in answer["calls"]
    assert "merged_momentum" not in answer["calls"]
    assert np.isfinite(answer["losses"]).all()


@pytest.fixture
def late_again(plugin, tmp_path):
    """Trains with late kernels once more."""

    def train():
        (answer,) = trained(plugin, "gpu", tmp_path, [LATE])
        return answer

    return train


def test_event_times_sum_to_the_window(special, late_again):
    def check(attempt):
        answer = late_again() if attempt else special["late"]
        *_warm_up, first, last = answer["seconds"]
        assert last >= KERNEL_SECONDS * answer["steps"][-1]["kernels"]
        # The fake's thread that completes the events may wake up milliseconds late.
        assert first + last == pytest.approx(answer["window"], rel=0.02, abs=0.01)

    holds_once(check)


def test_events_are_waited_for_only_at_the_end_of_the_window(special):
    for step in special["late"]["steps"]:
        assert step.get("event_syncs", 0) == 0


def test_not_waiting_for_the_last_step_is_an_error(special):
    assert "NotSynchronizedError" in special["forgetful"]["error"]


def test_momentum_is_fused_unless_disabled(steps, special):
    tuned = steps["resnet50 amp"]
    assert tuned["calls"]["merged_momentum"] == 1
    assert "momentum" not in tuned["calls"]
    untuned = special["untuned"]
    # Convolutions, batch norms, and the dense layer's weight and bias.
    assert untuned["calls"]["momentum"] == 17 + 2 * 17 + 2
    assert tuned["notes"]["settings"]["optimizer"] == "all parameters at once"
    assert untuned["notes"]["settings"]["optimizer"] == "each parameter by itself"


def test_micro_batches_are_accumulated_on_the_device(special, steps):
    accumulating, single = special["accumulating"], steps["resnet50 fp32"]
    assert accumulating["calls"]["merged_momentum"] == 1
    assert single["calls"]["merged_momentum"] == 1
    for step in accumulating["steps"]:
        assert step["kernels"] > single["steps"][0]["kernels"]
        assert not {"stream_syncs", "to_device", "to_host"} & step.keys()


def test_two_devices_exchange_each_gradient_once_per_step(plugin, tmp_path):
    wanted = configuration("resnet50 fp32", gpus=2, accumulate=2)
    launcher = ["-m", "paddle.distributed.launch", "--devices", "0,1", "--log_dir", "log"]
    ranks = trained(plugin, "gpu", tmp_path, [wanted], launcher)
    assert sorted(answer["rank"] for answer in ranks) == [0, 1]
    for answer in ranks:
        rank = answer["rank"]
        assert {*answer["places"]} == {f"Place(gpu:{rank})"}
        # float32 gradients, in buckets.
        gradient_bytes = 4 * answer["told"]["parameters"]
        for step in answer["steps"]:
            assert step["collective_bytes"] == pytest.approx(gradient_bytes, rel=0.01)
            assert not {"device_syncs", "to_device", "to_host"} & step.keys()


def test_a_compiled_network_sends_gradients_during_its_backward_pass(plugin, tmp_path):
    wanted = configuration("vgg16 fp32 static", gpus=2)
    launcher = ["-m", "paddle.distributed.launch", "--devices", "0,1", "--log_dir", "log"]
    ranks = trained(plugin, "gpu", tmp_path, [wanted], launcher)
    assert len(ranks) == 2
    for answer in ranks:
        settings = answer["notes"]["settings"]
        assert settings["execution"] == "to_static, a program for each block"
        assert settings["gradient_exchange"] == "during the backward pass"
        # The first bucket has the gradients of dense layers, which are computed first; the last
        # one is sent at the end of the backward pass. One program sends both then.
        first, last = answer["collectives"]
        assert last - first > 20
