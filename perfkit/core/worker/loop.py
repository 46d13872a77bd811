"""The timed training loop of the suite's models. Independent of frameworks: device, trainer and
clock are arguments. perfkit.timing records its steps.
"""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from perfkit.core.frameworks.trainer import Trainer
from perfkit.timing.course import Course, TimedWindow
from perfkit.timing.devices import Clock, Device
from perfkit.timing.recorder import StepRecorder, WriteLines

COMPUTE_STEPS = 3


def train(
    trainer: Trainer,
    batches: Iterator[Any],
    device: Device,
    write: Callable[[dict[str, Any]], None],
    write_lines: WriteLines,
    *,
    samples_per_step: int,
    accumulate: int,
    warmup_steps: int,
    measured_steps: int,
    read_losses_at_once: bool,
    announce: bool = False,
    is_warmed_up: Callable[[int], bool] = lambda _step: True,
    clock: Clock = time.perf_counter,
) -> TimedWindow:
    """Train for the warm-up and the measured steps, and time them. The warm-up has at least
    `warmup_steps` steps and ends when `is_warmed_up(step)` is true. `samples_per_step` counts
    the samples of this rank in all `accumulate` micro-batches.

    `data_wait_seconds` of a step is the host time spent waiting for its batches. Set
    `read_losses_at_once` only if reading a loss does not wait for the device (on a CPU). Peak
    memory is counted from the start of the window. `announce` writes a `batch` event when a
    step has its batches, which tells a rank that hangs from ranks that wait for it. Raises
    LossNotFiniteError, NotSynchronizedError, and errors of trainer and batches.
    """
    recorder = StepRecorder(device, clock, write_lines, samples_per_step, read_losses_at_once)
    course = Course(recorder, warmup_steps, measured_steps, is_warmed_up)

    while course.window is None:
        waited = 0.0
        loss = None
        asked = clock()
        for micro_batch in range(1, accumulate + 1):
            batch = next(batches)
            waited += clock() - asked
            last = micro_batch == accumulate
            if announce and last:
                write({"event": "batch", "step": course.step + 1})
            share = trainer.backward(batch, sync_gradients=last)
            loss = share if loss is None else loss + share
            if not last:
                asked = clock()
        result = trainer.update()
        course.end_step(waited, loss, result)
    return course.window


def compute_seconds(
    trainer: Trainer,
    batches: Iterator[Any],
    device: Device,
    accumulate: int,
    clock: Clock = time.perf_counter,
) -> float:
    """Return the seconds of a step's batches, forward and backward passes without waiting for
    other ranks: the median of COMPUTE_STEPS steps. Does not change parameters.

    Inside the window, all ranks step together, so step times do not show which rank the others
    wait for. This time, measured after the window, does.
    """
    seconds = []
    for _ in range(COMPUTE_STEPS):
        device.synchronize()
        began = clock()
        for _micro_batch in range(accumulate):
            trainer.backward(next(batches), sync_gradients=False)
        device.synchronize()
        seconds.append(clock() - began)
        trainer.zero_grad()
    return median(seconds)
