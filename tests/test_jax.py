"""JAX specifics: asynchronous steps, compilation, memory, ranks, settings of a GPU."""

import json
import os
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from narrow import replace_sizes
from retried import holds_once
from trained import train_here

from perfkit.analysis.warnings import window_disagrees
from perfkit.timing.frameworks import Jax
from perfkit.timing.watched import WatchedDevice, WatchedGpu
from perfkit.training.effective import VARIABLES, named_threads
from perfkit.training.jax import layers, llama, precision
from perfkit.training.jax import train as script
from perfkit.training.jax.batches import new_batches, on_device
from perfkit.training.jax.models import loss_of
from perfkit.training.jax.optimizer import new_slots
from perfkit.training.jax.programs import backward_program, update_program
from perfkit.training.options import Options
from perfkit.training.xla import Product, products_in

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]
SMALL = ("--device", "cpu", "--batch-size", "2", "--sequence-length", "16")
POOL = "tf_XLAEigen"
"""Name of XLA's threads."""
GPT = ("--model", "gpt", *SMALL)
"""The model that compiles fastest."""
LLAMA = ("--model", "llama", *SMALL)


@pytest.fixture
def narrow(monkeypatch):
    replace_sizes(monkeypatch.setattr)


def options(*words):
    return Options.parse("jax", words)


@jax.jit
def _waste(x, zero):
    def once(_number, y):
        return jnp.tanh(y @ x)

    return jax.lax.fori_loop(0, 8, once, x + zero).sum() * 0


def late(array):
    """Return the same values, still pending behind a long computation."""
    return array + _waste(jnp.ones((1000, 1000)), array.ravel()[0] * 0)


def late_update(given, submitted):
    """Return the program of the optimizer's step, for which a gradient is late. `submitted`
    gets the time of each step."""
    take_step = update_program(given)

    def slowed(weights, gradients, slots, step):
        submitted.append(time.perf_counter())
        name, gradient = next(iter(gradients.items()))
        return take_step(weights, gradients | {name: late(gradient)}, slots, step)

    return slowed


class Stepped:
    """A training, step by step."""

    def __init__(self, given, take_step=None):
        self.weights = script.new_weights(given)
        self.slots = new_slots(given.optimizer_settings, self.weights)
        self.batch = next(new_batches(given))
        self.backward = backward_program(given)
        self.take_step = take_step or update_program(given)
        self.steps = 0

    def step(self):
        """Return the loss and the number that tells the step's end."""
        self.steps += 1
        loss, _statistics, gradients, _rng = self.backward(
            self.weights, {}, None, None, self.batch
        )
        self.weights, self.slots, number = self.take_step(
            self.weights, gradients, self.slots, self.steps
        )
        return loss, number


# Steps.


@pytest.mark.usefixtures("narrow")
def test_steps_are_submitted_without_waiting_and_timed_when_their_update_is_ready(monkeypatch):
    late(jnp.ones(2)).block_until_ready()

    def check(_attempt):
        submitted = []
        monkeypatch.setattr(
            script, "update_program", lambda given, *_none: late_update(given, submitted)
        )
        run = train_here("jax", *GPT, warmup_steps=2, measured_steps=4)
        seconds = run.step_seconds[2:]
        assert min(seconds) > 0.5 * max(seconds)
        assert not window_disagrees(run.window["seconds"], seconds)
        # The last step was submitted before the first one of the window could be complete.
        assert submitted[-1] - submitted[2] < seconds[0]

    holds_once(check)


@pytest.mark.usefixtures("narrow")
def test_an_event_completes_with_the_update_not_with_the_loss():
    given = options(*GPT)
    training = Stepped(given, late_update(given, []))
    late(jnp.ones(2)).block_until_ready()
    training.step()
    device = WatchedDevice(jax)
    device.synchronize()
    loss, number = training.step()
    event = device.record_event(number)
    loss.block_until_ready()
    assert not device.is_complete(event)
    device.wait_for(event)
    updated = jax.tree.leaves((training.weights, training.slots))
    assert all(value.is_ready() for value in updated)
    assert device.is_complete(event)


def test_a_failed_step_ends_the_training_with_its_error():
    class Failed:
        def block_until_ready(self):
            raise RuntimeError("RESOURCE_EXHAUSTED")

    device = WatchedDevice(jax)
    begin = device.record_event()
    end = device.record_event(Failed())
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        device.wait_for(end)
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        device.seconds_between(begin, end)


def test_a_synchronized_device_has_completed_all_arrays_and_events():
    device = WatchedDevice(jax)
    watched = late(jnp.ones(2))
    event = device.record_event(watched)
    not_watched = late(jnp.ones(2))
    device.synchronize()
    assert not_watched.is_ready()
    assert device.is_complete(event)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_all_programs_are_compiled_before_the_second_step(monkeypatch, accumulate):
    compiled, counts = [], []

    def record(event, _seconds, **_details):
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    def counting(given, *_none):
        take_step = update_program(given)

        def run(*state):
            counts.append(len(compiled))
            return take_step(*state)

        return run

    monkeypatch.setattr(script, "update_program", counting)
    jax.monitoring.register_event_duration_secs_listener(record)
    try:
        train_here("jax", *GPT, "--accumulate", accumulate, measured_steps=3)
    finally:
        jax.monitoring.unregister_event_duration_listener(record)
    first, second, *later = counts
    assert 0 < first < second
    assert later == [second] * 2


def test_dalis_arrays_become_equal_arrays():
    dali = pytest.importorskip("nvidia.dali.tensors")
    images = np.random.default_rng(0).standard_normal((2, 8, 8, 3), np.float32)
    labels = np.asarray([[3], [999]], np.int64)
    assert np.array_equal(on_device(dali.TensorCPU(images, "NHWC")), images)
    assert np.array_equal(on_device(dali.TensorCPU(labels)), labels)


def test_a_batch_does_not_share_memory_that_the_input_may_overwrite():
    memory = np.empty(2**16 + 64, np.uint8)
    aligned = -memory.ctypes.data % 64
    array = memory[aligned : aligned + 2**16].view(np.float32)
    array[:] = 1
    # JAX copies an array of the host only after what is pending.
    pending = late(jnp.ones(1))
    copied = on_device(array)
    array[:] = 2
    assert np.all(np.asarray(copied) == 1)
    pending.block_until_ready()


def test_products_of_the_measured_peak_are_ready_on_return_only_on_a_cpu(monkeypatch):
    """A GPU completes them in their order, and waiting for each would cost 10 %."""
    assert Jax(jax).matmul(1500, "fp32")().is_ready()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    on_gpu = Jax(jax).matmul(1500, "fp32")
    on_gpu()
    assert not on_gpu().is_ready()


def test_xla_has_the_threads_of_its_process():
    (jnp.ones((500, 500)) @ jnp.ones((500, 500))).block_until_ready()
    # TensorFlow's threads have the same name, if another test imported TensorFlow.
    cores = len(os.sched_getaffinity(0))
    assert named_threads([POOL])[POOL] in (cores, 2 * cores)


# Layers.


def test_dropout_drops_its_share_and_keeps_the_mean():
    ones, rng = jnp.ones((400, 500)), jax.random.key(0)
    dropped = np.asarray(layers.dropout(ones, 0.1, rng))
    assert (dropped == 0).mean() == pytest.approx(0.1, abs=0.01)
    assert dropped.mean() == pytest.approx(1, abs=0.01)
    assert {*np.unique(dropped)} == {np.float32(0), np.float32(1) / np.float32(0.9)}
    assert np.array_equal(layers.dropout(ones, 0.1, None), ones)


# Memory.


@pytest.mark.usefixtures("narrow")
def test_no_matrix_of_all_pairs_of_tokens_is_a_constant():
    given = options(*LLAMA[:-1], "300")
    weights = script.new_weights(given)
    batch = next(new_batches(given))
    traced = jax.make_jaxpr(lambda weights: loss_of(given, weights, {}, None, batch))(weights)
    assert not [constant for constant in traced.consts if constant.size >= 300 * 300]


def temporary_bytes(*words):
    given = options(*LLAMA, *words)
    weights = script.new_weights(given)
    batch = next(new_batches(given))
    lowered = backward_program(given).lower(weights, {}, None, None, batch)
    return lowered.compile().memory_analysis().temp_size_in_bytes


@pytest.mark.usefixtures("narrow")
def test_a_loss_in_parts_needs_less_memory(monkeypatch):
    whole = temporary_bytes("--sequence-length", "1024")
    monkeypatch.setattr(llama, "LOSS_ROWS", 128)
    logits = 2 * 1024 * 1100 * 4
    assert temporary_bytes("--sequence-length", "1024") < whole - logits


@pytest.mark.usefixtures("narrow")
def test_recomputation_needs_less_memory():
    words = ("--sequence-length", "512")
    assert temporary_bytes(*words, "--recompute", "full") < temporary_bytes(*words)


def test_the_peak_memory_of_a_gpu_is_that_of_the_process(monkeypatch):
    gpu = SimpleNamespace(memory_stats=lambda: {"peak_bytes_in_use": 3 * 2**30})
    monkeypatch.setattr(jax, "local_devices", lambda: [gpu])
    device = WatchedGpu(jax)
    device.reset_peak_memory()
    assert device.peak_memory_bytes() == 3 * 2**30


# A measurement.


def test_a_measurement_has_the_steps_and_settings_that_its_script_noted(measure):
    measurement = measure(framework="jax", input="synthetic")
    result = measurement.result
    assert result.status == "complete", result.failure
    effective = result.effective
    assert (effective.device, effective.step_clock) == ("cpu", "watcher")
    assert effective.precision == "fp32"
    assert {*effective.dtypes} == {"float32"}
    assert {*effective.threads} == {POOL}
    assert {*effective.variables} == {*VARIABLES["jax"]}
    assert effective.parameters == 25_557_032
    assert effective.loss_scaling is None
    (repeat,) = result.repeats
    (rank,) = repeat.ranks
    assert rank.samples == 4
    assert rank.memory_bytes > 2**28
    assert repeat.loss_last < repeat.loss_first
    assert repeat.peak.matmul_flops_per_second > 0


# Ranks.


RANK = """
import json, os, sys
import jax, psutil
from perfkit.training.jax.train import open_device
from perfkit.training.options import Options
options = Options.parse("jax", sys.argv[1:])
open_device(options)
connections = psutil.Process().net_connections()
facts = {
    "platform": jax.config.jax_platforms,
    "gpu": jax.config.values["jax_cuda_visible_devices"],
    "precision": jax.config.jax_default_matmul_precision,
    "no_proxy": os.environ.get("no_proxy"),
    "listens_at": [known.laddr.ip for known in connections if known.status == "LISTEN"],
}
jax.distributed.shutdown()
print(json.dumps(facts))
"""
"""Opens the device of a rank and joins the others. JAX is set up for a GPU, but opens none."""


@pytest.fixture
def joined(processes, tmp_path):
    """Has two ranks join, and returns what each has printed."""

    def join(*words, **variables):
        launch = [sys.executable, "-m", "perfkit.training.jax.launch", str(tmp_path)]
        rank = [sys.executable, "-c", RANK, "--model", "gpt", *words]
        command = [*launch, "0", "2", "2", "-", *rank]
        environment = os.environ | variables
        done = subprocess.run(command, env=environment, timeout=100, check=False)
        logs = [(tmp_path / f"rank{index}.log").read_text() for index in range(2)]
        assert done.returncode == 0, logs
        return [json.loads(log.splitlines()[-1]) for log in logs]

    return join


SLURM = {
    "SLURM_JOB_ID": "1",
    "SLURM_STEP_NODELIST": "node1",
    "SLURM_NTASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
}
"""Variables of the Slurm task that starts all ranks of a node."""


@pytest.mark.parametrize(
    ("words", "precision"), [((), "highest"), (("--tf32",), "tensorfloat32")]
)
def test_each_rank_under_slurm_uses_its_own_gpu_in_the_requested_precision(
    joined, words, precision
):
    ranks = joined(*words, **SLURM)
    assert [rank["gpu"] for rank in ranks] == ["0", "1"]
    for rank in ranks:
        assert rank["platform"] == "cuda"
        assert rank["precision"] == precision


def test_a_rank_alone_uses_the_first_gpu(monkeypatch):
    """The settings are JAX's own; no GPU is opened."""
    set_to = {}
    monkeypatch.setattr(jax.config, "update", set_to.__setitem__)
    script.open_device(options("--model", "gpt"))
    assert set_to["jax_cuda_visible_devices"] == "0"


def test_ranks_meet_without_the_proxy_of_the_environment(joined):
    with socket.socket() as dead:
        # Nobody listens at this port.
        dead.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{dead.getsockname()[1]}"
        proxies = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": "other.example"}
        ranks = joined("--device", "cpu", **proxies)
    assert [rank["no_proxy"] for rank in ranks] == ["other.example,127.0.0.1"] * 2


def test_ranks_of_one_node_meet_where_no_other_machine_can_connect(joined):
    first, second = joined("--device", "cpu")
    (address,) = first["listens_at"]
    # An IPv6 socket may listen at an IPv4 address.
    assert address.removeprefix("::ffff:") == "127.0.0.1"
    assert second["listens_at"] == []


# Precision.


HIGHEST, DEFAULT = Product("float32", is_highest=True), Product("float32", is_highest=False)


@pytest.mark.parametrize(
    ("capability", "products", "rounds"),
    [
        ("9.0", (HIGHEST, HIGHEST), False),
        ("9.0", (HIGHEST, DEFAULT), True),
        ("9.0", (Product("bfloat16", is_highest=False),), False),
        ("7.5", (DEFAULT,), False),
    ],
)
def test_tf32_is_read_from_the_compiled_products(monkeypatch, capability, products, rounds):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    gpu = SimpleNamespace(compute_capability=capability)
    monkeypatch.setattr(jax, "local_devices", lambda: [gpu])
    assert precision.rounds_factors(products) is rounds


@pytest.mark.usefixtures("narrow")
def test_compiled_products_have_the_requested_precision():
    """XLA's text for a CPU has the precision that only matters on a GPU."""
    given = options(*GPT)
    weights, batch = script.new_weights(given), next(new_batches(given))
    before = jax.config.jax_default_matmul_precision
    try:
        for name, is_highest in (("highest", True), ("tensorfloat32", False)):
            jax.config.update("jax_default_matmul_precision", name)
            lowered = backward_program(given).lower(weights, {}, None, None, batch)
            products = products_in(lowered.compile().as_text())
            assert products
            assert {product.is_highest for product in products} == {is_highest}
    finally:
        jax.config.update("jax_default_matmul_precision", before)
