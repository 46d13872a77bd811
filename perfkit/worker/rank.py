"""One rank of one repeat: `python -m perfkit.worker.rank JOB`, started by a launcher.

Reads the file JOB for what to do and appends what happens to its own raw file; of a repeat
start, effective, batch, step, loss, window, evaluation, peak, end, or failure.
`docs/results.md` describes the events.
"""

import errno
import faulthandler
import json
import math
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from pydantic_core import to_json

from perfkit.config import Config, Protocol, portable
from perfkit.frameworks import FRAMEWORKS
from perfkit.frameworks.base import Backend, Batch, Device, backend
from perfkit.inputs import InputError
from perfkit.results.files import NO_ROOM, rank_file
from perfkit.results.schema import FailureCode
from perfkit.system.processes import end_with_parent
from perfkit.worker.loop import LossNotFiniteError, seconds_alone, train
from perfkit.worker.peak import measure_peak
from perfkit.worker.trace import witness

READ_BATCHES, READ_SECONDS = 12, 3.0
"""How many batches at least, and for how long, the input is read alone."""
PROFILED_STEPS = 5
OUT_OF_MEMORY = (
    "out of memory",
    "resourceexhausted",
    "bad_alloc",
    "unable to allocate",
    "can't allocate memory",
)


class NotAsAskedError(RuntimeError):
    """The framework does something other than what was asked for, without saying so."""


class RawFile:
    """The raw events of this rank: a line each, not buffered."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644
        )

    def write(self, *events: dict[str, Any]) -> None:
        # json.dumps takes eight times as long, in every step of the window.
        lines = b"".join([to_json(event) + b"\n" for event in events])
        if os.write(self.descriptor, lines) != len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def main(job_file: Path) -> None:
    """Run this rank; ends with status 1 after a `failure` event."""
    end_with_parent()
    # The driver asks for it when a rank hangs: the log then shows where each one is.
    faulthandler.register(signal.SIGUSR1)
    job = json.loads(job_file.read_text())
    config = Config.model_validate(job["config"])
    # A launcher sets it; its absence means one process, started without one.
    rank = int(os.environ.get(FRAMEWORKS[config.framework].rank_variable, "0"))
    protocol = Protocol.model_validate(job["protocol"])
    raw = RawFile(rank_file(Path(job["raw_folder"]), rank))
    try:
        raw.write({"event": "start", "pid": os.getpid()})
        TASKS[job["task"]](config, protocol, rank, raw)
    except BaseException as error:
        code, message = failure(error)
        traceback.print_exc()
        sys.stderr.flush()
        try:
            raw.write({"event": "failure", "code": code, "params": {"detail": message}})
        finally:
            # Not sys.exit: what is left of the framework (a pipeline that failed, a rank that
            # waits for the others) may never let the interpreter end.
            os._exit(1)


def opened(config: Config, rank: int) -> tuple[Backend, Device, Iterator[Batch]]:
    """The framework, this rank's device, and the batches of its input on that."""
    training = backend(config.framework)
    device = training.open_device(config)
    batches = import_module(f"perfkit.inputs.{config.input}").batches(config, rank)
    return training, device, training.tensors(batches, config)


def measure(config: Config, protocol: Protocol, rank: int, raw: RawFile) -> None:
    """Train under the protocol: a repeat."""
    training, device, batches = opened(config, rank)
    trainer = training.Trainer(config)
    # The first batch starts the input's own workers and shows whether the data can be read.
    effective = training.effective(trainer, next(batches))
    check(config, effective)
    raw.write({"event": "effective", **effective})
    counted = SampleCounter(batches)
    window = train(
        trainer,
        counted,
        device,
        raw.write,
        samples_per_step=config.samples_per_step,
        accumulate=config.accumulate,
        warmup_steps=protocol.warmup_steps,
        measured_steps=protocol.measured_steps,
        read_losses_at_once=config.device == "cpu",
        announce=config.ranks > 1,
    )
    # A short batch must not count as a full one.
    in_window = sum(counted.counts[-protocol.measured_steps * config.accumulate :])
    raw.write({"event": "window", **window._asdict(), "samples": in_window})
    skipped = trainer.skipped_steps if effective["loss_scaling"] else None
    end = {"skipped_steps": skipped, "loss_scale": trainer.loss_scale}
    end["samples_seen"] = sum(counted.counts)
    if config.ranks > 1:
        end["compute_seconds"] = seconds_alone(
            trainer, batches, device, accumulate=config.accumulate
        )
    end["memory_bytes"] = training.memory_bytes(config)
    if end["memory_bytes"] is None:
        end["memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    raw.write({"event": "evaluation", **or_why_not(lambda: evaluation(trainer, batches))})
    workloads = training.Workloads(config)
    raw.write({"event": "peak", **or_why_not(lambda: measure_peak(workloads, device))})
    raw.write({"event": "end", **end})


def read_input(config: Config, _protocol: Protocol, rank: int, raw: RawFile) -> None:
    """Take batches as fast as the input gives them, and train on none."""
    _training, device, batches = opened(config, rank)
    # What was made ahead, while nobody asked, says nothing. A DataLoader keeps two batches
    # for each of its processes.
    dali = config.input == "dali"
    ahead = config.dali_prefetch if dali else 2 * config.dataloader_workers
    for _ in range(ahead + 2):
        next(batches)
    intervals: list[float] = []
    while len(intervals) < READ_BATCHES or sum(intervals) < READ_SECONDS:
        began = time.perf_counter()
        next(batches)
        device.synchronize()
        intervals.append(time.perf_counter() - began)
    raw.write({"event": "input", "intervals": intervals})
    raw.write({"event": "end"})


def profile(config: Config, protocol: Protocol, rank: int, raw: RawFile) -> None:
    """Train some steps under the framework's own profiler, which makes them slower."""
    training, _device, batches = opened(config, rank)
    trainer = training.Trainer(config)

    def step() -> None:
        for micro_batch in range(1, config.accumulate + 1):
            trainer.backward(next(batches), sync_gradients=micro_batch == config.accumulate)
        trainer.update()

    for _ in range(max(1, protocol.warmup_steps)):
        step()
    seconds = training.profile(step, PROFILED_STEPS)
    raw.write({"event": "profile", "seconds": seconds})
    raw.write({"event": "end"})


def verify(config: Config, _protocol: Protocol, _rank: int, raw: RawFile) -> None:
    """Tell what this framework does, beside the others; see perfkit.worker.trace."""
    witness(config, raw.path.parent.parent, raw.write)
    raw.write({"event": "end"})


TASKS = {"measure": measure, "read_input": read_input, "profile": profile, "verify": verify}
"""What a worker can be started for."""


class SampleCounter:
    """Batches, and how many samples were really in each so far: `counts`."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self.batches = batches
        self.counts: list[int] = []

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batch = next(self.batches)
        self.counts.append(batch[0].shape[0])
        return batch


def evaluation(trainer: Any, batches: Iterator[Any]) -> dict[str, float]:
    """Loss and accuracy on one more batch. Raises LossNotFiniteError: the training has come to
    nothing with its last update."""
    loss, accuracy = trainer.evaluate(next(batches))
    if not math.isfinite(loss):
        raise LossNotFiniteError(f"the loss is {loss} after the last step")
    return {"loss": loss, "accuracy": accuracy}


def or_why_not(read: Callable[[], dict[str, float]]) -> dict[str, Any]:
    """What `read` gives or, in `missing`, why it could not be had: what was measured before
    stays a result. Raises LossNotFiniteError, since that was no training."""
    try:
        return read()
    except LossNotFiniteError:
        raise
    except Exception as error:
        return {"missing": failure(error)[1]}


def check(config: Config, effective: dict[str, Any]) -> None:
    """Raises NotAsAskedError where the training would not be what was asked for."""
    asked: dict[str, Any] = {"device": config.device, "tf32": config.tf32}
    if config.precision != "auto":
        asked["precision"] = config.precision
    if config.precision != "fp32":
        # With lower precisions, TF32 is beside the point.
        del asked["tf32"]
    for name, value in asked.items():
        if effective[name] != value:
            seen = ", ".join(f"{n} layers {d}" for d, n in effective["dtypes"].items())
            raise NotAsAskedError(
                f"{name}={value} was asked for, and the training has {name}={effective[name]} "
                f"({seen}): {config.framework} ignores it on this device"
            )


def failure(error: BaseException) -> tuple[FailureCode, str]:
    """A code and a sentence for what ended the training."""
    message = portable(" ".join(str(error).split()))[:600] or type(error).__name__
    if isinstance(error, LossNotFiniteError):
        return "loss_not_finite", message
    if isinstance(error, NotAsAskedError):
        return "config_mismatch", message
    if isinstance(error, MemoryError) or any(sign in message.lower() for sign in OUT_OF_MEMORY):
        return "out_of_memory", message
    if isinstance(error, InputError):
        return "bad_input", message
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return "disk_full", message
    return "worker_error", f"{type(error).__name__}: {message}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
