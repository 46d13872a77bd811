"""MLPerf's events: `:::MLLOG {"time_ms": …, "key": …}`, v0.6's `:::MLL`, and v0.5's
`:::MLP`."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from perfkit.logs.documents import figure, parsed
from perfkit.logs.formats import Prints, Unit
from perfkit.logs.log import ReportedFigure
from perfkit.logs.windows import prints_of

MLLOG = re.compile(r":::MLLOG (\{.{1,20000}\})")
OLDER = re.compile(
    r":::ML(?:L|P[vV][\d.]{1,9} (?P<benchmark>\w{1,40})) (?P<at>\d{1,12}\.\d{1,9}) "
    r"(?:\([^)]{1,200}\) )?(?P<key>\w{1,80})(?::? (?P<value>.{1,20000}))?"
)
MOST = 2**53
"""Numbers up to here are exact as floats; what is beyond counts nothing."""
IMAGENET = 1_281_167
"""The training samples of MLPerf's resnet, which v0.5 and v0.6 do not log."""


class Event(NamedTuple):
    """An event with its line, and its moment in seconds."""

    line: int
    at: float
    key: str
    value: Any
    metadata: dict[str, Any]


def events(lines: list[tuple[int, str]]) -> list[Event]:
    """Those of the lines that can be read, once each: every process may log the same."""
    found = []
    for number, line in lines:
        if ":::ML" not in line:
            continue
        if match := MLLOG.search(line):
            record = parsed(match[1])
            if isinstance(record, dict) and _is_moment(record.get("time_ms")):
                meta = record.get("metadata")
                meta = meta if isinstance(meta, dict) else {}
                at, key = record["time_ms"] / 1000, str(record.get("key"))
                found.append(Event(number, at, key, record.get("value"), meta))
        elif match := OLDER.search(line):
            value = parsed(match["value"] or "null")
            meta = value.get("metadata") if isinstance(value, dict) else None
            value = value.get("value") if isinstance(meta, dict) else value
            at = float(match["at"])
            if match["benchmark"] and not found:
                name = match["benchmark"]
                found.append(Event(number, at, "submission_benchmark", name, {}))
            key = "global_batch_size" if match["key"] == "input_batch_size" else match["key"]
            found.append(Event(number, at, key, value, meta or {}))
    return found


def _is_moment(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < MOST


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < MOST


def _spans(found: list[Event], name: str) -> Iterator[tuple[Event, Event]]:
    """Pairs of NAME_start and NAME_stop; of several starts in a row the first."""
    begin: Event | None = None
    for event in found:
        if event.key == f"{name}_start":
            begin = begin or event
        elif event.key == f"{name}_stop" and begin:
            yield begin, event
            begin = None


def _contains(spans: list[tuple[Event, Event]], start: Event, stop: Event) -> bool:
    """Whether one of the spans has all of that from `start` to `stop`."""
    return any(begin.at <= start.at and stop.at <= end.at for begin, end in spans)


def _value(found: list[Event], key: str) -> Any:
    return next((event.value for event in found if event.key == key), None)


def _epoch_samples(found: list[Event]) -> int | None:
    samples = _value(found, "train_samples")
    if samples is None and _value(found, "submission_benchmark") == "resnet":
        samples = IMAGENET
    return samples if _is_count(samples) else None


def prints(found: list[Event]) -> Prints:
    """Each epoch as a print of all its steps; none where samples or batch are not told."""
    samples, batch = _epoch_samples(found), _value(found, "global_batch_size")
    if not samples or not _is_count(batch):
        return prints_of(0)
    spans = [*_spans(found, "epoch")]
    seconds = [stop.at - start.at for start, stop in spans]
    return prints_of(
        len(spans),
        line=[stop.line for _start, stop in spans],
        epoch=[*range(1, len(spans) + 1)],
        step=round(samples / batch),
        since=round(samples / batch),
        window_seconds=seconds,
        rate=[samples / second if second > 0 else float("nan") for second in seconds],
        at=[stop.at for _start, stop in spans],
    )


def reported(found: list[Event]) -> Iterator[ReportedFigure]:
    """Time to train, throughput by blocks (with what lies between their epochs) and by epochs,
    and the throughputs and step times that are logged."""
    for start, stop in _spans(found, "run"):
        minutes = (stop.at - start.at) / 60
        yield figure("time to train, minutes", f"{minutes:.6f}", "", stop.line)
    samples = _epoch_samples(found)
    epochs = [*_spans(found, "epoch")]
    for name in ("block", "epoch"):
        spans = [*_spans(found, name)]
        seconds = sum(stop.at - start.at for start, stop in spans)
        within = sum(_contains(spans, *epoch) for epoch in epochs)
        counts: list[Any] = [start.metadata.get("epoch_count") for start, _stop in spans]
        count = within or sum(int(one) for one in counts if _is_count(one))
        if samples and seconds > 0 and count:
            rate = samples * count / seconds
            yield figure(
                f"samples / time of all {name}s", f"{rate:.5f}", "samples/s", spans[-1][1].line
            )
    for event in found:
        if event.key in ("throughput", "tracked_stats", "train_step_time"):
            stats = event.value if isinstance(event.value, dict) else {event.key: event.value}
            for name in ("throughput", "train_step_time"):
                if isinstance(stats.get(name), int | float):
                    unit: Unit = "samples/s" if name == "throughput" else "s"
                    label = " ".join(dict.fromkeys((event.key, name)))
                    yield figure(label, repr(stats[name]), unit, event.line)
