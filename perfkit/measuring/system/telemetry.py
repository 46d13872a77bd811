"""Samples of the machine during a repeat, taken outside the training processes.

A sample is a line of `repeats/<k>/telemetry.jsonl`: raw counters and sensors of the kernel and
the GPUs. `results.telemetry` derives the values of the window. Sampling starts no process and
never waits.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import psutil

from perfkit.measuring.config import Config
from perfkit.measuring.system import cpu, gpus
from perfkit.measuring.system.cpu import Readers, cpu_readers
from perfkit.measuring.system.environment import UNAVAILABLE, MissingError, reason
from perfkit.measuring.system.process_tree import ProcessTree

CORES_SAMPLED = 8
"""Number of usable cores, evenly chosen, whose clock and throttling are sampled."""
T = TypeVar("T")


class Gauge(NamedTuple):
    """A reading of all devices: its name, its field in a sample, and its readers."""

    name: str
    field: str
    readers: Readers


class Telemetry:
    """Appends samples to `path`. After a failed write, sampling ends and the measurement
    continues."""

    def __init__(self, path: Path, config: Config, sys: Path = Path("/sys")) -> None:
        self.path = path
        self.config = config
        self.sys = sys
        self.cores = sorted(os.sched_getaffinity(0))
        self.core_seconds = partial(cpu.core_seconds, sys, self.cores)
        self.processes: ProcessTree | None = None
        self.missing: dict[str, str] = {}
        self.stream: FileIO | None = None

    def __enter__(self) -> Self:
        self.opened = ExitStack()
        with suppress(OSError):
            self.stream = self.opened.enter_context(self.path.open("xb", buffering=0))
            self._try(self.core_seconds, "cpu_time")
            self.gauges = [gauge for gauge in self._gauges() if self._works(gauge)]
            self._write(
                {
                    "event": "begin",
                    "device": self.config.device,
                    "ranks": self.config.devices,
                    "cores": len(self.cores),
                    "energy_wraps_joules": self._try(self._energy_wraps) or {},
                    "missing": self.missing,
                }
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    def sample(self, top: psutil.Process | None) -> None:
        """Append a sample. `top` is the root of the measurement's processes, if known."""
        if not self.stream:
            return
        sample: dict[str, Any] = {"event": "sample", "at": time.monotonic()}
        sample |= self._try(self.core_seconds) or {}
        if top and not self.processes:
            self.processes = ProcessTree(top)
        if self.processes:
            seconds = self._try(self.processes.cpu_seconds)
            if seconds is not None:
                sample["process_seconds"] = seconds
        for gauge in self.gauges:
            for device, read in gauge.readers.items():
                value = self._try(read)
                if value is not None:
                    sample.setdefault(gauge.field, {})[device] = value
        self._write(sample)

    def _write(self, event: dict[str, Any]) -> None:
        line = json.dumps(event).encode() + b"\n"
        written: int | None = 0
        with suppress(OSError):
            written = self.stream.write(line) if self.stream else 0
        if written != len(line):
            self.stream = None

    def _gauges(self) -> Iterator[Gauge]:
        """Yield the readings that this machine should have."""
        every_nth = -(-len(self.cores) // CORES_SAMPLED)
        cores = self.cores[::every_nth]
        for sensor in cpu.SENSORS:
            readers = self._try(partial(cpu_readers, self.sys, cores, sensor), sensor.name)
            if readers:
                yield Gauge(sensor.name, sensor.field, readers)
        if self.config.device == "gpu":
            yield from self._try(self._gpu_gauges, "gpus") or []
        elif self.config.accelerated:
            self.missing["accelerators"] = f"no telemetry of {self.config.device} devices"

    def _gpu_gauges(self) -> list[Gauge]:
        self.opened.enter_context(gpus.session())
        handles = [*gpus.visible_handles().values()][: self.config.devices]
        if not handles:
            raise MissingError("NVML shows no GPU that this process may use")
        gauges = []
        for sensor in gpus.SENSORS:
            readers: Readers = {}
            for index, handle in enumerate(handles):
                readers[f"gpu{index}"] = partial(sensor.read, handle)
            gauges.append(Gauge(sensor.name, sensor.field, readers))
        return gauges

    def _works(self, gauge: Gauge) -> bool:
        """Return whether every device has this reading."""
        return bool(self._try(partial(_read_all, gauge.readers), gauge.name))

    def _energy_wraps(self) -> dict[str, Any]:
        """Return the numbers at which the energy counters wrap around."""
        return _read_all(cpu_readers(self.sys, [0], cpu.ENERGY, "max_energy_range_uj"))

    def _try(self, read: Callable[[], T], name: str | None = None) -> T | None:
        """Return `read()`, or None if unavailable; with a `name`, `missing` gets the reason."""
        try:
            return read()
        except UNAVAILABLE as error:
            if name:
                self.missing[name] = reason(error)
            return None


def _read_all(readers: Readers) -> dict[str, Any]:
    return {device: read() for device, read in readers.items()}
