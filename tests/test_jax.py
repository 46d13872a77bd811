"""JAX specifics: asynchronous steps, compilation, settings of a GPU."""

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
from sides import side_of, step

from perfkit.analysis.warnings import window_disagrees
from perfkit.core.config import Protocol
from perfkit.core.frameworks.functional.xla import Product
from perfkit.core.frameworks.jax import backend
from perfkit.core.frameworks.jax.inspector import Inspector
from perfkit.core.worker import rank as worker
from perfkit.core.worker.loop import train
from perfkit.timing.watched import WatchedDevice, WatchedGpu

SIDE = side_of("jax")
MODEL = "gpt"
"""The model that compiles fastest."""


@pytest.fixture
def narrow(monkeypatch):
    replace_sizes(monkeypatch.setattr)


@jax.jit
def _waste(x, zero):
    def once(_number, y):
        return jnp.tanh(y @ x)

    return jax.lax.fori_loop(0, 8, once, x + zero).sum() * 0


def late(array):
    """Return the same values, still pending behind a long computation."""
    return array + _waste(jnp.ones((1000, 1000)), array.ravel()[0] * 0)


class LateTrainer:
    """A trainer whose gradients of each step are late."""

    def __init__(self, trainer):
        self.trainer = trainer

    def backward(self, batch, *, sync_gradients):
        loss = self.trainer.backward(batch, sync_gradients=sync_gradients)
        name, gradient = next(iter(self.trainer.gathered.items()))
        self.trainer.gathered[name] = late(gradient)
        return loss

    def update(self):
        return self.trainer.update()


def timed(trainer, device, steps, warmup_steps=2):
    """Return the window, the events and the times at which steps were submitted."""
    events, submitted = [], []
    batch = SIDE.batch(MODEL)

    def batches():
        while True:
            submitted.append(time.perf_counter())
            yield batch

    window = train(
        trainer,
        batches(),
        device,
        events.append,
        lambda lines: events.extend(map(json.loads, lines)),
        samples_per_step=2,
        accumulate=1,
        warmup_steps=warmup_steps,
        measured_steps=steps,
        read_losses_at_once=True,
    )
    seconds = [event["seconds"] for event in events if event["event"] == "step"]
    return window, seconds[warmup_steps:], submitted[warmup_steps:]


def test_steps_are_submitted_without_waiting_and_timed_when_their_update_is_ready(narrow):
    late(jnp.ones(2)).block_until_ready()
    trainer = LateTrainer(SIDE.trainer(MODEL))

    def check(_attempt):
        window, seconds, submitted = timed(trainer, WatchedDevice(jax), steps=4)
        assert min(seconds) > 0.5 * max(seconds)
        assert not window_disagrees(window.seconds, seconds)
        # The last step was submitted before the first one could be complete.
        assert submitted[-1] - submitted[0] < seconds[0]

    holds_once(check)


def test_an_event_completes_with_the_update_not_with_the_loss(narrow):
    trainer = SIDE.trainer(MODEL)
    batch = SIDE.batch(MODEL)
    late(jnp.ones(2)).block_until_ready()
    step(trainer, batch)
    device = WatchedDevice(jax)
    device.synchronize()
    slow = LateTrainer(trainer)
    loss = slow.backward(batch, sync_gradients=True)
    event = device.record_event(slow.update())
    loss.block_until_ready()
    assert not device.is_complete(event)
    device.wait_for(event)
    updated = jax.tree.leaves((trainer.values, trainer.slots))
    assert all(value.is_ready() for value in updated)
    assert device.is_complete(event)


def test_only_the_number_of_an_update_outlives_the_next_step(narrow):
    """Watching a parameter would fail: its memory is donated to the next step."""
    trainer = SIDE.trainer(MODEL)
    batch = SIDE.batch(MODEL)
    trainer.backward(batch)
    number = trainer.update()
    parameter = next(iter(trainer.values.values()))
    trainer.backward(batch)
    trainer.update()
    assert parameter.is_deleted()
    assert np.isfinite(float(number))


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


@pytest.mark.parametrize("accumulate", [1, 2])
def test_all_programs_are_compiled_in_the_first_step(narrow, accumulate):
    compiled = []

    def record(event, _seconds, **_details):
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    trainer = SIDE.trainer(MODEL, accumulate=accumulate)
    batch = SIDE.batch(MODEL)
    jax.monitoring.register_event_duration_secs_listener(record)
    try:
        counts = []
        for _step in range(4):
            loss = None
            for micro_batch in range(1, accumulate + 1):
                share = trainer.backward(batch, sync_gradients=micro_batch == accumulate)
                loss = share if loss is None else loss + share
            trainer.update()
            counts.append(len(compiled))
    finally:
        jax.monitoring.unregister_event_duration_listener(record)
    assert counts[0] >= 2
    assert counts == [counts[0]] * 4


def test_a_batch_does_not_share_memory_that_the_input_may_overwrite():
    memory = np.empty(2**16 + 64, np.uint8)
    aligned = -memory.ctypes.data % 64
    array = memory[aligned : aligned + 2**16].view(np.float32)
    array[:] = 1
    # JAX copies an array of the host only after what is pending.
    pending = late(jnp.ones(1))
    (tensor,) = SIDE.tensors((array,))
    array[:] = 2
    assert np.all(np.asarray(tensor) == 1)
    pending.block_until_ready()


def test_products_of_the_measured_peak_are_ready_on_return_only_on_a_cpu():
    """A GPU completes them in their order, and waiting for each would cost 10 %."""
    on_cpu = backend.Workloads(SIDE.config()).matmul(1500)
    assert on_cpu().is_ready()
    on_gpu = backend.Workloads(SIDE.config(device="gpu", gpus=1)).matmul(1500)
    on_gpu()
    assert not on_gpu().is_ready()


def test_xla_has_the_threads_of_its_process():
    (jnp.ones((500, 500)) @ jnp.ones((500, 500))).block_until_ready()
    # TensorFlow's threads have the same name, if another test imported TensorFlow.
    cores = len(os.sched_getaffinity(0))
    threads = Inspector(None).threads()
    assert threads in ({"tf_XLAEigen": cores}, {"tf_XLAEigen": 2 * cores})


RANK = """
import json, os, sys
import jax, psutil
from perfkit.core.config import Config
from perfkit.core.frameworks.jax import backend
device = backend.open_device(Config.model_validate_json(sys.argv[1]))
connections = psutil.Process().net_connections()
facts = {
    "device": type(device).__name__,
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


def launch(folder, count, variables=None, **changes):
    """Start `count` ranks by the launcher, and return its exit status."""
    command = [sys.executable, "-m", "perfkit.core.frameworks.ranks", str(folder), "0"]
    rank = [sys.executable, "-c", RANK, SIDE.config(**changes).model_dump_json()]
    environment = os.environ | (variables or {})
    return subprocess.run(
        [*command, str(count), "-", *rank], env=environment, timeout=100, check=False
    ).returncode


@pytest.fixture
def joined(processes, tmp_path):
    """Has `count` ranks join, and returns what each has printed."""

    def join(count, variables=None, **changes):
        status = launch(tmp_path, count, variables, timeout=40, **changes)
        logs = [(tmp_path / f"rank{index}.log").read_text() for index in range(count)]
        assert status == 0, logs
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


@pytest.mark.parametrize(("tf32", "precision"), [(False, "highest"), (True, "tensorfloat32")])
def test_each_rank_under_slurm_uses_its_own_gpu_in_the_requested_precision(
    joined, tf32, precision
):
    ranks = joined(4, SLURM, device="gpu", gpus=2, nodes=2, tf32=tf32)
    assert [rank["gpu"] for rank in ranks] == ["0", "1", "0", "1"]
    for rank in ranks:
        assert rank["device"] == "WatchedGpu"
        assert rank["platform"] == "cuda"
        assert rank["precision"] == precision


def test_a_rank_alone_uses_the_first_gpu(monkeypatch):
    """The settings are JAX's own; no GPU is opened."""
    set_to = {}
    monkeypatch.setattr(jax.config, "update", set_to.__setitem__)
    backend.open_device(SIDE.config(device="gpu", gpus=1))
    assert set_to["jax_cuda_visible_devices"] == "0"


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY", "no_grpc_proxy"])
def test_ranks_meet_without_the_proxy_of_the_environment(joined, name):
    with socket.socket() as dead:
        # Nobody listens at this port.
        dead.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{dead.getsockname()[1]}"
        proxies = {"http_proxy": proxy, "https_proxy": proxy, name: "other.example"}
        ranks = joined(2, proxies, processes=2)
    assert [rank["no_proxy"] for rank in ranks] == ["other.example,127.0.0.1"] * 2


def test_ranks_of_one_node_meet_where_no_other_machine_can_connect(joined):
    first, second = joined(2, processes=2)
    (address,) = first["listens_at"]
    # An IPv6 socket may listen at an IPv4 address.
    assert address.removeprefix("::ffff:") == "127.0.0.1"
    assert second["listens_at"] == []


@pytest.mark.usefixtures("processes")
def test_a_rank_waits_for_the_others_as_long_as_a_repeat_may_take(tmp_path):
    began = time.monotonic()
    assert launch(tmp_path, 1, processes=2, timeout=2) != 0
    assert time.monotonic() - began < 60
    assert "DEADLINE_EXCEEDED" in (tmp_path / "rank0.log").read_text()


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
    monkeypatch.setattr(Inspector, "device", "gpu")
    gpu = SimpleNamespace(compute_capability=capability)
    monkeypatch.setattr(jax, "local_devices", lambda: [gpu])
    inspector = Inspector(None)
    inspector.products = products
    assert inspector.tf32() is rounds


def test_compiled_products_have_the_requested_precision(narrow):
    """XLA's text for a CPU has the precision that only matters on a GPU."""
    before = jax.config.jax_default_matmul_precision
    try:
        for precision, is_highest in (("highest", True), ("tensorfloat32", False)):
            jax.config.update("jax_default_matmul_precision", precision)
            inspector = SIDE.inspector(MODEL)
            inspector.effective(SIDE.batch(MODEL))
            assert inspector.products
            assert {product.is_highest for product in inspector.products} == {is_highest}
    finally:
        jax.config.update("jax_default_matmul_precision", before)


@pytest.mark.parametrize(
    ("before_training", "warmed_up", "after_window", "expected"),
    [
        (2 * 2**30, 3 * 2**30, 3 * 2**30, 3 * 2**30),
        (2 * 2**30, 2 * 2**30, 3 * 2**30, 3 * 2**30),
        (2 * 2**30, 2 * 2**30, 2 * 2**30, None),
    ],
)
def test_peak_memory_of_a_gpu_is_unknown_where_more_was_allocated_before_the_training(
    monkeypatch, before_training, warmed_up, after_window, expected
):
    statistics = {}
    gpu = SimpleNamespace(memory_stats=lambda: statistics)
    monkeypatch.setattr(jax, "local_devices", lambda: [gpu])
    device = WatchedGpu(jax)
    for peak in (before_training, warmed_up):
        statistics["peak_bytes_in_use"] = peak
        device.reset_peak_memory()
    statistics["peak_bytes_in_use"] = after_window
    assert device.peak_memory_bytes() == expected


def test_the_memory_of_the_speed_measurement_before_does_not_count(
    narrow, monkeypatch, tmp_path
):
    """The device is a CPU, of which a GPU's counts are asked."""
    calls = []

    def measure_speed(*_arguments):
        calls.append("measure_peak")
        return {}

    class CountedDevice(WatchedDevice):
        def reset_peak_memory(self):
            calls.append("reset_peak_memory")

        def peak_memory_bytes(self):
            calls.append("peak_memory_bytes")

    monkeypatch.setattr(worker, "measure_peak", measure_speed)
    monkeypatch.setattr(backend, "open_device", lambda _config: CountedDevice(jax))
    protocol = Protocol(name="quick", warmup_steps=1, measured_steps=1, repeats=1)
    raw = worker.RawFile(tmp_path / "rank0.jsonl")
    end = worker.measure(SIDE.config(MODEL), protocol, 0, raw)
    assert end["memory_bytes"] is None
    resets = ["reset_peak_memory"] * 2
    assert calls == ["measure_peak", *resets, "peak_memory_bytes", "measure_peak"]
