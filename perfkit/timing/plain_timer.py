"""perfkit.StepTimer without `perfkit run`: the script trains as before."""

import atexit
import os
import shlex
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perfkit.timing.batches import InputCount, TimedLoader, like_original
from perfkit.timing.devices import Clock
from perfkit.timing.session import refuse_child
from perfkit.timing.told import Told
from perfkit.timing.training import samples_of_steps, usual_rows

RANK_VARIABLES = ("RANK", "PADDLE_TRAINER_ID", "PERFKIT_RANK")
"""Environment variables in which launchers pass a rank's number."""
FEWEST_STEPS = 4
"""Steps from which on a throughput is told."""


class PlainTimer:
    """Reads the host's clock at the end of each step, and prints one line when the process
    exits: the throughput of the second half of the steps."""

    def __init__(self, work: Told, clock: Clock = time.perf_counter) -> None:
        self.work = work
        self.clock = clock
        self.paused_seconds = 0.0
        self.is_paused = False
        self.input = InputCount()
        self.rows = array("q")
        # When each step ended, without the pauses before it.
        self.ends = array("d")
        self.wait_for_last: Callable[[], Any] = lambda: None

    def batches(self, loader: Any) -> Any:
        """See StepTimer."""
        timed = TimedLoader(loader, self._count, lambda: False, self.clock)
        return like_original(timed, loader)

    def _count(self, batch: Any, wait_seconds: float) -> None:
        if not self.is_paused:
            self.input.add(batch, wait_seconds)

    def note(self, _values: dict[str, Any]) -> None:
        """See StepTimer."""

    def step(self, loss: Any = None, *, result: Any = None) -> None:
        """See StepTimer. Waits for the step before: a GPU, and JAX also on a CPU, get many
        steps before one has ended; the host's clock alone would tell how fast they are sent."""
        self.wait_for_last()
        self.wait_for_last = waiting_for(loss)
        self.ends.append(self.clock() - self.paused_seconds)
        _batches, _seconds, rows = self.input.take()
        self.rows.append(rows)
        if len(self.ends) == 1:
            refuse_child()
            atexit.register(self._print_summary)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """See StepTimer."""
        if self.is_paused:
            # A pause within a pause, whose time counts once.
            yield
            return
        self.is_paused = True
        began = self.clock()
        try:
            yield
        finally:
            self.is_paused = False
            self.paused_seconds += self.clock() - began

    def _print_summary(self) -> None:
        if any(os.environ.get(variable, "0") != "0" for variable in RANK_VARIABLES):
            return
        print(f"perfkit: {self.summary()}", file=sys.stderr)

    def summary(self) -> str:
        """Return the line that is printed at the end."""
        measure = f"To measure it with warm-up, repeats and an interval: {run_command()}"
        steps = len(self.ends)
        if steps < FEWEST_STEPS:
            few = "1 step is" if steps == 1 else f"{steps} steps are"
            return f"{few} too few to tell a throughput, which takes {FEWEST_STEPS}. {measure}"
        warmup = steps // 2
        told = self.work.samples_per_step
        usual = usual_rows(self.rows)
        samples = samples_of_steps(self.rows[warmup:], usual, told)
        throughput = samples / (self.ends[-1] - self.ends[warmup - 1])
        return (
            f"{_rounded(throughput)} {self.work.unit}/s of this process in the last "
            f"{steps - warmup} of {steps} steps (the first {warmup} are left out as warm-up), "
            f"by the host's clock, with the wait for data, without pauses. "
            f"{odd_samples(told, usual)}{measure}"
        )


def waiting_for(loss: Any) -> Callable[[], Any]:
    """Return a function that waits until a device has computed a loss, but for no later work.
    A number, or a tensor of a CPU, is computed already."""
    if hasattr(loss, "block_until_ready"):
        wait: Callable[[], Any] = loss.block_until_ready
        return wait
    place = getattr(loss, "place", None)
    if place is not None and not place.is_cpu_place():
        event = sys.modules["paddle"].device.Event()
    elif place is None and getattr(loss, "is_cuda", False):
        event = sys.modules["torch"].cuda.Event()
    else:
        return lambda: None
    event.record()
    synchronize: Callable[[], Any] = event.synchronize
    return synchronize


def odd_samples(told: int, usual: int | None) -> str:
    """Return a caution if the samples of a step are no whole multiple of its rows."""
    if usual is None or told % usual == 0:
        return ""
    return (
        f"Caution: samples_per_step={told}, but a step read {usual} rows, of which it is no "
        "whole multiple. "
    )


def run_command() -> str:
    """Return the command that measures this process's script."""
    script, *arguments = sys.argv
    command = ["perfkit", "run", script or "SCRIPT"]
    if arguments:
        command += ["--", *arguments]
    return shlex.join(command)


def _rounded(rate: float) -> str:
    """Return a rate with four significant digits or more, but no exponent: "25,004"."""
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.4g}"
