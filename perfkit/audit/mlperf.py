"""MLPerf's events: `:::MLLOG {"time_ms": …, "key": …}`, those of v0.6 (`:::MLL`) and of v0.5
(`:::MLP`)."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from perfkit.audit.log import ReportedFigure
from perfkit.audit.mlperf_samples import (
    BRIEFEST,
    MOST,
    Evaluations,
    Event,
    SampleCounts,
    Span,
    first_values,
    spans_of,
    stretches,
)
from perfkit.audit.records import parsed
from perfkit.audit.reported import Lines, figure
from perfkit.audit.statements import EvaluationIncluded, EvaluationLeftOut, Note, UnknownSamples

MLLOG = re.compile(r":::MLLOG (\{.{1,20000}\})")
OLDER = re.compile(
    r":::ML(?:L|P[vV][\d.]{1,9} (?P<benchmark>\w{1,40})) (?P<at>\d{1,12}\.\d{1,9}) "
    r"(?:\([^)]{1,200}\) )?(?P<key>\w{1,80})(?::? (?P<value>.{1,20000}))?"
)
KEYS = {"input_batch_size": "global_batch_size"}
"""Keys of v0.5 and their current names."""
STATISTICS = ("throughput", "tracked_stats", "train_step_time")
"""Keys of logged figures."""


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


def _count(value: Any) -> int:
    """Return a positive count; 0 if the value is not one."""
    return value if type(value) is int and 0 < value < MOST else 0


def prints(events: Sequence[Event]) -> dict[str, list[Any]]:
    """Return each epoch as one print of all its steps or, without epochs, each stretch of a
    block; none if their samples or the batch are unknown."""
    columns = ("line", "epoch", "begin", "step", "window_seconds", "rate", "clock")
    rows: dict[str, list[Any]] = {name: [] for name in columns}
    batch_size = _count(first_values(events).get("global_batch_size"))
    if not batch_size:
        return rows
    for stretch in stretches(events):
        begin = round(stretch.first_sample / batch_size)
        end = round((stretch.first_sample + stretch.samples) / batch_size)
        rows["line"].append(stretch.line)
        rows["epoch"].append(stretch.epoch)
        rows["begin"].append(begin)
        rows["step"].append(end)
        rows["window_seconds"].append(stretch.seconds)
        rate = stretch.samples / stretch.seconds if stretch.seconds > 0 else None
        rows["rate"].append(rate)
        rows["clock"].append(stretch.clock)
    return rows


def notes(events: Sequence[Event]) -> Iterator[Note]:
    """Yield the findings that the samples of epochs and blocks are unknown, and how the time of
    evaluations counts."""
    for name in ("epoch", "block"):
        spans = spans_of(events, name)
        if not spans:
            continue
        if stretches(events):
            yield from _notes_of_evaluations(events, spans, name)
        else:
            yield Note(UnknownSamples(spans=f"{name}s"), spans[0].start.line)
        return


def _notes_of_evaluations(
    events: Sequence[Event], spans: Sequence[Span], name: str
) -> Iterator[Note]:
    """Yield the finding that evaluations in epochs or blocks are left out or, if the log does
    not tell their time, are included."""
    evaluations = Evaluations(events)
    within = [each for span in spans for each in evaluations.within(span)]
    if within:
        seconds = sum(each.seconds for each in within)
        left_out = EvaluationLeftOut(spans=f"{name}s", count=len(within), seconds=seconds)
        yield Note(left_out, within[0].start.line)
    if evaluations.spans:
        return
    results = [event for event in events if event.key == "eval_accuracy"]
    for result in results:
        earlier = [span for span in spans if span.start.at <= result.at]
        if earlier and result.at - earlier[-1].stop.at < BRIEFEST:
            yield Note(EvaluationIncluded(spans=f"{name}s"), result.line)
            return


def reported(events: Sequence[Event]) -> Iterator[ReportedFigure]:
    """Yield the time to train, the throughput by blocks (including time between their epochs)
    and by epochs, both with the evaluations in them, and the logged throughputs and step
    times."""
    for span in spans_of(events, "run"):
        yield figure("time to train, minutes", f"{span.seconds / 60:.6f}", span.stop.line)
    counts = SampleCounts(events)
    for name in ("block", "epoch"):
        spans = spans_of(events, name)
        samples, seconds, known = 0.0, 0.0, 0
        for span in spans:
            of_span = counts.samples_in(span, name)
            if of_span:
                samples, seconds, known = samples + of_span, seconds + span.seconds, known + 1
        if seconds > 0:
            which = "all" if known == len(spans) else f"{known}"
            line = spans[-1].stop.line
            label = f"samples / time of {which} {name}s"
            yield figure(label, f"{samples / seconds:.5f}", line)
    for event in events:
        if event.key in STATISTICS:
            yield from _statistics(event)


def _statistics(event: Event) -> Iterator[ReportedFigure]:
    values = event.value if isinstance(event.value, dict) else {event.key: event.value}
    for name in ("throughput", "train_step_time"):
        if isinstance(values.get(name), int | float):
            label = name if name == event.key else f"{event.key} {name}"
            yield figure(label, repr(values[name]), event.line)
