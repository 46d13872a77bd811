"""Pauses among the steps of an answer, and changes of their level."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from perfkit.audit.answer import Answer
from perfkit.audit.figure import unit_for
from perfkit.audit.levels import level_change
from perfkit.audit.recompute import Figures
from perfkit.audit.statements import Note, Pauses, TwoLevels
from perfkit.audit.timed import Timed

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
MOST_PLACES = 3
"""Pauses whose steps are named."""


# Logs may contain numbers of any size.
@np.errstate(all="ignore")
def slow_windows(figures: Figures, answer: Answer | None) -> Iterator[Note]:
    """Yield the pauses and a change of level among the steps of a log's answer."""
    timed = _timed(figures, answer)
    if not answer or not timed:
        return
    is_pause = _pauses(timed)
    if is_pause.any():
        yield _pauses_note(timed, is_pause, answer)
    change = level_change(timed.step_seconds)
    if change:
        rate, unit = _rate(answer)
        seconds = rate * timed.mean_seconds
        levels = TwoLevels(
            step=int(timed.first[change.begin]),
            before=seconds / change.before,
            after=seconds / change.after,
            unit=unit,
        )
        yield Note(levels, int(timed.line[change.begin]))


def _timed(figures: Figures, answer: Answer | None) -> Timed | None:
    """Return the steps of the answer with their times; None if a log has none, or if a print is
    the time of an epoch."""
    if not answer or not answer.period or figures.log.semantics.step == "epoch":
        return None
    period = figures.periods[answer.period]
    by_print = None if answer.basis == "clock" else period.printed or period.by_rates
    return by_print or period.clock


def _excess(timed: Timed, level: float) -> np.ndarray:
    """Return the seconds of each stretch above those at `level` seconds per step."""
    return timed.seconds - level * timed.steps


def _slow(timed: Timed, times: float, level: float) -> np.ndarray:
    """Mark stretches over so many times the `level`, and not by rounding alone."""
    is_above_rounding = _excess(timed, level) > 2 * timed.rounding
    return (timed.step_seconds > times * level) & is_above_rounding


def _place(timed: Timed, index: int) -> str:
    first, last = timed.first[index], timed.last[index]
    return str(last) if first == last else f"{first}–{last}"


def _pauses(timed: Timed) -> np.ndarray:
    """Mark the pauses; none if they take little time."""
    count = len(timed.seconds)
    level = float(np.median(timed.step_seconds))
    is_pause = _slow(timed, SLOW, level)
    most = min(MOST_SLOW * count, max(FEW, timed.steps.sum() / FEWEST_STEPS))
    is_rare = is_pause.sum() <= most
    excess = _excess(timed, level)[is_pause].sum()
    is_long = excess > LEAST_EXCESS * timed.seconds.sum()
    return is_pause & (count >= LEAST_WINDOWS and is_rare and is_long)


def _pauses_note(timed: Timed, is_pause: np.ndarray, answer: Answer) -> Note:
    """Return the finding about pauses, at the line of the first."""
    level = float(np.median(timed.step_seconds))
    excess = _excess(timed, level)[is_pause].sum()
    indices = np.flatnonzero(is_pause)
    if timed.is_coarse:
        # The clock ticks long before the end of a pause: a part of its seconds is that of the
        # stretch before.
        is_pause = is_pause | np.append(is_pause[1:], False)
    finding = Pauses(
        count=len(indices),
        places=[_place(timed, index) for index in indices[:MOST_PLACES]],
        share=float(excess / timed.seconds.sum()),
        **_answer_without(timed, is_pause, answer),
    )
    return Note(finding, int(timed.line[indices[0]]))


def _answer_without(timed: Timed, is_left_out: np.ndarray, answer: Answer) -> dict[str, Any]:
    """Return the steps of an answer, and the answer without some windows with its unit, as
    fields of a finding."""
    kept = ~is_left_out
    rate, unit = _rate(answer)
    without = rate * timed.mean_seconds * timed.steps[kept].sum() / timed.seconds[kept].sum()
    return {"without": without, "unit": unit, "first": answer.first, "last": answer.last}


def _rate(answer: Answer) -> tuple[float, str]:
    """Return the throughput of an answer and its unit; the rate of its steps if the answer is
    not that of its steps."""
    speed = answer.speed if answer.is_of_steps else None
    if not speed:
        return answer.steps_per_second or 0.0, "steps/s"
    unit = unit_for(answer.speed_unit, of_all=bool(speed.of_all))
    return speed.of_all or speed.per_device or 0.0, unit
