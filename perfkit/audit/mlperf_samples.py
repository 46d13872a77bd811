"""The samples of MLPerf's epochs and blocks.

The benchmarks count differently: an epoch has `train_samples` samples, or as many batches, and
the numbers of epochs are epochs, samples or tokens. What a count is of, its own metadata
(`samples_count`) or the logged throughput tell; else it stays unknown.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, Literal, NamedTuple

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


class Span(NamedTuple):
    """A NAME_start event and its NAME_stop."""

    start: Event
    stop: Event

    @property
    def seconds(self) -> float:
        return self.stop.at - self.start.at

    def holds(self, event: Event) -> bool:
        return self.start.at <= event.at <= self.stop.at


class Stretch(NamedTuple):
    """Some consecutive steps: their samples, those before of the same epoch, and their
    seconds, without those of evaluations."""

    line: int
    epoch: int
    first_sample: float
    samples: float
    seconds: float
    clock: float | None
    """end of the last step; None if the time since the stretch before is not that of steps"""


def spans_of(events: Sequence[Event], name: str) -> list[Span]:
    """Return each NAME_start with its NAME_stop, in the order of their starts: of the same
    number of an epoch, because blocks may overlap. Each process may log the same events, of
    which the first counts."""
    spans: list[Span] = []
    started: dict[Any, Event] = {}
    ended = set()
    for event in events:
        number = _epoch_number(event)
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


def _epoch_number(event: Event) -> Any:
    """Return the number of the first epoch of an event; None if it has none."""
    for name in ("first_epoch_num", "epoch_num"):
        number = event.about(name)
        if isinstance(number, int | float | str):
            return number
    return None


class Evaluations:
    """The evaluations of a log between their eval_start and eval_stop."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.spans: list[Span] = []
        for span in spans_of(events, "eval"):
            # Each process may log an evaluation.
            if not self.spans or span.start.at >= self.spans[-1].stop.at:
                self.spans.append(span)

    def within(self, span: Span) -> list[Span]:
        """Return the evaluations that lie wholly in an epoch or a block, which trains before
        and after them. One that began before it runs beside the training."""
        return [each for each in self.spans if span.holds(each.start) and span.holds(each.stop)]

    def training_seconds(self, span: Span) -> float:
        """Return the seconds of an epoch or a block without the evaluations in it."""
        return span.seconds - sum(each.seconds for each in self.within(span))


def first_values(events: Sequence[Event]) -> dict[str, Any]:
    """Return the value of the first event of each key."""
    return {event.key: event.value for event in reversed(events)}


def _positive(value: Any) -> float:
    """Return a positive number; 0 if the value is not one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < MOST else 0.0


class SampleCounts:
    """Tells the samples in a span of a log."""

    def __init__(self, events: Sequence[Event]) -> None:
        values = first_values(events)
        self.benchmark = values.get("submission_benchmark")
        self.batch_size = _positive(values.get("global_batch_size"))
        self.sequence_length = _positive(values.get("max_sequence_length"))
        self.samples_of_epoch = _positive(values.get("train_samples"))
        if not self.samples_of_epoch and self.benchmark == "resnet":
            self.samples_of_epoch = float(IMAGENET)
        self.epochs = spans_of(events, "epoch")
        self.rates = [(event, self._rate(event)) for event in events]

    def _rate(self, event: Event) -> float:
        """Return the samples per second that an event tells; 0 if it tells none."""
        statistics = event.value if isinstance(event.value, dict) else {event.key: event.value}
        if event.key not in ("tracked_stats", "throughput", "train_step_time"):
            return 0.0
        step_seconds = _positive(statistics.get("train_step_time"))
        rate = _positive(statistics.get("throughput"))
        return rate or (step_seconds and self.batch_size / step_seconds)

    def samples_in(self, span: Span, name: Name) -> float:
        """Return the samples in an epoch or a block; 0 if unknown."""
        counted = _counted(span)
        if counted:
            return counted
        epochs = 1.0 if name == "epoch" else self._epochs_in(span)
        if self.benchmark in COUNTS_TOKENS and name == "block":
            return self._by_tokens(epochs)
        meanings = [epochs * self.samples_of_epoch]
        meanings.append(epochs * self.samples_of_epoch * self.batch_size)
        if name == "block":
            meanings += [epochs, epochs * self.batch_size]
        logged = self._logged_rate(span) * span.seconds
        if logged:
            fitting = {samples for samples in meanings if _fits(samples, logged)}
            return fitting.pop() if len(fitting) == 1 else 0.0
        return meanings[0] if self.benchmark in COUNTS_SAMPLES else 0.0

    def _by_tokens(self, tokens: float) -> float:
        """Return the samples of a number of tokens, of whole batches; 0 otherwise."""
        tokens_of_batch = self.sequence_length * self.batch_size
        if not tokens_of_batch or tokens % tokens_of_batch:
            return 0.0
        return tokens / self.sequence_length

    def _epochs_in(self, block: Span) -> float:
        """Return the number of epochs that lie within a block or, if none does, the number that
        its start announces."""
        within = 0
        for epoch in self.epochs:
            within += block.holds(epoch.start) and block.holds(epoch.stop)
        return float(within) or _positive(block.start.about("epoch_count"))

    def _logged_rate(self, span: Span) -> float:
        """Return the mean of the throughputs logged within a span and right after it."""
        rates = []
        for event, rate in self.rates:
            if rate and span.start.at < event.at <= span.stop.at + 1:
                rates.append(rate)
        return sum(rates) / len(rates) if rates else 0.0


def _fits(samples: float, logged: float) -> bool:
    return 1 / FITS <= samples / logged <= FITS


def _counted(span: Span) -> float:
    """Return the samples between the counts that both ends of a span have; 0 if unknown."""
    first, last = (event.about("samples_count") for event in span)
    if isinstance(first, int) and isinstance(last, int) and 0 <= first < last < MOST:
        return float(last - first)
    return 0.0


def stretches(events: Sequence[Event]) -> list[Stretch]:
    """Return the epochs or, without epochs whose samples are known, the stretches of the blocks
    between events that count samples. Those whose samples are unknown are left out, such as a
    last epoch that was broken off when the model was good enough."""
    counts, evaluations = SampleCounts(events), Evaluations(events)
    of_epochs = []
    for number, span in enumerate(counts.epochs, 1):
        samples = counts.samples_in(span, "epoch")
        seconds = evaluations.training_seconds(span)
        clock = None if evaluations.within(span) else span.stop.at
        epoch = Stretch(span.stop.line, number, 0.0, samples, seconds, clock)
        of_epochs.append(epoch)
    for every in (of_epochs, [*_stretches_of_blocks(events, counts, evaluations)]):
        known = [stretch for stretch in every if stretch.samples]
        if known:
            return known
    return []


def _stretches_of_blocks(
    events: Sequence[Event], counts: SampleCounts, evaluations: Evaluations
) -> Iterator[Stretch]:
    before = 0.0
    losses = [event for event in events if event.key == "train_loss"]
    times = [event.at for event in losses]
    for block in spans_of(events, "block"):
        if _counted(block):
            begin, end = (bisect_right(times, event.at) for event in block)
            inner = losses[begin:end]
            yield from _between_counts([block.start, *inner, block.stop], evaluations)
            continue
        samples = counts.samples_in(block, "block")
        seconds = evaluations.training_seconds(block)
        yield Stretch(block.stop.line, 1, before, samples, seconds, None)
        before += samples


def _between_counts(events: Sequence[Event], evaluations: Evaluations) -> Iterator[Stretch]:
    """Yield the stretches between events that count samples."""
    start = events[0]
    first = float(start.about("samples_count"))
    for event in events[1:]:
        count = event.about("samples_count")
        last = float(count) if isinstance(count, int) and count < MOST else -inf
        if last > first and event.at > start.at:
            seconds = evaluations.training_seconds(Span(start, event))
            yield Stretch(event.line, 1, first, last - first, seconds, None)
            first, start = last, event
