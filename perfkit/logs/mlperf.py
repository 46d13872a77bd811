"""MLPerf's events: `:::MLLOG {"time_ms": …, "key": …}`, v0.6's `:::MLL`, and v0.5's
`:::MLP`."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from perfkit.logs.documents import figure, parsed
from perfkit.logs.log import ReportedFigure

MLLOG = re.compile(r":::MLLOG (\{.{1,20000}\})")
OLDER = re.compile(
    r":::ML(?:L|P[vV][\d.]{1,9} (?P<benchmark>\w{1,40})) (?P<at>\d{1,12}\.\d{1,9}) "
    r"(?:\([^)]{1,200}\) )?(?P<key>\w{1,80})(?::? (?P<value>.{1,20000}))?"
)
KEYS = {"input_batch_size": "global_batch_size"}
"""v0.5's names, and what they are called since."""
MOST = 2**53
"""Numbers up to here are exact as floats; what is beyond counts nothing."""
IMAGENET = 1_281_167
"""The training samples of MLPerf's resnet, which v0.5 and v0.6 do not log."""


class Event(NamedTuple):
    """What one line logs, `at` seconds of its clock."""

    line: int
    at: float
    key: str
    value: Any
    metadata: Any


Span = tuple[Event, Event]
"""A NAME_start, and its NAME_stop."""


def events(lines: Sequence[tuple[int, str]]) -> list[Event]:
    """Those of the lines that can be read."""
    found: list[Event] = []
    for number, line in lines:
        if ":::ML" not in line:
            continue
        if match := MLLOG.search(line):
            record = parsed(match[1])
            at = record.get("time_ms") if isinstance(record, dict) else None
            if isinstance(at, int | float) and abs(at) < MOST:
                key, value = str(record.get("key")), record.get("value")
                found.append(Event(number, at / 1000, key, value, record.get("metadata")))
        elif match := OLDER.search(line):
            at, key, value = float(match["at"]), match["key"], parsed(match["value"] or "null")
            metadata = value.get("metadata") if isinstance(value, dict) else None
            value = value if metadata is None else value.get("value")
            if match["benchmark"] and not found:
                name = match["benchmark"]
                found.append(Event(number, at, "submission_benchmark", name, None))
            found.append(Event(number, at, KEYS.get(key, key), value, metadata))
    return found


def _spans(found: Sequence[Event], name: str) -> list[Span]:
    """From each NAME_start to its NAME_stop. Of several in a row, as every process may log the
    same, the first counts."""
    edges = [one for one in found if one.key in (f"{name}_start", f"{name}_stop")]
    turns = [next(some) for _key, some in groupby(edges, lambda one: one.key)]
    first = 1 if turns and turns[0].key.endswith("stop") else 0
    return [*zip(turns[first::2], turns[first + 1 :: 2], strict=False)]


def _count(value: Any) -> int:
    """0 if it is none."""
    return value if type(value) is int and 0 < value < MOST else 0


def _sizes(found: Sequence[Event]) -> tuple[int, int]:
    """The samples of an epoch and of a step, 0 if unknown."""
    first = {one.key: one.value for one in reversed(found)}
    usual = IMAGENET if first.get("submission_benchmark") == "resnet" else 0
    samples = first.get("train_samples") or usual
    return _count(samples), _count(first.get("global_batch_size"))


def prints(found: Sequence[Event]) -> dict[str, list[Any]]:
    """Each epoch as a print of all its steps; none where samples or batch are unknown."""
    samples, batch = _sizes(found)
    spans = _spans(found, "epoch") if samples and batch else []
    seconds = [end.at - begin.at for begin, end in spans]
    return {
        "line": [end.line for _begin, end in spans],
        "epoch": [*range(1, len(spans) + 1)],
        "begin": [0] * len(spans),
        "step": [round(samples / batch) for _span in spans],
        "window_seconds": seconds,
        "rate": [samples / one if one > 0 else None for one in seconds],
        "clock": [end.at for _begin, end in spans],
    }


def reported(found: Sequence[Event]) -> Iterator[ReportedFigure]:
    """Time to train, throughput by blocks (with what lies between their epochs) and by epochs,
    and the throughputs and step times that are logged."""
    for begin, end in _spans(found, "run"):
        yield figure("time to train, minutes", f"{(end.at - begin.at) / 60:.6f}", end.line)
    (samples, _batch), epochs = _sizes(found), _spans(found, "epoch")
    for name in ("block", "epoch"):
        spans = _spans(found, name)
        begins = [begin.at for begin, _end in spans]
        of_epochs = ((bisect_right(begins, begin.at), end.at) for begin, end in epochs)
        within = sum(k > 0 and at <= spans[k - 1][1].at for k, at in of_epochs)
        stated = (begin.metadata for begin, _end in spans if isinstance(begin.metadata, dict))
        count = within or sum(_count(one.get("epoch_count")) for one in stated)
        seconds = sum(end.at - begin.at for begin, end in spans)
        if seconds > 0 and (rate := samples * count / seconds):
            label, line = f"samples / time of all {name}s", spans[-1][1].line
            yield figure(label, f"{rate:.5f}", line, unit="samples/s")
    for event in found:
        if event.key in ("throughput", "tracked_stats", "train_step_time"):
            stats = event.value if isinstance(event.value, dict) else {event.key: event.value}
            for name in ("throughput", "train_step_time"):
                if isinstance(stats.get(name), int | float):
                    label = " ".join(dict.fromkeys((event.key, name)))
                    yield figure(label, repr(stats[name]), event.line)
