"""Sharding and recomputation: what is refused, the memory of each device, and the page. That
sharded ranks train like one process is in test_parallel.py."""

import numpy as np
import paddle  # noqa: F401 - excludes this file from the quick check; others may be missing
import pytest
from conftest import cli
from made import keep, made_result, rank_events
from narrow import replace_sizes
from sharded import trained
from sides import config, side_of, step

from perfkit import report
from perfkit.analysis.wording import traits
from perfkit.core.config import Protocol
from perfkit.core.frameworks import networks
from perfkit.core.frameworks.memory import device_memory
from perfkit.core.models import MODELS_BY_SIZE, llama
from perfkit.core.request import RequestError
from perfkit.core.request.plan import plan
from perfkit.core.request.resolve import resolve
from perfkit.core.results.frames import row_of
from perfkit.core.results.repeat import Rank, Repeat, TensorBytes
from perfkit.core.results.schema import Throughput
from perfkit.core.results.summarize import summarize

TWO = {"processes": 2, "framework": "torch"}
ELSEWHERE = ("machine", "requirements", "data")
GIB = 2**30


@pytest.fixture
def narrow(monkeypatch):
    replace_sizes(monkeypatch.setattr)


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        (
            "resnet50",
            {"sharding": "full"},
            ["sharding: resnet50 does not take it, only bert, gpt, llama; leave it out"],
        ),
        (
            "vgg16",
            {"recompute": "full"},
            ["recompute: vgg16 does not take it, only bert, gpt, llama"],
        ),
        ("llama", {"sharding": "full", "processes": 1}, ["full divides the training among"]),
        (
            "llama",
            {"sharding": "gradients", "precision": "amp"},
            ["'amp' is not for sharding=gradients; allowed: fp32, bf16"],
        ),
        (
            "bert",
            {"sharding": "full", "framework": "tensorflow", "processes": 1},
            ["'full' is not for framework=tensorflow", "among several devices"],
        ),
        (
            "llama",
            {"sharding": "gradients", "framework": "paddle"},
            ["'gradients' is not for framework=paddle", "to shard there: -p framework torch"],
        ),
        (
            "bert",
            {"sharding": "full", "framework": "paddle", "device": "npu", "optimizer": "lamb"},
            [
                "'lamb' is not for sharding=full; allowed: momentum, adamw",
                "model: 'bert' is not for sharding=full in Paddle; allowed: llama",
            ],
        ),
        (
            "gpt",
            {"recompute": "full", "framework": "paddle", "execution": "static"},
            ["'full' with a compiled graph of Paddle; set execution to dynamic"],
        ),
        (
            "gpt",
            {"sharding": "full", "framework": "paddle", "device": "npu"}
            | {"strategy": "fleetx-fp32"},
            [
                "'fleetx-fp32' is not for sharding=full; allowed: none",
                "model: 'gpt' is not for sharding=full in Paddle; allowed: llama",
            ],
        ),
    ],
)
def test_what_can_not_be_sharded_or_recomputed_is_refused_by_name(model, given, expected):
    device = {"device": "cpu"} | ({"gpus": 2} if "device" in given else {})
    if "device" in given:
        given = given | {"processes": 1}
    with pytest.raises(RequestError) as refused:
        plan(model, device | {"input": "synthetic"} | TWO | given, ELSEWHERE)
    problems = refused.value.problems
    for part in expected:
        assert any(part in problem for problem in problems), problems
    assert len(problems) == len(expected), problems


def test_a_verification_takes_no_sharding():
    done = cli("verify", "llama", "--frameworks", "torch,jax", "-p", "sharding", "full")
    assert done.exit_code == 2
    assert "sharding: fixed in a verification; it takes model_size" in done.stderr


def test_the_choices_make_another_measurement_and_are_compared():
    usual = config("llama", "torch", processes=2)
    for change in ({"sharding": "full"}, {"recompute": "full"}):
        assert config("llama", "torch", processes=2, **change).identity != usual.identity


# Memory from shapes.


@pytest.mark.parametrize("size", llama.SIZES)
def test_memory_counts_every_parameter_of_each_size(size):
    memory = device_memory(config("llama", "torch", model_size=size))
    count = MODELS_BY_SIZE["llama"](size).parameters
    assert memory.weights == memory.gradients == 4 * count
    assert memory.optimizer == 8 * count
    assert memory.gathered == 0


@pytest.mark.parametrize(
    ("model", "bytes_per_value"), [("resnet50", (4, 4, 4)), ("bert", (4, 4, 8))]
)
def test_memory_follows_from_the_optimizer(model, bytes_per_value):
    chosen = config(model)
    outline = networks.Outline(networks.network_of(chosen))
    shapes = [
        shape
        for name, layer in outline.layers.items()
        for shape in layer.parameters(name).values()
    ]
    count = sum(int(np.prod(shape)) for shape in shapes)
    memory = device_memory(chosen)
    assert (memory.weights, memory.gradients, memory.optimizer) == tuple(
        count * size for size in bytes_per_value
    )


def of_eight(sharding, precision="bf16"):
    """Return the memory of Llama 3.1 8B on a node of eight GPUs, GiB."""
    request = {"model": "llama", "model_size": "8b", "framework": "torch", "device": "gpu"}
    request |= {"gpus": 8, "precision": precision, "sharding": sharding}
    return [size / GIB for size in device_memory(resolve(request))]


def test_a_sharded_8b_has_an_eighth_on_each_of_eight_devices():
    whole = of_eight("none")
    assert whole == pytest.approx([29.92, 29.92, 59.83, 0], abs=0.01)
    for sharding in ("gradients", "full"):
        *shares, gathered = of_eight(sharding)
        assert shares == pytest.approx([size / 8 for size in whole[:3]], rel=1e-4)
        assert gathered > 0


def test_gathered_weights_are_all_or_two_layers_and_the_rest():
    everything = 8_030_261_248
    assert of_eight("gradients")[-1] == pytest.approx(2 * everything / GIB)
    layer = 4096 * (2 * 4096 + 2 * 1024 + 3 * 14_336 + 2)
    outside = 4096 * (2 * 128_256 + 1)
    expected = (2 * layer + outside) / GIB
    assert of_eight("full")[-1] == pytest.approx(2 * expected)
    assert of_eight("full", precision="fp32")[-1] == pytest.approx(4 * expected)


def test_the_command_prints_the_memory_under_each_sharding():
    parameters = ["-p", "model_size=8b", "-p", "device=gpu", "-p", "gpus=8"]
    parameters += ["-p", "framework=torch", "-p", "precision=bf16"]
    done = cli("memory", "llama", *parameters)
    assert done.exit_code == 0, done.output
    title, _unit, _headings, *rows = done.stdout.splitlines()
    assert title == "Llama 3.1 8B pre-training, 8,030,261,248 parameters, PyTorch, bf16"
    table = [row.split() for row in rows]
    assert [row[0] for row in table] == ["none", "gradients", "full"]
    assert table[0][1:] == ["29.9", "29.9", "59.8", "0.00", "120"]
    assert table[2][1:4] == ["3.74", "3.74", "7.48"]


@pytest.mark.parametrize(
    ("framework", "gpus", "shares"),
    [
        # Three ranks divide no array but the embedding and the head, whose rows are 128,256.
        ("jax", 3, {"none": 138.8, "gradients": 55.3, "full": 55.3}),
        # Paddle leaves arrays of up to 2**20 values whole: all but the embedding.
        ("paddle", 2, {"none": 138.8, "full": 76.1}),
        ("torch", 3, {"none": 138.8, "gradients": 46.3, "full": 46.3}),
    ],
)
def test_the_shares_are_those_of_the_framework(framework, gpus, shares):
    """Of Llama tiny in MiB, from 36,374,784 values, 32,833,536 of which are the embedding's."""
    request = {"model": "llama", "model_size": "tiny", "framework": framework}
    request |= {"device": "gpu", "gpus": gpus}
    for sharding, mib in shares.items():
        memory = device_memory(resolve(request | {"sharding": sharding}))
        assert memory.weights / 2**20 == pytest.approx(mib, abs=0.1), sharding


def test_only_what_a_framework_can_do_has_a_line():
    words = ["-p", "device=gpu", "-p", "gpus=8", "-p", "framework=paddle"]
    done = cli("memory", "llama", *words)
    assert [line.split()[0] for line in done.stdout.splitlines()[3:]] == ["none", "full"]


def test_a_model_that_can_not_be_sharded_has_one_line():
    done = cli("memory", "resnet50", "-p", "device=gpu", "-p", "gpus=8")
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()[3:]] == ["none"]


# Memory counted from tensors.


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("framework", ["paddle", "torch", "jax", "tensorflow"])
def test_tensors_take_what_their_shapes_say(framework):
    side = side_of(framework)
    inspector = side.inspector("gpt")
    step(inspector.trainer, side.batch("gpt"))
    counted = inspector.tensor_bytes(side.batch("gpt"))
    expected = device_memory(inspector.trainer.config)
    assert counted.parameters == expected.weights
    assert counted.gradients == expected.gradients
    # Some optimizers also count the steps of each parameter.
    assert counted.optimizer == pytest.approx(expected.optimizer, rel=1e-3)


# Recomputation.


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("framework", ["paddle", "torch"])
def test_recomputed_layers_run_again_in_the_backward_pass(framework):
    side = side_of(framework)
    trainer = side.trainer("llama", recompute="full")
    names = ("layers.0.down", "layers.1.down", "lm_head")
    calls = []
    for name in names:
        layer = trainer.network.modules_by_name[name]
        register = layer.register_forward_pre_hook
        register(lambda _layer, _given, name=name: calls.append(name))
    trainer.backward(side.batch("llama"))
    assert calls == [*names, "layers.1.down", "layers.0.down"]
    assert "layer" in side.backend.Inspector(trainer).settings()["recompute"]


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("framework", ["paddle", "torch", "jax"])
@pytest.mark.parametrize("model", ["bert", "gpt", "llama"])
def test_recomputation_changes_no_gradient(framework, model):
    """With dropout: the same values are dropped again."""
    side = side_of(framework)
    batch = side.batch(model)
    gradients = []
    for recompute in ("none", "full"):
        seed(framework)
        inspector = side.inspector(model, recompute=recompute)
        seed(framework)
        inspector.trainer.backward(batch)
        gradients.append(inspector.gradients())
    kept, recomputed = gradients
    assert kept.keys() == recomputed.keys()
    for name, gradient in kept.items():
        assert np.allclose(gradient, recomputed[name], rtol=1e-4, atol=1e-7), name


def seed(framework):
    """Seed a framework's random numbers; JAX has its own key in each trainer."""
    if framework == "jax":
        return
    module = pytest.importorskip(framework)
    seeding = {"paddle": "seed", "torch": "manual_seed"}
    getattr(module, seeding[framework])(3)


@pytest.mark.slow
@pytest.mark.usefixtures("narrow")
def test_jaxs_program_needs_less_memory_with_recomputation():
    side = side_of("jax")
    batch = side.batch("llama", sequence_length=512)

    def temporary_bytes(recompute):
        trainer = side.trainer("llama", sequence_length=512, recompute=recompute)
        state = (trainer.values, trainer.statistics, trainer.gathered, trainer.key)
        program = trainer.backward_pass.lower(*state, batch).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert temporary_bytes("full") < temporary_bytes("none")


@pytest.mark.usefixtures("narrow")
def test_jaxs_program_gathers_again_with_full_sharding_alone():
    side = side_of("jax")
    batch = side.batch("llama")

    def gatherings(**options):
        # Of this process alone, which is all of the mesh.
        trainer = side.trainer("llama", processes=2, **options)
        state = (trainer.values, trainer.statistics, trainer.gathered, trainer.key)
        program = trainer.backward_pass.lower(*state, trainer.joined(batch))
        return program.as_text().count("stablehlo.all_gather")

    once = gatherings(sharding="gradients")
    again = gatherings(sharding="full")
    assert 0 < once < again < 2 * once
    assert gatherings(sharding="gradients", recompute="full") == once
    # A layer that is computed again needs weights that the backward pass alone does not.
    assert again <= gatherings(sharding="full", recompute="full") < 2 * once


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_pytorch_shards_compiled_and_recomputed_layers_in_bf16():
    """As parameters/llama3-8b.yaml has it."""
    options = {"precision": "bf16", "execution": "static", "recompute": "full"}
    alone, _tensors = trained("torch", "none", 1, is_narrow=True, **options)
    together, _tensors = trained("torch", "full", 2, is_narrow=True, **options)
    assert together == pytest.approx(alone, rel=0.01)
    assert together[-1] < together[0] - 0.5


# Results and pages.

PROTOCOL = Protocol.named("quick", warmup_steps=1, measured_steps=2, repeats=1)
COUNTED = {"parameters": 4 * GIB, "gradients": 3 * GIB, "optimizer": 8 * GIB}


def with_tensors(tensors):
    """Return the events of a rank that counted its tensors."""
    *events, end = rank_events([1.0] * 3)
    return [*events, {"event": "tensors"} | tensors, end]


def test_a_rank_stores_the_bytes_of_its_tensors():
    smaller = COUNTED | {"parameters": 2 * GIB}
    repeat = summarize(1, PROTOCOL, [with_tensors(COUNTED), with_tensors(smaller)], 9.0)
    assert [rank.tensors.parameters for rank in repeat.ranks] == [4 * GIB, 2 * GIB]
    assert repeat.most_tensors == TensorBytes(**COUNTED)


@pytest.mark.parametrize("tensors", [{"missing": "too little memory"}, None])
def test_uncounted_tensors_are_unknown(tensors):
    events = rank_events([1.0] * 3) if tensors is None else with_tensors(tensors)
    repeat = summarize(1, PROTOCOL, [with_tensors(COUNTED), events], 9.0)
    assert repeat.ranks[1].tensors is None
    assert repeat.most_tensors is None


def stored(folder, **changes):
    """Store a measurement of Llama on two ranks with counted tensors."""
    chosen = config("llama", "torch", processes=2, **changes)
    samples = 5 * chosen.samples_per_step
    ranks = []
    for number in range(2):
        seconds = None if chosen.is_sharded else 1.0
        window = {"samples": samples, "window_seconds": 10.0, "data_wait_seconds": 0.0}
        tensors = TensorBytes(**COUNTED)
        ranks.append(Rank(rank=number, tensors=tensors, compute_seconds=seconds, **window))
    tokens = 2 * samples * chosen.sequence_length / 10.0
    complete = {"status": "complete", "throughput": tokens, "steps_per_second": 0.5}
    repeat = Repeat(index=1, ranks=ranks, **complete)
    throughput = Throughput.of([repeat], "tokens/s")
    result = made_result(config=chosen, repeats=[repeat], throughput=throughput)
    return keep(folder / "m", result)


def test_the_page_tells_the_memory_of_the_tensors(tmp_path):
    html = report.repeats(stored(tmp_path)).html
    assert "4.00 GiB of weights, 3.00 GiB of gradients and 8.00 GiB of optimizer" in html


@pytest.mark.parametrize(("sharding", "slowest"), [("none", "0 / 1"), ("full", "unknown")])
def test_with_sharding_the_page_does_not_know_the_slowest_rank(tmp_path, sharding, slowest):
    html = report.repeats(stored(tmp_path, sharding=sharding)).html
    assert slowest in html
    assert ("Nor does computation" in html) == (sharding == "full")


def test_tables_name_sharding_and_recomputation(tmp_path):
    row = row_of(stored(tmp_path, sharding="full", recompute="full"))
    names = traits(row)
    assert (names["sharding"], names["recompute"]) == ("sharding full", "recompute full")
    assert "sharding" not in traits(row_of(stored(tmp_path / "usual")))


def test_the_page_says_when_gradients_are_exchanged(tmp_path):
    html = report.method(stored(tmp_path, sharding="full", accumulate=2)).html
    assert "gradients are exchanged with every micro-batch" in html
