"""Slow windows among the steps of an answer: pauses, and the first steps of a short log."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from perfkit.audit.answer import Answer
from perfkit.audit.figure import MOST_RATE, unit_for
from perfkit.audit.recompute import PRINTED_TIMES, Figures, PeriodFigures, half_unit
from perfkit.audit.statements import FirstStepsIncluded, Note, Pauses
from perfkit.audit.step_times import between_ticks

SLOW = 1.5
"""A pause takes more than this many times the median: steps of one workload, with their waits
and sequences of different lengths, rarely do, and a checkpoint or an evaluation takes several
steps' time."""
LEAST_EXCESS = 0.02
"""Share of the time that pauses take above the median before they are reported."""
LEAST_WINDOWS = 8
"""Windows that a median needs so that a slow one counts as a pause."""
MOST_SLOW = 0.2
FEWEST_STEPS, FEW = 50, 5
"""If a larger share of the windows is slow, or more than FEW come more often than every
FEWEST_STEPS steps, they are a part of the regular work, such as every fourth batch with its
optimizer step, or every tenth that waits for the device, and the median is no measure for
them."""
SLOW_FIRST = 1.3
"""First steps take more than this many times the median of the others."""
FAST_FIRST = 0.5
"""Steps right behind slow first ones that take less than this many times the median count among
them: where steps are dispatched asynchronously, the first times are not those of their
steps."""
LEAST_OTHERS = 3
"""Windows behind the first ones, at least."""
MOST_PLACES = 3
"""Pauses whose steps are named."""


class TimedWindows(NamedTuple):
    """The windows whose steps / time is the answer, in arrays: the line, the first and the last
    step and the seconds of each (up to a common factor if only rates are printed), and what
    rounding may add to or take from these seconds."""

    line: np.ndarray
    first: np.ndarray
    last: np.ndarray
    seconds: np.ndarray
    rounding: np.ndarray

    @property
    def steps(self) -> np.ndarray:
        return self.last - self.first + 1

    @property
    def step_seconds(self) -> np.ndarray:
        return self.seconds / self.steps

    def excess(self, level: float) -> np.ndarray:
        """Return the seconds of each window above those at `level` seconds per step."""
        return self.seconds - level * self.steps

    def slow(self, times: float, level: float) -> np.ndarray:
        """Mark windows over so many times the `level`, and not by rounding alone."""
        is_above_rounding = self.excess(level) > 2 * self.rounding
        return (self.step_seconds > times * level) & is_above_rounding

    def gain_without(self, is_left_out: np.ndarray) -> float:
        """Return the throughput without some windows / the throughput with them."""
        kept = ~is_left_out
        seconds_of_all = self.seconds.sum() / self.steps.sum()
        return float(seconds_of_all * self.steps[kept].sum() / self.seconds[kept].sum())

    def times_the_others(self, is_first: np.ndarray) -> float:
        """Return the time of a step in the first windows / the median of the others."""
        seconds_of_first = self.seconds[is_first].sum() / self.steps[is_first].sum()
        return float(seconds_of_first / np.median(self.step_seconds[~is_first]))

    def place(self, index: int) -> str:
        first, last = self.first[index], self.last[index]
        return str(last) if first == last else f"{first}–{last}"


# Logs may contain numbers of any size.
@np.errstate(all="ignore")
def slow_windows(figures: Figures, answer: Answer | None) -> Iterator[Note]:
    """Yield the pauses and the slow first steps among the steps of a log's answer."""
    windows = _windows_of(figures, answer)
    if not answer or not windows:
        return
    is_first = np.full(len(windows.seconds), False)
    if answer.period == "all":
        is_first = _first_steps(windows)
    is_pause = _pauses(windows, is_first)
    if is_pause.any():
        yield _pauses_note(windows, is_pause, answer)
    if is_first.any():
        finding = FirstStepsIncluded(
            warm=int(windows.last[is_first][-1]),
            times=windows.times_the_others(is_first),
            **_answer_without(windows, is_first, answer),
        )
        yield Note(finding)


def _windows_of(figures: Figures, answer: Answer | None) -> TimedWindows | None:
    """Return the windows of the answer; None if a log has none, or if a print is the time of an
    epoch."""
    if not answer or figures.log.semantics.step == "epoch":
        return None
    for period in figures.periods:
        if period.period == answer.period:
            by_print = None if answer.basis == "clock" else _plausible(_printed(period))
            return by_print or _plausible(_clocked(period))
    return None


def _clocked(period: PeriodFigures) -> TimedWindows:
    """Return the stretches of steps between two clock readings that differ."""
    rows = period.clocked_rows()
    first, last, seconds, _windows = between_ticks(
        rows["since"], rows["last"], rows["clock_seconds"]
    )
    rounding = np.full(len(seconds), 2 * half_unit(rows["at"]))
    line = rows["line"][rows["clock_seconds"] > 0]
    return TimedWindows(line, first, last, seconds, rounding)


def _printed(period: PeriodFigures) -> TimedWindows:
    """Return the windows with their printed times or, without any, steps / rate. Rounding
    affects differences of running means by all steps before."""
    rows = period.rows
    seconds = period.printed_seconds()
    rounding = np.zeros(len(seconds))
    if np.isnan(seconds).all():
        seconds = rows["steps"] / rows["own_rate"]
    elif np.isfinite(rows["printed_seconds"]).any():
        is_difference = period.semantics.covers in ("running", "rolling")
        rounded_steps = 2 * rows["last"] if is_difference else rows["steps"]
        rounding = half_unit(rows["printed_seconds"], PRINTED_TIMES) * rounded_steps
    return TimedWindows(rows["line"], rows["first"], rows["last"], seconds, rounding)


def _plausible(windows: TimedWindows) -> TimedWindows | None:
    seconds = windows.seconds
    is_timed = np.isfinite(seconds) & (seconds > 1 / MOST_RATE)
    return TimedWindows(*(values[is_timed] for values in windows)) if is_timed.any() else None


def _pauses(windows: TimedWindows, is_first: np.ndarray) -> np.ndarray:
    """Mark the pauses behind the first steps; none if they take little time."""
    count = len(windows.seconds)
    level = float(np.median(windows.step_seconds))
    is_pause = windows.slow(SLOW, level) & ~is_first
    most = min(MOST_SLOW * count, max(FEW, windows.steps.sum() / FEWEST_STEPS))
    is_rare = is_pause.sum() <= most
    excess = windows.excess(level)[is_pause].sum()
    is_long = excess > LEAST_EXCESS * windows.seconds.sum()
    return is_pause & (count >= LEAST_WINDOWS and is_rare and is_long)


def _pauses_note(windows: TimedWindows, is_pause: np.ndarray, answer: Answer) -> Note:
    """Return the finding about pauses, at the line of the first."""
    level = float(np.median(windows.step_seconds))
    excess = windows.excess(level)[is_pause].sum()
    indices = np.flatnonzero(is_pause)
    finding = Pauses(
        count=len(indices),
        places=[windows.place(index) for index in indices[:MOST_PLACES]],
        share=float(excess / windows.seconds.sum()),
        **_answer_without(windows, is_pause, answer),
    )
    return Note(finding, int(windows.line[indices[0]]))


def _first_steps(windows: TimedWindows) -> np.ndarray:
    """Mark the slow windows at the beginning, with those right behind them that are too fast;
    none if too few windows follow, or if all the marked ones together are not slow."""
    none = np.full(len(windows.seconds), False)
    others = windows.step_seconds[1:]
    if len(others) < LEAST_OTHERS:
        return none
    level = float(np.median(others))
    is_slow = windows.slow(SLOW_FIRST, level)
    is_fast = windows.step_seconds < FAST_FIRST * level
    is_first = np.logical_and.accumulate(is_slow | is_fast)
    if not is_slow[0] or (~is_first).sum() < max(LEAST_OTHERS, is_first.sum()):
        return none
    return is_first if windows.times_the_others(is_first) > SLOW_FIRST else none


def _answer_without(
    windows: TimedWindows, is_left_out: np.ndarray, answer: Answer
) -> dict[str, Any]:
    """Return the steps of an answer, and the answer without some windows with its unit, as
    fields of a finding; the rate of its steps if the answer is not that of its steps."""
    rate, unit = answer.steps_per_second or 0.0, "steps/s"
    speed = answer.speed if answer.is_of_steps else None
    if speed:
        rate = speed.of_all or speed.per_device or 0.0
        unit = unit_for(answer.speed_unit, of_all=bool(speed.of_all))
    without = rate * windows.gain_without(is_left_out)
    return {"without": without, "unit": unit, "first": answer.first, "last": answer.last}
