"""One rank of one repeat: `python -m perfkit.worker FOLDER REPEAT`, started by a launcher.

Reads FOLDER/result.json for what to do and appends what happens to its own raw file:
start, step, loss, window, end, or failure. `docs/results.md` describes the events.
"""

import errno
import json
import os
import resource
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from perfkit.config import Config, portable, resolved_path
from perfkit.inputs.files import InputError, read_list
from perfkit.loop import LossNotFiniteError, train
from perfkit.results import FailureCode, raw_file, read_result
from perfkit.supervisor import end_with_parent

OUT_OF_MEMORY = ("out of memory", "resourceexhausted", "bad_alloc", "unable to allocate")


class RawFile:
    """The raw events of this rank: a line each, not buffered."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644
        )

    def write(self, event: dict[str, Any]) -> None:
        line = json.dumps(event).encode() + b"\n"
        if os.write(self.descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def main(folder: Path, repeat: int) -> None:
    """Run this rank; ends with status 1 after a `failure` event."""
    end_with_parent()
    # Paddle's launcher sets these; its absence means one process started by hand.
    rank = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    result = read_result(folder / "result.json")
    raw = RawFile(raw_file(folder, repeat, rank))
    try:
        run(
            result.config,
            result.protocol.warmup_steps,
            result.protocol.measured_steps,
            rank,
            raw,
        )
    except BaseException as error:
        code, message = failure(error)
        traceback.print_exc()
        sys.stderr.flush()
        try:
            raw.write({"event": "failure", "code": code, "message": message})
        finally:
            # Not sys.exit: what is left of the framework (a pipeline that failed, a rank that
            # waits for the others) may never let the interpreter end.
            os._exit(1)


def run(
    config: Config, warmup_steps: int, measured_steps: int, rank: int, raw: RawFile
) -> None:
    raw.write({"event": "start", "pid": os.getpid()})
    backend = import_module(f"perfkit.backends.{config.framework}")
    device = backend.open_device(config)
    trainer = backend.Trainer(config)
    batches = map(backend.as_tensors, open_input(config, rank))
    # The first batch starts the input's own workers and shows whether the data can be read.
    effective = backend.effective(trainer, next(batches))
    if effective["device"] != config.device:
        raise RuntimeError(f"trains on the {effective['device']}, not on the {config.device}")
    raw.write({"event": "effective", **effective})
    window = train(
        trainer,
        batches,
        device,
        raw.write,
        samples=config.samples,
        warmup_steps=warmup_steps,
        measured_steps=measured_steps,
        read_losses_at_once=config.device == "cpu",
    )
    raw.write({"event": "window", "samples": window.samples, "seconds": window.seconds})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    raw.write({"event": "end", "memory_bytes": backend.memory_bytes(config) or peak})


def open_input(config: Config, rank: int) -> Iterator[tuple[Any, Any]]:
    """The batches of this rank, for ever."""
    if config.input == "synthetic":
        from perfkit.inputs import synthetic

        return synthetic.batches(config, rank)
    module = import_module(f"perfkit.inputs.{config.input}")
    batches: Iterator[tuple[Any, Any]] = module.batches(
        config, read_list(resolved_path(config.data_dir)), rank
    )
    return batches


def failure(error: BaseException) -> tuple[FailureCode, str]:
    """A code and a sentence for what ended the training."""
    message = portable(" ".join(str(error).split()))[:600] or type(error).__name__
    if isinstance(error, LossNotFiniteError):
        return "loss_not_finite", message
    if isinstance(error, MemoryError) or any(sign in message.lower() for sign in OUT_OF_MEMORY):
        return "out_of_memory", message
    if isinstance(error, InputError):
        return "bad_input", message
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "disk_full", message
    return "worker_error", f"{type(error).__name__}: {message}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
