"""Ratios of logs' throughputs, their intervals, and the verdict on two logs.

The steps of a log within the period of its answer are cut into at most MOST_BLOCKS blocks of
consecutive lines, so that the times of neighbouring steps may be correlated. Blocks are drawn
with replacement (bootstrap); the interval lies between two percentiles of the ratios of the
draws, which are widened for few blocks (Hesterberg, What teachers should know about the
bootstrap, 2015, section 5.3). It covers the steps of these two runs; other runs of the same
work may differ by more.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from math import inf, sqrt
from typing import Any, NamedTuple

import numpy as np

from perfkit.audit.audit import AuditedLog
from perfkit.audit.log_numbers import LogFigures
from perfkit.audit.recompute import inside
from perfkit.audit.verdicts import (
    CannotTell,
    FactDifference,
    Faster,
    LogRatio,
    LogScaling,
    NoDifference,
    OtherExtent,
    OtherFormats,
    OtherLogWork,
    OtherUnits,
    Scales,
    Slower,
    TooFewLines,
    UnknownThroughput,
    Verdict,
)
from perfkit.core.statistics import Interval

LEVEL = 0.95
FEWEST_BLOCKS, MOST_BLOCKS = 8, 20
LINES_OF_BLOCK = 4
"""Lines of a block, if they are enough for FEWEST_BLOCKS: neighbouring lines are correlated."""
DRAWS = 4000
SEED = 20200811
"""Seed of the draws: the same logs give the same interval."""
ALIKE = 0.01
"""Differences below this share are none."""
CLOSE = 0.02
"""An interval around 1 that ends beyond this share on either side says too little."""
WORK = (
    "model",
    "benchmark",
    "mode",
    "sequence_length",
    "parameters",
    "layers",
    "hidden_size",
)
"""Facts that are equal in logs of comparable work."""
TELLING = ("model", "benchmark", "parameters")
"""Facts of which one that is equal tells that logs of different formats did the same work."""
CIRCUMSTANCES = (
    "framework",
    "precision",
    "gpu",
    "ranks",
    "batch_size",
    "accumulate",
    "global_batch_size",
    "input",
)
"""Facts in which comparable logs may differ; the verdict names them."""


class Blocks(NamedTuple):
    """Blocks of consecutive steps: the steps and the seconds of each. Seconds may have an
    unknown factor, the same in all blocks."""

    steps: np.ndarray
    seconds: np.ndarray

    def seconds_per_step(self) -> float:
        return float(self.seconds.sum() / self.steps.sum())

    def drawn(self, generator: np.random.Generator) -> np.ndarray:
        """Return the seconds per step of DRAWS draws, over that of all blocks."""
        count = len(self.steps)
        draws = generator.integers(count, size=(DRAWS, count))
        seconds = self.seconds[draws].sum(axis=1)
        steps = self.steps[draws].sum(axis=1)
        return seconds / steps / self.seconds_per_step()


def blocks_of(audited: LogFigures) -> Blocks:
    """Return the blocks of the steps that a log's answer is about."""
    answer, rows = audited.log.answer, audited.figures.rows
    if not answer or not answer.period or not rows:
        return Blocks(np.empty(0), np.empty(0))
    step_seconds = rows["step_seconds"]
    is_timed = inside(rows, answer.period) & np.isfinite(step_seconds) & (step_seconds > 0)
    steps = rows["steps"][is_timed]
    seconds = steps * step_seconds[is_timed]
    count = min(MOST_BLOCKS, max(FEWEST_BLOCKS, len(steps) // LINES_OF_BLOCK))
    count = max(min(count, len(steps)), 1)
    return Blocks(
        np.array([part.sum() for part in np.array_split(steps, count)]),
        np.array([part.sum() for part in np.array_split(seconds, count)]),
    )


@np.errstate(all="ignore")
def ratio_interval_of_blocks(ratio: float, blocks: Blocks, base: Blocks) -> Interval | None:
    """Return the interval of a ratio of throughputs, given the blocks of both logs; None for
    fewer than FEWEST_BLOCKS on a side, and for times whose ratios overflow."""
    fewest = min(len(blocks.steps), len(base.steps))
    if fewest < FEWEST_BLOCKS:
        return None
    generator = np.random.default_rng(SEED)
    slower, base_slower = blocks.drawn(generator), base.drawn(generator)
    tail = _tail(fewest)
    low, high = np.quantile(ratio * base_slower / slower, (tail, 1 - tail))
    # Times of a log may have any size.
    if not 0 < low <= high < inf:
        return None
    return Interval(float(low), float(high), LEVEL)


def _tail(count: int) -> float:
    """Return the share of draws beyond each end of the interval, of `count` blocks. A draw
    varies less than a new sample by sqrt((count - 1) / count), and its percentiles are those of
    a normal distribution instead of Student's."""
    from scipy.stats import norm, t

    quantile = t.ppf((1 - LEVEL) / 2, count - 1)
    return float(norm.cdf(sqrt(count / (count - 1)) * quantile))


# Ratios to the first log.


class Compared(NamedTuple):
    """The throughputs of a log and of the first one, in one unit, of all devices or of one."""

    value: float
    base: float
    unit: str
    of_all: bool

    @property
    def ratio(self) -> float:
        return self.value / self.base


def log_ratios(logs: Sequence[LogFigures]) -> Iterator[LogRatio]:
    """Yield the ratio of each further log to the first, where both are comparable."""
    if len(logs) < 2:
        return
    first = logs[0]
    base_blocks = blocks_of(first)
    for audited in logs[1:]:
        compared = compare(audited.log, first.log)
        if isinstance(compared, Verdict):
            continue
        blocks = blocks_of(audited)
        interval = ratio_interval_of_blocks(compared.ratio, blocks, base_blocks)
        yield LogRatio(
            log=audited.log.name,
            base=first.log.name,
            unit=compared.unit,
            of_all=compared.of_all,
            ratio=compared.ratio,
            low=interval.low if interval else None,
            high=interval.high if interval else None,
            level=LEVEL,
            blocks=len(blocks.steps),
            base_blocks=len(base_blocks.steps),
            differing=[*_differences(audited.log, first.log)],
        )


def compare(log: AuditedLog, base: AuditedLog) -> Compared | Verdict:
    """Return the throughputs of two logs, or why they are not compared."""
    names = {"log": log.name, "base": base.name}
    other_work = _other_work(log, base)
    if other_work:
        return other_work
    for each in (base, log):
        if not each.answer or not each.answer.speed:
            return UnknownThroughput(unknown=each.name, **names)
    assert log.answer and base.answer
    unit, base_unit = log.answer.speed_unit, base.answer.speed_unit
    if unit != base_unit:
        return OtherUnits(unit=unit, base_unit=base_unit, **names)
    speed, base_speed = log.answer.speed, base.answer.speed
    assert speed and base_speed
    if speed.of_all and base_speed.of_all:
        return Compared(speed.of_all, base_speed.of_all, unit, of_all=True)
    if speed.per_device and base_speed.per_device:
        return Compared(speed.per_device, base_speed.per_device, unit, of_all=False)
    return OtherExtent(**names)


def _other_work(log: AuditedLog, base: AuditedLog) -> Verdict | None:
    """Return why two logs are, or may be, of different work; None if nothing tells so."""
    names = {"log": log.name, "base": base.name}
    for name in WORK:
        value, base_value = log.fact(name), base.fact(name)
        if None not in (value, base_value) and value != base_value:
            values = {"value": str(value), "base_value": str(base_value)}
            return OtherLogWork(name=name, **values, **names)
    if log.format != base.format and not _same_model(log, base):
        return OtherFormats(format=log.format, base_format=base.format, **names)
    return None


def _same_model(log: AuditedLog, base: AuditedLog) -> bool:
    """Return whether a known fact tells that two logs are of the same model."""
    for name in TELLING:
        value = log.fact(name)
        if value is not None and value == base.fact(name):
            return True
    return False


def _differences(log: AuditedLog, base: AuditedLog) -> Iterator[FactDifference]:
    for name in CIRCUMSTANCES:
        value, base_value = log.fact(name), base.fact(name)
        if value != base_value:
            texts = ["" if fact is None else str(fact) for fact in (value, base_value)]
            yield FactDifference(name=name, value=texts[0], base=texts[1])


# Two logs.


def verdict_of(logs: Sequence[AuditedLog], ratios: Sequence[LogRatio]) -> Verdict | None:
    """Return the verdict on the second of two logs against the first; None for other
    numbers of logs."""
    if len(logs) != 2:
        return None
    base, log = logs
    compared = compare(log, base)
    if isinstance(compared, Verdict):
        return compared
    (ratio,) = ratios
    if ratio.low is None or ratio.high is None:
        few, lines = ratio.log, ratio.blocks
        if ratio.base_blocks < lines:
            few, lines = ratio.base, ratio.base_blocks
        return TooFewLines(
            log=ratio.log,
            base=ratio.base,
            difference=ratio.ratio - 1,
            few=few,
            lines=lines,
            needed=FEWEST_BLOCKS,
        )
    interval = Interval(ratio.low, ratio.high, ratio.level)
    devices, base_devices = (_devices(each) for each in (log, base))
    if ratio.of_all and devices and base_devices and devices != base_devices:
        factor = devices / base_devices
        ends = {"low": ratio.low, "high": ratio.high}
        return Scales(
            **_rests_on(ratio, interval) | ends,
            ratio=ratio.ratio,
            factor=factor,
            share=ratio.ratio / factor,
        )
    return _judged(ratio, interval)


def _rests_on(ratio: LogRatio, interval: Interval) -> dict[str, Any]:
    return {
        "log": ratio.log,
        "base": ratio.base,
        "low": interval.low - 1,
        "high": interval.high - 1,
        "level": interval.level,
        "blocks": ratio.blocks,
        "base_blocks": ratio.base_blocks,
    }


def _judged(ratio: LogRatio, interval: Interval) -> Verdict:
    rests_on = _rests_on(ratio, interval)
    low, high = interval.low - 1, interval.high - 1
    largest = max(abs(low), abs(high))
    includes_one = low <= 0 <= high
    if largest <= ALIKE or (includes_one and largest <= CLOSE):
        return NoDifference(**rests_on, share=largest)
    if includes_one:
        return CannotTell(**rests_on)
    if low > 0:
        return Faster(**rests_on, share=ratio.ratio - 1)
    return Slower(**rests_on, share=1 - ratio.ratio)


# Scaling.


class Scale(NamedTuple):
    """A log with its devices and the throughput of one of them."""

    log: AuditedLog
    devices: int
    per_device: float


def log_scaling(logs: Sequence[AuditedLog]) -> Iterator[LogScaling]:
    """Yield the share of ideal scaling of each log that has logs of the same work on other
    numbers of devices: with the same batch of a device or, without such logs, of all."""
    scales = [*_scales(logs)]
    scaled: set[str] = set()
    for batch in ("batch_size", "global_batch_size"):
        for group in _groups(scales, batch):
            base = min(group, key=lambda scale: (scale.devices, -scale.per_device))
            if all(scale.devices == base.devices for scale in group):
                continue
            for scale in group:
                if scale.log.name in scaled:
                    continue
                scaled.add(scale.log.name)
                yield LogScaling(
                    log=scale.log.name,
                    base=base.log.name,
                    devices=scale.devices,
                    base_devices=base.devices,
                    share=scale.per_device / base.per_device,
                )


def _scales(logs: Sequence[AuditedLog]) -> Iterator[Scale]:
    for log in logs:
        devices = _devices(log)
        if devices and log.answer and log.answer.speed and log.answer.speed.per_device:
            yield Scale(log, devices, log.answer.speed.per_device)


def _devices(log: AuditedLog) -> int | None:
    speed = log.answer.speed if log.answer else None
    return speed.devices if speed else None


def _groups(scales: Sequence[Scale], batch: str) -> list[list[Scale]]:
    """Return the groups of logs that differ in their devices at most; `batch` is the fact that
    is the same, or unknown for all."""
    groups: dict[Hashable, list[Scale]] = defaultdict(list)
    for scale in scales:
        log = scale.log
        if batch == "global_batch_size" and log.fact(batch) is None:
            continue
        assert log.answer
        same = [log.fact(name) for name in (*WORK, "framework", "precision", "gpu", batch)]
        form = "" if any(log.fact(name) is not None for name in TELLING) else log.format
        groups[(log.answer.speed_unit, form, *same)].append(scale)
    return [*groups.values()]
