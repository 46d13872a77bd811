"""A format for lines that no known suite writes, but that name a step, and its time or rate:
`step: 10, loss: 2.5, dt: 93 ms`, `iter=10 time=0.5`, `{'global_step': 10, 'elapsed': '3s'}`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from perfkit.audit import numbers
from perfkit.audit.figure import NAMED_VALUES
from perfkit.audit.formats import GENERAL, STAMP, LogFormat, Semantics, expression, line_pattern

LINES_SEARCHED = 20_000
PRINTS_SEARCHED = 200
LONGEST_LINE = 4000
"""Characters of a line that are searched."""
STEP, LOSS = "step", "loss"
SPEEDS = ("seconds", "milliseconds", "rate", "steps_per_second", "window_seconds", "clock")
"""Columns that tell the speed of a step, the most exact first."""
GROWTH = 0.9
"""Share of the times of successive prints that grow if they are the time since the start."""
UNITS = {"tok": "tokens/s", "im": "images/s", "word": "words/s", "seq": "sequences/s"}
UNITS |= {"sent": "sequences/s", "frame": "frames/s", "item": "items/s"}
"""Beginning of a unit's name -> unit of a rate."""
PATTERNS = {
    column: [expression(pattern) for pattern in patterns]
    for column, patterns in GENERAL["fields"].items()
}
OF_STEP = re.compile("(?i)step|it|batch|update")
"""Words of a field that is the time of a step, whatever its values."""
EVALUATION = re.compile(GENERAL["evaluation"])
Lines = Sequence[tuple[int, str]]
Found = dict[str, tuple[str, str]]
"""Column -> pattern of the field that a line has, and its value."""


def format_of(lines: Lines, *, are_timed: bool = False) -> LogFormat | None:
    """Return a format whose prints have the names that these lines have. `are_timed`: the times
    of the lines are known, as if each had a time stamp."""
    prints = [*_prints(lines, are_timed)]
    steps = [found[STEP][1] for found in prints]
    if not prints or (len(prints) > 1 and len({*steps}) == 1):
        return None
    fields = _usual_fields(prints)
    if fields.pop("at", None) is not None:
        # A time stamp is finer than the whole seconds since the start.
        fields.pop("clock", None)
    for column in sorted({"seconds", "clock"} & fields.keys()):
        _tell_clock_from_time(column, fields, prints)
    if _counts_on(steps):
        # They are steps of all epochs.
        fields.pop("epoch", None)
    speed = next((speed for speed in SPEEDS if speed in fields), LOSS)
    rate = fields.get("rate", "")
    is_of_device = not rate or re.search(GENERAL["of_device"], rate)
    return LogFormat(
        name=NAMED_VALUES,
        semantics=Semantics(
            rate_of="device" if is_of_device else "all",
            counts_from=None,
            reader="in" if "reader" in fields else None,
            source=_source(fields),
        ),
        key="",
        line=line_pattern("^", fields, [STEP, speed], first=True),
        unit=_unit_of(rate),
    )


def what_was_seen(lines: Lines) -> str:
    """Return what lines without a known format have of a training, as the reason why they are
    not read."""
    seen: Counter[tuple[bool, bool, bool]] = Counter()
    for _number, line in lines[:LINES_SEARCHED]:
        found = _found(line)
        has_time = any(speed in found for speed in SPEEDS)
        seen[STEP in found, LOSS in found, has_time] += 1
    for (has_step, has_loss, has_time), count in seen.most_common():
        if has_step and has_loss and not has_time:
            return f"a step and a loss in {count} lines, but no time"
        if has_time and not has_step:
            return f"times of {count} steps, but no step number"
    return "no known format, or cut off"


def _prints(lines: Lines, are_timed: bool) -> Iterator[Found]:
    """Yield what the first lines with a step and a speed have; a loss and a time do."""
    count = 0
    for _number, line in lines[:LINES_SEARCHED]:
        found = _found(line)
        stamp = STAMP.search(line)
        if stamp:
            found["at"] = "", stamp["at"]
        has_time = (stamp or are_timed) and LOSS in found
        if STEP in found and (has_time or any(speed in found for speed in SPEEDS)):
            yield found
            count += 1
        if count == PRINTS_SEARCHED:
            return


def _found(line: str) -> Found:
    """Return the fields of a line; without a step, none but its loss and its times."""
    line = line[:LONGEST_LINE]
    found: Found = {}
    if EVALUATION.search(line):
        return found
    for column, patterns in PATTERNS.items():
        for pattern in patterns:
            match = pattern.search(line)
            if match:
                value = match[column]
                before = line[match.start() : match.start(column)]
                behind = line[match.end(column) : match.end()]
                field = rf"{_literal(before)}<{column}>{re.escape(behind)}"
                found[column] = field, value
                break
    return found


def _literal(text: str) -> str:
    """Return the pattern of a text, which blanks may align: `step: {0,9}` for "step:   "."""
    pattern = re.sub(r"(?:\\ |\\\t)+", " {0,9}", re.escape(text))
    return rf"(?<![\w/.]){pattern}" if not text or text[0].isalpha() else pattern


def _usual_fields(prints: Sequence[Found]) -> dict[str, str]:
    """Return the most frequent field of each column that most prints have."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for found in prints:
        for column, (field, _value) in found.items():
            counts[column][field] += 1
    usual = {}
    for column, counted in counts.items():
        (field, count), *_others = counted.most_common(1)
        if 2 * count >= len(prints):
            usual[column] = field
    return usual


def _tell_clock_from_time(column: str, fields: dict[str, str], prints: Sequence[Found]) -> None:
    """Rename a time that grows from print to print to `clock`, and a clock that does not to the
    time since the last print."""
    times = [numbers.seconds_or_nan(found[column][1]) for found in prints if column in found]
    growing = sum(before < after for before, after in pairwise(times))
    grows = len(times) > 2 and growing >= GROWTH * (len(times) - 1)
    field = fields.pop(column)
    if column == "seconds":
        # The time of a step may grow, too, but not with the steps.
        grows = grows and not OF_STEP.search(field) and times[-1] > 2 * times[0]
    renamed = "clock" if grows else {"clock": "window_seconds"}.get(column, column)
    fields[renamed] = field.replace(f"<{column}>", f"<{renamed}>")


def _counts_on(steps: Sequence[str]) -> bool:
    numbers_of_steps = [*map(numbers.number_or_nan, steps)]
    return numbers_of_steps == sorted(numbers_of_steps)


def _unit_of(field: str) -> str:
    for beginning, unit in UNITS.items():
        if re.search(rf"(?i)(?<![a-z]){beginning}", field):
            return unit
    return "samples/s"


def _source(fields: Mapping[str, str]) -> str:
    """Return what the fields are taken to mean."""
    names = []
    for column, field in fields.items():
        text = re.sub(r"\(\?<!\[.*?\]\)|\\| \{0,9\}|<\w+>|['\"]", "", field)
        names.append(f"{text.strip(' :=')} = {column}")
    return f"the names in the lines: {', '.join(names)}; of the steps since the last print"
