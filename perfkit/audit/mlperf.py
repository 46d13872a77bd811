"""MLPerf's events: `:::MLLOG {"time_ms": …, "key": …}`, those of v0.6 (`:::MLL`) and of v0.5
(`:::MLP`)."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from perfkit.audit.documents import Lines, figure, parsed
from perfkit.audit.log import ReportedFigure

MLLOG = re.compile(r":::MLLOG (\{.{1,20000}\})")
OLDER = re.compile(
    r":::ML(?:L|P[vV][\d.]{1,9} (?P<benchmark>\w{1,40})) (?P<at>\d{1,12}\.\d{1,9}) "
    r"(?:\([^)]{1,200}\) )?(?P<key>\w{1,80})(?::? (?P<value>.{1,20000}))?"
)
KEYS = {"input_batch_size": "global_batch_size"}
"""Keys of v0.5 and their current names."""
STATISTICS = ("throughput", "tracked_stats", "train_step_time")
"""Keys of logged figures."""
MOST = 2**53
"""Numbers up to here are exact as floats; larger ones are ignored."""
IMAGENET = 1_281_167
"""Training samples of MLPerf's resnet, which v0.5 and v0.6 do not log."""


class Event(NamedTuple):
    """One logged event, `at` seconds of the log's clock."""

    line: int
    at: float
    key: str
    value: Any
    metadata: Any


class Span(NamedTuple):
    """A NAME_start event and its NAME_stop."""

    start: Event
    stop: Event

    @property
    def seconds(self) -> float:
        return self.stop.at - self.start.at


def events_in(lines: Lines) -> list[Event]:
    """Return the events of all lines that can be parsed."""
    events: list[Event] = []
    for number, line in lines:
        if ":::ML" not in line:
            continue
        current = MLLOG.search(line)
        older = None if current else OLDER.search(line)
        if current:
            events += _current_event(current, number)
        elif older:
            if older["benchmark"] and not events:
                at, name = float(older["at"]), older["benchmark"]
                events.append(Event(number, at, "submission_benchmark", name, None))
            events.append(_older_event(older, number))
    return events


def _current_event(match: re.Match[str], line: int) -> Iterator[Event]:
    record = parsed(match[1])
    milliseconds = record.get("time_ms") if isinstance(record, dict) else None
    if isinstance(milliseconds, int | float) and abs(milliseconds) < MOST:
        yield Event(
            line=line,
            at=milliseconds / 1000,
            key=str(record.get("key")),
            value=record.get("value"),
            metadata=record.get("metadata"),
        )


def _older_event(match: re.Match[str], line: int) -> Event:
    value, metadata = parsed(match["value"] or "null"), None
    if isinstance(value, dict):
        metadata = value.get("metadata")
    if metadata is not None:
        value = value.get("value")
    key = KEYS.get(match["key"], match["key"])
    return Event(line, float(match["at"]), key, value, metadata)


def _spans(events: Sequence[Event], name: str) -> list[Span]:
    """Return each NAME_start with its NAME_stop. Of consecutive equal events, as each process
    may log them, the first counts."""
    edges = [event for event in events if event.key in (f"{name}_start", f"{name}_stop")]
    distinct = [next(equal) for _key, equal in groupby(edges, lambda event: event.key)]
    if distinct and distinct[0].key.endswith("stop"):
        del distinct[0]
    return [Span(*pair) for pair in zip(distinct[::2], distinct[1::2], strict=False)]


def _count(value: Any) -> int:
    """Return a positive count; 0 if the value is not one."""
    return value if type(value) is int and 0 < value < MOST else 0


class Sizes(NamedTuple):
    """The samples of an epoch and of a step; 0 if unknown."""

    samples: int
    batch_size: int

    @classmethod
    def of(cls, events: Sequence[Event]) -> "Sizes":
        # The first event of a key counts.
        values = {event.key: event.value for event in reversed(events)}
        samples = values.get("train_samples")
        if not samples and values.get("submission_benchmark") == "resnet":
            samples = IMAGENET
        return cls(_count(samples), _count(values.get("global_batch_size")))


def prints(events: Sequence[Event]) -> dict[str, list[Any]]:
    """Return each epoch as one print of all its steps; none if samples or batch are unknown."""
    sizes = Sizes.of(events)
    columns = ("line", "epoch", "begin", "step", "window_seconds", "rate", "clock")
    rows: dict[str, list[Any]] = {name: [] for name in columns}
    if not sizes.samples or not sizes.batch_size:
        return rows
    for epoch, span in enumerate(_spans(events, "epoch"), 1):
        rows["line"].append(span.stop.line)
        rows["epoch"].append(epoch)
        rows["begin"].append(0)
        rows["step"].append(round(sizes.samples / sizes.batch_size))
        rows["window_seconds"].append(span.seconds)
        rows["rate"].append(sizes.samples / span.seconds if span.seconds > 0 else None)
        rows["clock"].append(span.stop.at)
    return rows


def reported(events: Sequence[Event]) -> Iterator[ReportedFigure]:
    """Yield the time to train, the throughput by blocks (including time between their epochs)
    and by epochs, and the logged throughputs and step times."""
    for span in _spans(events, "run"):
        yield figure("time to train, minutes", f"{span.seconds / 60:.6f}", span.stop.line)
    samples = Sizes.of(events).samples
    for name in ("block", "epoch"):
        spans = _spans(events, name)
        seconds = sum(span.seconds for span in spans)
        if seconds <= 0:
            continue
        rate = samples * _epochs_in(spans, events) / seconds
        if rate:
            line = spans[-1].stop.line
            yield figure(f"samples / time of all {name}s", f"{rate:.5f}", line)
    for event in events:
        if event.key in STATISTICS:
            yield from _statistics(event)


def _epochs_in(spans: list[Span], events: Sequence[Event]) -> int:
    """Return the number of epochs that lie within these spans or, if none does, the number that
    their starts announce."""
    starts = [span.start.at for span in spans]
    within = 0
    for epoch in _spans(events, "epoch"):
        started = bisect_right(starts, epoch.start.at)
        within += started > 0 and epoch.stop.at <= spans[started - 1].stop.at
    if within:
        return within
    announced = 0
    for span in spans:
        if isinstance(span.start.metadata, dict):
            announced += _count(span.start.metadata.get("epoch_count"))
    return announced


def _statistics(event: Event) -> Iterator[ReportedFigure]:
    values = event.value if isinstance(event.value, dict) else {event.key: event.value}
    for name in ("throughput", "train_step_time"):
        if isinstance(values.get(name), int | float):
            label = name if name == event.key else f"{event.key} {name}"
            yield figure(label, repr(values[name]), event.line)
