"""MLPerf's events: `:::MLLOG {"time_ms": …, "key": …}`, and those of v0.6 (`:::MLL`).

The benchmarks count differently: an epoch has `train_samples` samples, or as many batches, and
the numbers of epochs are epochs, samples or tokens. What a count is of, its own metadata
(`samples_count`) or the logged throughput tell; else it stays unknown.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from perfkit.audit.log import ReportedFigure
from perfkit.audit.records import parsed
from perfkit.audit.reported import Lines, figure
from perfkit.audit.statements import EvaluationTime, Note, UnknownSamples
from perfkit.measuring.statistics import median

MLLOG = re.compile(r":::MLLOG (\{.{1,20000}\})")
OLDER = re.compile(
    r":::MLL (\d{1,12}\.\d{1,9}) (?:\([^)]{1,200}\) )?(\w{1,80})(?:: (.{1,20000}))?"
)
FACTS = {
    "global_batch_size": "global_batch_size",
    "local_batch_size": "batch_size",
    "d_batch_size": "batch_size",
    "gradient_accumulation_steps": "accumulate",
    "train_samples": "train_samples",
}
"""Key -> fact that it tells."""
MODELS = {"resnet": "resnet50", "bert": "bert-large"}
"""Benchmark -> model."""
COUNTING = (
    *("block_start", "block_stop", "epoch_start", "epoch_stop"),
    *("train_loss", "tracked_stats"),
)
"""Keys of events whose metadata may count the samples so far."""
STATISTICS = ("throughput", "tracked_stats", "train_step_time")
"""Keys of logged figures."""
MOST = 2**53
"""Numbers up to here are exact as floats; larger ones are ignored."""
IMAGENET = 1_281_167
"""Training samples of MLPerf's resnet, which v0.5 and v0.6 do not log."""
COUNTS_SAMPLES = (None, "resnet", "ssd", "maskrcnn", "unet3d")
"""Benchmarks in which an epoch has `train_samples` samples (training_policies, and results of
v0.7 to v5.1)."""
COUNTS_TOKENS = ("gpt3",)
"""Benchmarks that number epochs by tokens: an evaluation follows every 24,576 sequences of
2,048 tokens."""
BRIEFEST = 0.1
"""Seconds that every evaluation takes at least."""
FITS = 2.0
"""Factor by which a logged throughput may differ from samples / time, which may include
evaluations; the meanings of a count differ by a batch size or a sequence length."""
Name = Literal["epoch", "block"]


class Event(NamedTuple):
    """One logged event, `at` seconds of the log's clock."""

    line: int
    at: float
    key: str
    value: Any
    metadata: Any

    def about(self, name: str) -> Any:
        """Return a value of the event's metadata; None without one."""
        return self.metadata.get(name) if isinstance(self.metadata, dict) else None

    def counted(self, name: str) -> float | None:
        """Return the count of this name in the event's metadata; None if it has none."""
        count = self.about(name)
        is_count = type(count) in (int, float) and 0 <= count < MOST
        return float(count) if is_count and self.key in COUNTING else None

    @property
    def epoch(self) -> str:
        """The number of its first epoch, as a text; that of None if it has none."""
        first = self.about("first_epoch_num")
        return str(self.about("epoch_num") if first is None else first)

    def statistics(self) -> Iterator[tuple[str, float]]:
        """Yield the names and values of the throughput and the step time that it logs."""
        if self.key in STATISTICS:
            values = self.value if isinstance(self.value, dict) else {self.key: self.value}
            for name in ("throughput", "train_step_time"):
                if _positive(values.get(name)):
                    yield name, values[name]


class Span(NamedTuple):
    """A NAME_start event and its NAME_stop."""

    start: Event
    stop: Event

    @property
    def seconds(self) -> float:
        return self.stop.at - self.start.at

    def holds(self, span: "Span") -> bool:
        return self.start.at <= span.start.at and span.stop.at <= self.stop.at


class Stretch(NamedTuple):
    """Some consecutive steps as a print: the steps before of the same epoch, the last step,
    and the seconds without those of evaluations."""

    line: int
    epoch: int
    begin: int
    step: int
    window_seconds: float
    rate: float | None


# Events.


def events_in(lines: Lines) -> list[Event]:
    """Return the events of all lines that can be parsed."""
    return [event for line, text in lines if ":::ML" in text for event in _events(line, text)]


def _events(line: int, text: str) -> Iterator[Event]:
    current, older = MLLOG.search(text), OLDER.search(text)
    if current:
        record = parsed(current[1])
        milliseconds = record.get("time_ms") if isinstance(record, dict) else None
        if record and isinstance(milliseconds, int | float) and abs(milliseconds) < MOST:
            key, value, metadata = (record.get(name) for name in ("key", "value", "metadata"))
            yield Event(line, milliseconds / 1000, str(key), value, metadata)
    elif older:
        value, metadata = parsed(older[3] or "null"), None
        if isinstance(value, dict) and "metadata" in value:
            metadata, value = value["metadata"], value.get("value")
        yield Event(line, float(older[1]), older[2], value, metadata)


def spans_of(events: Sequence[Event], name: str) -> list[Span]:
    """Return each NAME_start with its NAME_stop, in the order of their starts: of the same
    number of an epoch, because blocks may overlap. Each process may log the same events, of
    which the first counts."""
    spans: list[Span] = []
    started: dict[Any, Event] = {}
    ended = set()
    for event in events:
        number = event.epoch
        if event.key == f"{name}_start":
            started.setdefault(number, event)
        elif event.key == f"{name}_stop":
            if number not in started and number not in ended and len(started) == 1:
                # BERT's epoch starts at 0 and stops at its number of samples.
                (number,) = started
            if number in started:
                spans.append(Span(started.pop(number), event))
                ended.add(number)
    return sorted(spans, key=lambda span: span.start.at)


def facts_in(events: Sequence[Event]) -> Iterator[tuple[str, int | str, int]]:
    """Yield the facts that the first event of each key tells, with their lines."""
    for event in {event.key: event for event in reversed(events)}.values():
        value = event.value
        if event.key == "submission_benchmark" and isinstance(value, str):
            yield "benchmark", value.lower(), event.line
            if value.lower() in MODELS:
                yield "model", MODELS[value.lower()], event.line
        elif event.key in FACTS and type(value) is int and 0 < value < MOST:
            yield FACTS[event.key], value, event.line


# Samples.


def _positive(value: Any) -> float:
    """Return a positive number; 0 if the value is not one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < MOST else 0.0


def _fits(samples: float, logged: float) -> bool:
    return logged / FITS <= samples <= logged * FITS


class Training:
    """What the events of a log tell of the samples of its epochs and blocks."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        values = {event.key: event.value for event in reversed(events)}
        self.benchmark = values.get("submission_benchmark")
        self.batch_size = _positive(values.get("global_batch_size"))
        self.sequence_length = _positive(values.get("max_sequence_length"))
        self.samples_of_epoch = _positive(values.get("train_samples"))
        if not self.samples_of_epoch and self.benchmark == "resnet":
            self.samples_of_epoch = float(IMAGENET)
        self.spans: dict[Name, list[Span]] = {
            "epoch": spans_of(events, "epoch"),
            "block": spans_of(events, "block"),
        }
        self.rates: list[tuple[float, float]] = []
        for event in events:
            logged = dict(event.statistics())
            seconds = logged.get("train_step_time", 0.0)
            rate = logged.get("throughput") or (seconds and self.batch_size / seconds)
            if rate:
                self.rates.append((event.at, rate))
        self.evaluations: list[Span] = []
        for span in spans_of(events, "eval"):
            # Each process may log an evaluation.
            if not self.evaluations or span.start.at >= self.evaluations[-1].stop.at:
                self.evaluations.append(span)

    def evaluations_in(self, span: Span) -> list[Span]:
        """Return the evaluations that lie wholly in an epoch or a block, which trains before
        and after them. One that began before it runs beside the training."""
        return [each for each in self.evaluations if span.holds(each)]

    def stretches(self) -> list[Stretch]:
        """Return the stretches between events that count samples or, without any, each epoch
        or block whose samples are known; none without a batch size."""
        if not self.batch_size:
            return []
        logged = self._logged_rate(Span(self.events[0], self.events[-1]))
        # Steps are samples or batches, which the logged throughput tells.
        for name, factor in (("samples_count", 1.0), ("step", 1.0), ("step", self.batch_size)):
            counted = [*self._counted(name, factor)]
            rates = [stretch.rate or 0.0 for stretch in counted]
            is_of_samples = name == "samples_count"
            if rates and (_fits(median(rates), logged) if logged else is_of_samples):
                return counted
        return [*self._of_spans("epoch")] or [*self._of_spans("block")]

    def _stretch(self, span: Span, epoch: int, first: float, samples: float) -> Stretch:
        seconds = span.seconds - sum(each.seconds for each in self.evaluations_in(span))
        begin, end = (round(count / self.batch_size) for count in (first, first + samples))
        rate = samples / seconds if seconds > 0 else None
        return Stretch(span.stop.line, epoch, begin, end, seconds, rate)

    def _counted(self, name: str, factor: float) -> Iterator[Stretch]:
        """Yield the stretches between events with a count of this name."""
        before, first = self.events[0], 0.0
        for event in self.events:
            count = event.counted(name)
            steps = event.counted("step")
            if event.key.startswith("block") and name == "samples_count" and steps is not None:
                # Their samples may be those of the block, or those at its end.
                count = steps * self.batch_size
            if count is None:
                continue
            if event.key.endswith("_start"):
                # The time since the event before is not that of steps.
                before, first = event, max(first, count)
            elif count > first and event.at > before.at:
                samples = factor * (count - first)
                yield self._stretch(Span(before, event), 1, factor * first, samples)
                before, first = event, count

    def _of_spans(self, name: Name) -> Iterator[Stretch]:
        before = 0.0
        for number, span in enumerate(self.spans[name], 1):
            samples = self.samples_in(span, name)
            epoch, first = (number, 0.0) if name == "epoch" else (1, before)
            if samples:
                yield self._stretch(span, epoch, first, samples)
            before += samples

    def samples_in(self, span: Span, name: Name) -> float:
        """Return the samples in an epoch or a block; 0 if unknown."""
        first, last = (event.counted("samples_count") for event in span)
        if first is not None and last is not None:
            return max(0.0, last - first)
        epochs = 1.0 if name == "epoch" else self._epochs_in(span)
        if self.benchmark in COUNTS_TOKENS and name == "block":
            tokens_of_batch = self.sequence_length * self.batch_size
            is_whole = tokens_of_batch and epochs % tokens_of_batch == 0
            return epochs / self.sequence_length if is_whole else 0.0
        meanings = [epochs * self.samples_of_epoch]
        meanings.append(epochs * self.samples_of_epoch * self.batch_size)
        if name == "block":
            meanings += [epochs, epochs * self.batch_size]
        logged = self._logged_rate(span) * span.seconds
        if logged:
            fitting = {samples for samples in meanings if _fits(samples, logged)}
            return fitting.pop() if len(fitting) == 1 else 0.0
        return meanings[0] if self.benchmark in COUNTS_SAMPLES else 0.0

    def _epochs_in(self, block: Span) -> float:
        """Return the number of epochs that lie within a block or, if none does, the number that
        its start announces."""
        within = sum(block.holds(epoch) for epoch in self.spans["epoch"])
        return float(within) or _positive(block.start.about("epoch_count"))

    def _logged_rate(self, span: Span) -> float:
        """Return the mean of the throughputs logged within a span and right after it."""
        rates = [rate for at, rate in self.rates if span.start.at < at <= span.stop.at + 1]
        return sum(rates) / len(rates) if rates else 0.0


# What a log takes from its events.


def prints(events: Sequence[Event]) -> dict[str, Sequence[Any]]:
    """Return each stretch as one print of all its steps, by column."""
    rows = Training(events).stretches()
    return {name: [getattr(row, name) for row in rows] for name in Stretch._fields}


def notes(events: Sequence[Event]) -> Iterator[Note]:
    """Yield the findings that the samples of epochs and blocks are unknown, and how the time of
    evaluations counts."""
    training = Training(events)
    for name, spans in training.spans.items():
        if not spans:
            continue
        if training.stretches():
            yield from _notes_of_evaluations(training, name)
        else:
            yield Note(UnknownSamples(spans=f"{name}s"), spans[0].start.line)
        return


def _notes_of_evaluations(training: Training, name: Name) -> Iterator[Note]:
    """Yield the finding that evaluations in epochs or blocks are left out or, if the log does
    not tell their time, are included."""
    spans = training.spans[name]
    within = [each for span in spans for each in training.evaluations_in(span)]
    if within:
        seconds = sum(each.seconds for each in within)
        left_out = EvaluationTime(spans=f"{name}s", seconds=seconds)
        yield Note(left_out, within[0].start.line)
    if training.evaluations:
        return
    ends = [span.stop.at for span in spans]
    for event in training.events:
        is_result = event.key == "eval_accuracy"
        if is_result and any(0 <= event.at - end < BRIEFEST for end in ends):
            yield Note(EvaluationTime(spans=f"{name}s"), event.line)
            return


def reported(events: Sequence[Event]) -> Iterator[ReportedFigure]:
    """Yield the time to train, the throughput by blocks (including the time of evaluations and
    between epochs), and the medians of the logged throughputs and step times."""
    for span in spans_of(events, "run"):
        yield figure("time to train, minutes", f"{span.seconds / 60:.6f}", span.stop.line)
    training = Training(events)
    blocks = [(span, training.samples_in(span, "block")) for span in training.spans["block"]]
    known = [(span, samples) for span, samples in blocks if samples and span.seconds > 0]
    if known:
        which = "all" if len(known) == len(blocks) else f"{len(known)}"
        rate = sum(samples for _, samples in known) / sum(span.seconds for span, _ in known)
        line = known[-1][0].stop.line
        yield figure(f"samples / time of {which} blocks", f"{rate:.5f}", line)
    logged: dict[str, list[float]] = {}
    lines: dict[str, int] = {}
    for event in events:
        for statistic, value in event.statistics():
            label = statistic if statistic == event.key else f"{event.key} {statistic}"
            logged.setdefault(label, []).append(value)
            lines[label] = event.line
    for label, values in logged.items():
        of_several = f" (median of {len(values)})" if len(values) > 1 else ""
        yield figure(label + of_several, f"{median(values):.10g}", lines[label])
