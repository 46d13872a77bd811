"""Looks at the machine while a repeat runs, from outside the training processes.

Each look is a line of `repeats/<k>/conditions.jsonl`: counters and gauges of the kernel and the
GPUs as they stand. What they mean for the window is derived by `results.conditions`. A look
starts no process and waits for nothing.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from perfkit.config import Config
from perfkit.machine import gauges, gpus
from perfkit.machine.gauges import Gauge, Tree

CORES_ASKED = 8
"""So many of the usable cores, evenly chosen, are asked for clock and throttling."""
UNTOLD = (*gauges.UNTOLD, gpus.NoDriverError)
T = TypeVar("T")


class Lookout:
    """Appends what it sees to `path`; a line that can't be written is the last.

    A measurement goes on without it: of a full disk, its own raw files tell. `root` is where
    `proc` and `sys` are.
    """

    def __init__(self, path: Path, config: Config, root: Path = Path("/")) -> None:
        self.path = path
        self.config = config
        self.root = root
        self.cores = sorted(os.sched_getaffinity(0))
        self.tree: Tree | None = None
        self.writing = True

    def __enter__(self) -> Self:
        self.opened = ExitStack()
        try:
            self.stream = self.opened.enter_context(self.path.open("xb", buffering=0))
        except OSError:
            self.writing = False
            return self
        self.missing: dict[str, str] = {}
        self.gauges = self._gauges()
        begin = {
            "event": "begin",
            "device": self.config.device,
            "ranks": self.config.devices,
            "cores": len(self.cores),
            "energy_wraps_joules": _told(partial(gauges.energy_wraps, self.root)) or {},
            "missing": self.missing,
        }
        self._write(begin)
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    def look(self, rank: int | None) -> None:
        """Write down how things stand. `rank` is the process of a rank on this machine, or
        None before there is one."""
        if not self.writing:
            return
        seen: dict[str, Any] = {"event": "look", "at": time.monotonic()}
        seen |= _told(self._core_seconds) or {}
        own_seconds = _told(partial(self._own_seconds, rank)) if rank else None
        if own_seconds is not None:
            seen["own_seconds"] = own_seconds
        for gauge in self.gauges:
            value = _told(gauge.read)
            if value is not None:
                seen.setdefault(gauge.what, {})[gauge.device] = value
        self._write(seen)

    def _own_seconds(self, rank: int) -> float:
        self.tree = self.tree or Tree(self.root, rank)
        return self.tree.seconds()

    def _write(self, event: dict[str, Any]) -> None:
        line = json.dumps(event).encode() + b"\n"
        try:
            self.writing = self.stream.write(line) == len(line)
        except OSError:
            self.writing = False

    def _core_seconds(self) -> dict[str, float]:
        return gauges.core_seconds(self.root, self.cores)

    def _gauges(self) -> list[Gauge]:
        """Those that answer. Of the others, `missing` gets the reason by name."""
        some = self.cores[:: -(-len(self.cores) // CORES_ASKED)]
        sources: dict[str, Callable[[], list[Gauge]]] = {
            "cpu_clock": lambda: gauges.cpu_clock(self.root, some),
            "cpu_temperature": lambda: gauges.cpu_temperature(self.root),
            "cpu_throttling": lambda: gauges.cpu_throttling(self.root, some),
            "cpu_energy": lambda: gauges.cpu_energy(self.root),
        }
        if self.config.device == "gpu":
            sources |= self._try("gpus", self._gpu_sources) or {}
        self._try("cpu_time", self._core_seconds)
        return [
            gauge
            for name, source in sources.items()
            for gauge in self._try(name, partial(_answering, source)) or []
        ]

    def _gpu_sources(self) -> dict[str, Callable[[], list[Gauge]]]:
        self.opened.enter_context(gpus.session())
        return gpus.gauges(self.config.devices)

    def _try(self, name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except UNTOLD as reason:
            self.missing[name] = _why(reason)
            return None


def _answering(source: Callable[[], list[Gauge]]) -> list[Gauge]:
    found = source()
    for gauge in found:
        gauge.read()
    return found


def _told(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except UNTOLD:
        return None


def _why(reason: Exception) -> str:
    if isinstance(reason, OSError):
        return f"{reason.filename}: {reason.strerror}"
    return f"NVML: {reason}" if isinstance(reason, gpus.NoDriverError) else str(reason)
