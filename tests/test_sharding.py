"""Sharding and recomputation of Llama: what is refused, JAX's program, and the page. That
sharded ranks train like one process is in test_ranks.py."""

import numpy as np
import paddle  # noqa: F401 - excludes this file from the quick check; others may be missing
import pytest
from made.results import keep, made_result
from narrow import replace_sizes
from sharded import trained
from sides import config

from perfkit.measuring.request import RequestError
from perfkit.measuring.request.plan import plan
from perfkit.measuring.results.frames import row_of
from perfkit.measuring.results.repeat import Rank, Repeat
from perfkit.measuring.results.schema import Throughput
from perfkit.report.steps import repeats
from perfkit.report.text.wording import traits
from perfkit.training.options import Options

pytest.importorskip("jax")
from perfkit.training.jax.batches import new_batches
from perfkit.training.jax.models import shapes_of
from perfkit.training.jax.parallel import joined, mesh_of_ranks
from perfkit.training.jax.programs import backward_program
from perfkit.training.jax.sharding import Shares
from perfkit.training.jax.train import new_weights

ELSEWHERE = ("machine", "requirements", "data")
LLAMA = ("--model", "llama", "--device", "cpu", "--batch-size", "2", "--sequence-length", "16")


@pytest.fixture
def narrow(monkeypatch):
    replace_sizes(monkeypatch.setattr)


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        (
            "resnet50",
            {"sharding": "full"},
            ["sharding: resnet50 does not take it, only llama; leave it out"],
        ),
        ("llama", {"sharding": "full", "processes": 1}, ["full divides the training among"]),
        (
            "llama",
            {"sharding": "gradients", "framework": "paddle"},
            ["'gradients' is not for framework=paddle", "to shard there: -p framework torch"],
        ),
        (
            "llama",
            {"recompute": "full", "framework": "paddle", "execution": "static"},
            ["'full' with a compiled graph of Paddle; set execution to dynamic"],
        ),
    ],
)
def test_what_can_not_be_sharded_or_recomputed_is_refused_by_name(model, given, expected):
    usual = {"device": "cpu", "input": "synthetic", "processes": 2, "framework": "torch"}
    with pytest.raises(RequestError) as refused:
        plan(model, usual | given, ELSEWHERE)
    problems = refused.value.problems
    for part in expected:
        assert any(part in problem for problem in problems), problems
    assert len(problems) == len(expected), problems


# JAX's program.


@pytest.mark.usefixtures("narrow", "compiled_once")
def test_recomputation_changes_no_gradient_of_jax():
    gradients = []
    for recompute in ("none", "full"):
        given = Options.parse("jax", [*LLAMA, "--recompute", recompute])
        batch = next(new_batches(given))
        state = new_weights(given), {}, None, None
        gradients.append(backward_program(given)(*state, batch)[2])
    kept, recomputed = gradients
    for name, gradient in kept.items():
        assert np.allclose(gradient, recomputed[name], rtol=1e-4, atol=1e-7), name


@pytest.mark.usefixtures("narrow")
def test_jaxs_program_gathers_again_with_full_sharding_alone():
    # Of this process alone, which is all of the mesh.
    mesh = mesh_of_ranks()

    def gatherings(sharding, recompute="none"):
        words = [*LLAMA, "--sharding", sharding, "--recompute", recompute]
        given = Options.parse("jax", words)
        shares = Shares(shapes_of(given), 1, np.float32)
        state = new_weights(given, mesh, shares), {}, None, None
        batch = joined(next(new_batches(given)), mesh)
        program = backward_program(given, mesh, shares).lower(*state, batch)
        return program.as_text().count("stablehlo.all_gather")

    once, again = gatherings("gradients"), gatherings("full")
    assert 0 < once < again < 2 * once
    assert gatherings("gradients", recompute="full") == once
    # A layer that is computed again needs weights that the backward pass alone does not.
    assert again <= gatherings("full", recompute="full") < 2 * once


# PyTorch's layers.


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_pytorch_shards_compiled_and_recomputed_layers_in_bf16():
    """As parameters/llama3-8b.yaml has it."""
    options = {"precision": "bf16", "execution": "static", "recompute": "full"}
    alone = trained("torch", "none", 1, is_narrow=True, **options)
    together = trained("torch", "full", 2, is_narrow=True, **options)
    assert together == pytest.approx(alone, rel=0.01)
    assert together[-1] < together[0] - 0.5


# Results and pages.


def stored(folder, **changes):
    """Store a measurement of Llama on two ranks."""
    chosen = config("llama", "torch", processes=2, **changes)
    work = chosen.work
    samples = 5 * work.samples_per_step
    ranks = []
    for number in range(2):
        seconds = None if work.is_sharded else 1.0
        window = {"samples": samples, "window_seconds": 10.0, "data_wait_seconds": 0.0}
        ranks.append(Rank(rank=number, compute_seconds=seconds, **window))
    tokens = 2 * samples * work.sequence_length / 10.0
    complete = {"status": "complete", "throughput": tokens, "steps_per_second": 0.5}
    repeat = Repeat(index=1, ranks=ranks, **complete)
    throughput = Throughput.of([repeat], "tokens/s")
    result = made_result(config=chosen, repeats=[repeat], throughput=throughput)
    return keep(folder / "m", result)


@pytest.mark.parametrize(("sharding", "slowest"), [("none", "0 / 1"), ("full", "unknown")])
def test_with_sharding_the_page_does_not_know_the_slowest_rank(tmp_path, sharding, slowest):
    html = repeats(stored(tmp_path, sharding=sharding)).html
    assert slowest in html
    assert ("Computation does" in html) == (sharding == "none")


def test_tables_name_sharding_and_recomputation(tmp_path):
    row = row_of(stored(tmp_path, sharding="full", recompute="full"))
    names = traits(row)
    assert (names["sharding"], names["recompute"]) == ("sharding full", "recompute full")
    assert "sharding" not in traits(row_of(stored(tmp_path / "usual")))
