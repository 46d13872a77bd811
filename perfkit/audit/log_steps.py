"""The steps of a command's log as the events of a rank: by the printed times or, if the log has
none, or if they contradict the time that passed, by the arrival of its lines."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite, isinf
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from perfkit.audit import general
from perfkit.audit.answer import TOKENS, tokens_of_sample
from perfkit.audit.config_facts import with_stated_facts
from perfkit.audit.log import Columns, Log, LogError
from perfkit.audit.print_count import Part, Parts, Print
from perfkit.audit.reader import read_logs
from perfkit.audit.recompute import Figures
from perfkit.audit.samples import unit_of
from perfkit.audit.statements import ByCommand, Contradiction, FactValue
from perfkit.audit.timed import Timed
from perfkit.measuring.statistics import median
from perfkit.timing.failure import portable
from perfkit.timing.job import Job
from perfkit.training.frameworks import FRAMEWORKS

MOST_ROUNDING = 0.01
"""Share by which rounding may move printed times: Keras prints means in whole milliseconds."""
Event = dict[str, Any]
Basis = Literal["printed", "arrival"]


class LogFailure(Exception):
    """Why a command's log gives no number: the failure's code, and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class LogTooShort(LogFailure):
    """It does not cover warm-up and window yet."""


class Options(NamedTuple):
    """How a command runs, and what the request states of its training; None if the log has to
    tell it."""

    directory: str
    log_file: str | None
    until: Literal["window", "end"]
    devices: int
    batch_size: int | None
    sequence_length: int | None


@dataclass(frozen=True)
class TimedPrints:
    """The prints of a log, and how they are timed."""

    prints: list[Print]
    basis: Basis
    unit: str
    log_rate: str
    """rate that gives the samples where the log tells no batch; empty where it does"""
    printed_difference: float | None
    """share by which the printed times exceed those that passed, if they contradict them"""


class CommandLog:
    """The lines of a command's log with their arrivals, kept in a file."""

    def __init__(self, path: Path, job: Job, options: Options) -> None:
        self.path = path
        self.job = job
        self.options = options
        self.arrivals: list[float] = []
        self.stream = path.open("w", encoding="utf-8")

    def add(self, line: str, at: float) -> None:
        self.arrivals.append(at)
        self.stream.write(f"{line}\n")

    def events(self) -> list[Event]:
        """Return the events of a rank, without its start. Raises LogFailure."""
        log = self._read()
        timed = timed_prints(self._with_facts(log), self.arrivals)
        warmup, window = parted(timed.prints, self.job)
        last = warmup.prints[-1]
        return [
            self._told(log, timed, window),
            *_steps(warmup.prints),
            {
                "event": "warmup",
                "steps": last.last,
                "seconds": warmup.seconds,
                "ended_by": "length",
                "window_steps": window.steps,
            },
            *_steps(window.prints),
            {
                "event": "window",
                "seconds": window.seconds,
                "samples": sum(each.samples for each in window.prints),
                "began": self.arrivals[min(last.line, len(self.arrivals)) - 1],
            },
            {"event": "end"},
        ]

    def _read(self) -> Log:
        """Return the longest training of the log, whose lines need no times of their own."""
        self.stream.flush()
        lines = [*enumerate(self.path.read_text(encoding="utf-8").split("\n"), 1)]
        for form in (None, general.format_of(lines, are_timed=True)):
            with suppress(LogError):
                return read_logs(self.path, form)[0]
        reason = "the command logs no steps in a known format: perfkit audit --formats"
        raise LogFailure("log_unknown", reason)

    def _with_facts(self, log: Log) -> Log:
        """Return the log with the facts that the request states. Raises LogFailure."""
        options, told = self.options, log.number("ranks")
        if told and told != options.devices:
            raise LogFailure(
                "config_mismatch",
                f"the log tells of {told} devices, but {options.devices} were requested: -p "
                "gpus NUMBER, of each node, or -p processes NUMBER on a CPU",
            )
        stated: dict[str, FactValue] = {"ranks": options.devices}
        if options.batch_size:
            stated["batch_size"] = options.batch_size
        if options.sequence_length:
            stated["sequence_length"] = options.sequence_length
        facts = with_stated_facts(log.facts, stated)
        for note in facts.contradictions.values():
            fact = note.finding
            assert isinstance(fact, Contradiction)
            raise LogFailure(
                "config_mismatch",
                f"{fact.name} is {fact.value} by the request, but {fact.other} by the log; "
                "leave out of the request what the log tells",
            )
        return replace(log, facts=facts.by_name)

    def _told(self, log: Log, timed: TimedPrints, window: Part) -> Event:
        framework = log.fact("framework")
        samples = median([each.samples / each.steps for each in window.prints])
        return {
            "event": "told",
            "samples_per_step": round(samples),
            "unit": timed.unit.removesuffix("/s"),
            "framework": framework if framework in FRAMEWORKS else self.job.framework,
            "device": self.job.device,
            "step_clock": timed.basis,
            "counts_data_wait": False,
            "log_format": log.format,
            "log_rate": timed.log_rate,
            "print_steps": round(median([each.steps for each in window.prints])),
            "printed_difference": timed.printed_difference,
        }


def _steps(prints: Iterable[Print]) -> Iterator[Event]:
    """Yield the events of prints. Raises LogFailure for a loss that is infinite or no number,
    which the log has as infinite."""
    for each in prints:
        step = {"event": "step", "step": each.last, "seconds": each.seconds}
        yield step | {"samples": each.samples, "steps": each.steps}
        if isinf(each.loss):
            reason = f"the loss that the log prints for step {each.last} is not finite"
            raise LogFailure("loss_not_finite", reason)
        if isfinite(each.loss):
            yield {"event": "loss", "step": each.last, "value": each.loss}


# The log's numbers may have any size.
@np.errstate(all="ignore")
def timed_prints(log: Log, arrivals: Sequence[float]) -> TimedPrints:
    """Return the prints of a log whose lines arrived at these times. Raises LogFailure."""
    try:
        own = _figures(log)
        lines = log.windows["line"].to_numpy().clip(1, len(arrivals))
        at = np.array(arrivals)[lines - 1]
        arrived = _figures(replace(log, windows=log.windows.assign(at=at))).periods["all"]
    except (ValueError, ArithmeticError) as error:
        raise LogFailure("log_unknown", portable(f"unusable numbers: {error}")) from error
    if own.contradicting and isinstance(log.facts["batch_size"].by, ByCommand):
        raise LogFailure("config_mismatch", own.contradicting[0].text())
    printed = own.periods["all"].printed
    if own.is_sampled or (printed and printed.sum_rounding > MOST_ROUNDING):
        printed = None
    both = arrived.two_times if printed else None
    difference = both.printed / both.clock - 1 if both and both.are_apart else None
    if printed and difference is None:
        return _prints(log, own.rows, printed, "printed", None)
    if arrived.clock:
        return _prints(log, own.rows, arrived.clock, "arrival", difference)
    reason = f"{log.format}: too few lines with steps, or all at once and without times"
    raise LogFailure("log_unknown", reason)


def _figures(log: Log) -> Figures:
    figures = Figures(log)
    if "all" not in figures.periods:
        raise LogFailure("log_unknown", f"{log.format}: no line with a step")
    return figures


def _prints(
    log: Log, rows: Columns, timed: Timed, basis: Basis, difference: float | None
) -> TimedPrints:
    """Return the prints by one of the log's times. Raises LogFailure for unknown samples."""
    unit, samples, log_rate = unit_of(log.facts), timed.samples, ""
    if not np.isfinite(samples).all():
        samples = _by_rate(log, rows, timed)
        of = "all devices"
        if log.semantics.rate_of == "device":
            of = f"one device × {log.number('ranks')}"
        log_rate = f"{unit} of {of}"
    length = tokens_of_sample(log.facts, unit)
    if unit != TOKENS and length:
        unit, samples = TOKENS, samples * length
    loss_of_line = dict(zip(rows["line"].tolist(), rows["loss"].tolist(), strict=True))
    # The first print may have no time.
    before = int(rows["steps"][0]) if timed.line[0] > rows["line"][0] else 0
    columns = zip(
        (before + np.cumsum(timed.steps)).tolist(),
        timed.steps.tolist(),
        timed.seconds.tolist(),
        timed.line.tolist(),
        np.rint(samples).astype("int64").tolist(),
        [loss_of_line[line] for line in timed.line.tolist()],
        strict=True,
    )
    return TimedPrints([Print(*each) for each in columns], basis, unit, log_rate, difference)


def _by_rate(log: Log, rows: Columns, timed: Timed) -> np.ndarray:
    """Return samples of all devices as printed rate x time. Raises LogFailure."""
    ranks = log.number("ranks") if log.semantics.rate_of == "device" else 1
    rate_of_line = dict(zip(rows["line"].tolist(), rows["own_rate"].tolist(), strict=True))
    rates = np.array([rate_of_line[line] for line in timed.line.tolist()])
    if not np.isfinite(rates).all():
        lacking, option = "samples of one device in an optimizer update", "batch_size"
        if log.number("batch_size"):
            lacking, option = "tokens of a sample", "sequence_length"
        raise LogFailure(
            "batch_unknown",
            f"the log ({log.format}) tells neither the samples of a step nor a rate; state the "
            f"{lacking}, before the command: -p {option} NUMBER",
        )
    samples: np.ndarray = rates * ranks * timed.seconds
    return samples


def parted(prints: Sequence[Print], job: Job) -> tuple[Part, Part]:
    """Return warm-up and window. Raises LogFailure if the log is too short."""
    parts = Parts(job)
    for each in prints:
        parts.add(each)
    if not parts.window.is_covered:
        raise LogTooShort(
            "ended_early",
            f"the log ends after step {prints[-1].last}, in {len(prints)} prints, before it "
            "covers warm-up and window; train longer, print more often, or measure less: -p "
            "measured_steps NUMBER -p measured_seconds NUMBER",
        )
    return parts.warmup, parts.window
