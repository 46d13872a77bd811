"""Slow windows among the steps of an answer: pauses, and the first steps of a short log."""

from typing import Any, NamedTuple

import numpy as np

from perfkit.audit.answer import Answer
from perfkit.audit.figure import unit_for
from perfkit.audit.levels import LevelChange, level_change
from perfkit.audit.recompute import Figures
from perfkit.audit.statements import FirstStepsIncluded, Note, Pauses, TwoLevels

SLOW = 1.5
"""A pause takes more than this many times the median: steps of one workload, with their waits
and sequences of different lengths, rarely do, and a checkpoint or an evaluation takes several
steps' time."""
LEAST_EXCESS = 0.02
"""Share of the time that pauses take above the median before they are reported."""
LEAST_WINDOWS = 8
"""Windows that a median needs so that a slow one counts as a pause."""
MOST_SLOW = 0.2
"""If more of the windows are slow, they are a part of the regular work, such as every fourth
batch with its optimizer step, and the median is no measure for them."""
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
    """The windows whose steps / time is the answer, as of Timed; their seconds may have
    a common factor if only rates are printed."""

    line: np.ndarray
    first: np.ndarray
    last: np.ndarray
    seconds: np.ndarray
    rounding: np.ndarray
    is_coarse: bool = False

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

    def with_cut_short(self, is_slow: np.ndarray) -> np.ndarray:
        """Mark slow windows and those whose seconds are known only together with theirs. A
        coarse clock ticks right before the step that shows it, but long before a pause's: a
        part of the pause's seconds is that of the window before."""
        if not self.is_coarse:
            return is_slow
        is_before_slow = np.append(is_slow[1:], False)
        return is_slow | is_before_slow

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


class SlowWindows(NamedTuple):
    """The findings about slow windows among the steps of an answer, and the lines of these."""

    notes: list[Note]
    lines: set[int]

    @property
    def have_pauses(self) -> bool:
        return any(isinstance(note.finding, Pauses) for note in self.notes)


@np.errstate(all="ignore")
def slow_windows(figures: Figures, answer: Answer | None) -> SlowWindows:
    """Return the pauses and the slow first steps among the steps of a log's answer."""
    windows = _windows_of(figures, answer)
    if not answer or not windows:
        return SlowWindows([], set())
    notes = []
    is_first = np.full(len(windows.seconds), False)
    if answer.period == "all":
        is_first = _first_steps(windows)
    is_pause = _pauses(windows, is_first)
    if is_pause.any():
        notes.append(_pauses_note(windows, is_pause, answer))
    if is_first.any():
        notes.append(Note(_first_steps_included(windows, is_first, answer)))
    change = None if is_first.any() else level_change(windows.step_seconds)
    if change:
        notes.append(_level_note(windows, change, answer))
    lines = windows.line[is_first | is_pause]
    return SlowWindows(notes, {*lines.tolist()})


def _windows_of(figures: Figures, answer: Answer | None) -> TimedWindows | None:
    """Return the windows of the answer; None if a log has none, or if a print is the time of an
    epoch."""
    if not answer or not answer.period or figures.log.semantics.step == "epoch":
        return None
    period = figures.periods[answer.period]
    timed = period.clock if answer.basis == "clock" else period.printed or period.by_rates
    if not timed and answer.basis == "reported":
        timed = period.clock
    if not timed:
        return None
    return TimedWindows(
        timed.line, timed.first, timed.last, timed.seconds, timed.rounding, timed.is_coarse
    )


def _pauses(windows: TimedWindows, is_first: np.ndarray) -> np.ndarray:
    """Mark the pauses behind the first steps; none if they take little time."""
    count = len(windows.seconds)
    level = float(np.median(windows.step_seconds))
    is_pause = windows.slow(SLOW, level) & ~is_first
    is_rare = is_pause.sum() <= MOST_SLOW * count
    excess = windows.excess(level)[is_pause].sum()
    is_long = excess > LEAST_EXCESS * windows.seconds.sum()
    return is_pause & (count >= LEAST_WINDOWS and is_rare and is_long)


def _pauses_note(windows: TimedWindows, is_pause: np.ndarray, answer: Answer) -> Note:
    """Return the finding about pauses, at the line of the first."""
    level = float(np.median(windows.step_seconds))
    is_left_out = windows.with_cut_short(is_pause)
    excess = windows.excess(level)[is_left_out].sum()
    indices = np.flatnonzero(is_pause)
    finding = Pauses(
        count=len(indices),
        places=[windows.place(index) for index in indices[:MOST_PLACES]],
        share=float(excess / windows.seconds.sum()),
        **_answer_without(windows, is_left_out, answer),
    )
    return Note(finding, int(windows.line[indices[0]]))


def _level_note(windows: TimedWindows, change: LevelChange, answer: Answer) -> Note:
    """Return the finding that the level changes, with the answer at both levels."""
    rate, unit = _answer_rate(answer)
    seconds = windows.seconds.sum() / windows.steps.sum()
    finding = TwoLevels(
        step=int(windows.first[change.begin]),
        before=rate * seconds / change.before,
        after=rate * seconds / change.after,
        unit=unit,
    )
    return Note(finding, int(windows.line[change.begin]))


def _first_steps(windows: TimedWindows) -> np.ndarray:
    """Mark the slow windows at the beginning, with those right behind them that are too fast;
    none if too few windows follow, or if all the marked ones together are not slow."""
    none = np.full(len(windows.seconds), False)
    others = windows.step_seconds[1:]
    if len(others) < LEAST_OTHERS:
        return none
    level = float(np.median(others))
    is_slow = windows.slow(SLOW_FIRST, level)
    if not is_slow[0]:
        return none
    is_fast = windows.step_seconds < FAST_FIRST * level
    is_first = np.logical_and.accumulate(is_slow | is_fast)
    if (~is_first).sum() < max(LEAST_OTHERS, is_first.sum()):
        return none
    return is_first if windows.times_the_others(is_first) > SLOW_FIRST else none


def _first_steps_included(
    windows: TimedWindows, is_first: np.ndarray, answer: Answer
) -> FirstStepsIncluded:
    return FirstStepsIncluded(
        steps=int(windows.steps[is_first].sum()),
        times=windows.times_the_others(is_first),
        **_answer_without(windows, is_first, answer),
    )


def _answer_without(
    windows: TimedWindows, is_left_out: np.ndarray, answer: Answer
) -> dict[str, Any]:
    """Return the answer without some windows, and its unit, as fields of a finding."""
    rate, unit = _answer_rate(answer)
    without = {"without": rate * windows.gain_without(is_left_out), "unit": unit}
    if not answer.is_of_steps:
        without["timed"] = f"{answer.first}–{answer.last}"
    return without


def _answer_rate(answer: Answer) -> tuple[float, str]:
    """Return the throughput of an answer and its unit; the rate of its steps if the answer
    is not that of its steps."""
    speed = answer.speed
    if answer.is_of_steps and speed and speed.of_all:
        return speed.of_all, answer.speed_unit
    if answer.is_of_steps and speed and speed.per_device:
        return speed.per_device, unit_for(answer.speed_unit, of_all=False)
    return answer.steps_per_second or 0.0, "steps/s"
