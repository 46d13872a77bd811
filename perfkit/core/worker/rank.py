"""One rank of a repeat: `python -m perfkit.core.worker.rank JOB`, started by a launcher.

Reads its task from the file JOB and appends events to the rank's raw file, for a repeat: start,
ready, effective, peak, batch, step, loss, warmup, window, evaluation, peak, end, or failure.
`docs/results.md` describes the events.
"""

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from perfkit.core.config import Config, Protocol
from perfkit.core.frameworks.inspector import Inspector
from perfkit.core.frameworks.interface import Backend, backend
from perfkit.core.frameworks.trainer import Batch
from perfkit.core.results.schema import Effective
from perfkit.core.system.gpus import core_ranges, near_cores
from perfkit.core.worker.loop import compute_seconds, train
from perfkit.core.worker.trace import write_trace
from perfkit.core.worker.warmup import AutoWarmup
from perfkit.timing.devices import Device
from perfkit.timing.failure import ConfigMismatchError, classify
from perfkit.timing.measuring_timer import FEWEST_BATCHES, FEWEST_SECONDS
from perfkit.timing.peak import measure_peak
from perfkit.timing.rank_process import enter_scratch
from perfkit.timing.raw_file import RawFile, rank_file
from perfkit.timing.recorder import LossNotFiniteError
from perfkit.training.frameworks import AFFINITY, FRAMEWORKS

DALI_PLUGINS = {"jax": "nvidia.dali.plugin.jax"}
"""Framework -> module of DALI whose iterator yields its tensors on a GPU."""


def main(job_file: Path) -> None:
    """Run this rank. Exits with status 1 after a `failure` event."""
    began = time.monotonic()
    job = json.loads(job_file.read_text())
    config = Config.model_validate(job["config"])
    protocol = Protocol.model_validate(job["protocol"])
    framework = FRAMEWORKS[config.framework]
    enter_scratch(job_file.parent)
    # Set by the launcher; a single process runs without a launcher.
    rank = int(os.environ.get(framework.rank_variable, "0"))
    raw = RawFile(rank_file(Path(job["raw_folder"]), rank))
    try:
        raw.write({"event": "start", "pid": os.getpid(), "began": began})
        end = TASKS[job["task"]](config, protocol, rank, raw)
        raw.write({"event": "end", **end})
    except BaseException as error:
        code, message = classify(error)
        traceback.print_exc()
        sys.stderr.flush()
        try:
            raw.write({"event": "failure", "code": code, "params": {"detail": message}})
        finally:
            # Not sys.exit: remains of the framework (a failed pipeline, a rank waiting for
            # others) may keep the interpreter alive.
            os._exit(1)


class OpenInput(NamedTuple):
    """An input and the framework that reads it: the framework, this rank's device, the batches
    on the device, and the settings of host and input by name."""

    framework: Backend
    device: Device
    batches: Iterator[Batch]
    settings: dict[str, str]


def open_input(config: Config, rank: int) -> OpenInput:
    """Open the input of this rank, and its device."""
    settings = {}
    # Before the framework is imported: its threads inherit the process's CPU affinity.
    if config.device == "gpu":
        settings[AFFINITY] = "all cores"
        if config.tunes(AFFINITY) and (near := near_cores(config.devices)):
            cores = near[rank % config.devices]
            os.sched_setaffinity(0, cores)
            settings[AFFINITY] = f"cores {core_ranges({*cores})}"
    if config.input == "dali":
        settings["dali_threads"] = str(config.dali_threads)
        settings["dali_prefetch"] = str(config.dali_prefetch)
    framework = backend(config.framework)
    device = framework.open_device(config)
    module = import_module(f"perfkit.inputs.{config.input}")
    how: list[Any] = []
    if config.input == "dali":
        how.append(DALI_PLUGINS.get(config.framework, ""))
    if config.input == "dataloader":
        how.append(framework.data_loader)
    batches = framework.tensors(module.batches(config, rank, *how), config)
    return OpenInput(framework, device, batches, settings)


def counted(batches: Iterator[Batch], sizes: list[int]) -> Iterator[Batch]:
    """Yield the batches, and append the number of samples of each to `sizes`."""
    for batch in batches:
        sizes.append(batch[0].shape[0])
        yield batch


def measure(config: Config, protocol: Protocol, rank: int, raw: RawFile) -> dict[str, Any]:
    """Train under the protocol."""
    times = [time.perf_counter()]
    framework, device, batches, settings = open_input(config, rank)
    times.append(time.perf_counter())
    trainer = framework.Trainer(config)
    device.synchronize()
    times.append(time.perf_counter())
    # The first batch starts the input's workers and shows whether the data is readable.
    first_batch = next(batches)
    times.append(time.perf_counter())
    raw.write(ready_event(*times))
    inspector = framework.Inspector(trainer)
    effective = inspector.effective(first_batch)
    check_effective(config, effective)
    fields = effective.model_dump()
    fields["settings"] |= settings
    raw.write({"event": "effective", **fields, "step_clock": device.step_clock})

    def write_peak() -> None:
        peak = try_measure(lambda: measure_peak(framework.Workloads(config), device))
        raw.write({"event": "peak", **peak})

    # Measured before and after the training: other load can lower either measurement.
    write_peak()
    # The measurement above must not count; JAX can't forget it at the window's start.
    device.reset_peak_memory()
    warmup = AutoWarmup(protocol, rank, raw.path.parent, raw.write, framework.largest_of_ranks)
    sizes: list[int] = []
    window = train(
        trainer,
        counted(batches, sizes),
        device,
        raw.write,
        raw.write_lines,
        samples_per_step=config.samples_per_step,
        accumulate=config.accumulate,
        warmup_steps=protocol.warmup_steps,
        measured_steps=protocol.measured_steps,
        read_losses_at_once=config.device == "cpu",
        announce=config.ranks > 1,
        is_warmed_up=warmup.is_over,
    )
    # A short batch must not count as a full one.
    samples = sum(sizes[-protocol.measured_steps * config.accumulate :])
    raw.write({"event": "window", **window._asdict(), "samples": samples})
    # Read the peak memory before the work below allocates more.
    end: dict[str, Any] = {
        "memory_bytes": device.peak_memory_bytes(),
        "skipped_steps": None,
        "loss_scale": trainer.loss_scale,
    }
    if effective.loss_scaling:
        end["skipped_steps"] = trainer.skipped_steps
    # A sharded network waits for the other ranks' weights.
    if config.ranks > 1 and not config.is_sharded:
        end["compute_seconds"] = compute_seconds(trainer, batches, device, config.accumulate)
    evaluation = try_measure(lambda: evaluate(inspector, next(batches)))
    raw.write({"event": "evaluation", **evaluation})
    write_peak()
    return end


def ready_event(began: float, opened: float, built: float, ready: float) -> dict[str, Any]:
    """Return the event that the model can be trained, from readings of the clock: at the start,
    when the input was open, when the model was built, and when the first batch had arrived."""
    return {
        "event": "ready",
        "import_seconds": opened - began,
        "build_seconds": built - opened,
        "first_batch_seconds": ready - built,
    }


def read_input(config: Config, _protocol: Protocol, rank: int, raw: RawFile) -> dict[str, Any]:
    """Read batches at full speed, without training."""
    opened = open_input(config, rank)
    # Skip batches prepared in advance. A DataLoader keeps two for each of its processes.
    prepared = 2 * config.dataloader_workers
    if config.input == "dali":
        prepared = config.dali_prefetch or 0
    for _ in range(prepared + 2):
        next(opened.batches)
    intervals: list[float] = []
    while len(intervals) < FEWEST_BATCHES or sum(intervals) < FEWEST_SECONDS:
        began = time.perf_counter()
        next(opened.batches)
        opened.device.synchronize()
        intervals.append(time.perf_counter() - began)
    raw.write({"event": "input", "intervals": intervals})
    return {}


def verify(config: Config, _protocol: Protocol, _rank: int, raw: RawFile) -> dict[str, Any]:
    """Trace the framework's work; see perfkit.core.worker.trace."""
    write_trace(config, raw.path.parent.parent, raw.write)
    return {}


TASKS = {"measure": measure, "read_input": read_input, "verify": verify}
"""Tasks of a worker; each returns the fields of the `end` event."""


def evaluate(inspector: Inspector, batch: Batch) -> dict[str, float]:
    """Return loss and accuracy on a batch. Raises LossNotFiniteError for NaN or infinity."""
    loss, accuracy = inspector.evaluate(batch)
    if not math.isfinite(loss):
        raise LossNotFiniteError(f"the loss is {loss} after the last step")
    return {"loss": loss, "accuracy": accuracy}


def try_measure(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return `read()` or, if it fails, the reason as `missing`, so that the window remains a
    result. Raises LossNotFiniteError."""
    try:
        return read()
    except LossNotFiniteError:
        raise
    except Exception as error:
        return {"missing": classify(error)[1]}


def check_effective(config: Config, effective: Effective) -> None:
    """Raise ConfigMismatchError if the training differs from the configuration."""
    expected: dict[str, Any] = {"device": config.device, "precision": config.precision}
    if config.precision == "auto":
        del expected["precision"]
    if config.precision == "fp32":
        # TF32 does not affect lower precisions.
        expected["tf32"] = config.tf32
    dtypes = ", ".join(f"{count} in {dtype}" for dtype, count in effective.dtypes.items())
    for name, value in expected.items():
        used = getattr(effective, name)
        if used != value:
            raise ConfigMismatchError(
                f"{name}={value} was requested, but the training has {name}={used} "
                f"(matrix products: {dtypes}): {config.framework} ignores it on this device"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
