"""Check a claimed number against the numbers of a log, and tell the way from it to the log's
answer."""

from typing import Literal, NamedTuple

from perfkit.audit.answer import TOKENS, Answer
from perfkit.audit.audit import AuditedLog
from perfkit.audit.claim import Claim, ClaimedNumber, ClaimState, LogNumber
from perfkit.audit.figure import TIMED, first_figure
from perfkit.audit.log_numbers import LogFigures, conversion_to, log_numbers, options_for
from perfkit.audit.quantity import significant_digits
from perfkit.measuring.units import PERCENT, TERA

Stage = Literal["claimed", "explained", "protocol", "answer"]

MOST_SKIPPED = 20
"""Prints that a source leaves out as its warm-up before it averages the others, at most."""
FEWEST_DIGITS = 5
"""Digits of a claim that such a mean reproduces, at least: one of twenty means has fewer digits
by chance."""
COARSE = 1e-4
"""Share by which the log's own rounding may move a number to a claim's digits; if it is larger,
it does not count."""
EXACT = 1 + 1e-9
"""Factor that allows for the rounding of floating-point numbers."""


def check_claim(number: ClaimedNumber, audited: LogFigures, tolerance: float = 0.0) -> Claim:
    """Check a claimed number against every number of a log in its quantity. A claim of one
    device or of all is reproduced only by such a number."""
    log = audited.log
    numbers = log_numbers(audited, number.quantity)
    if not numbers:
        needs = options_for(log, number.quantity)
        return Claim(**dict(number), log=log.name, state="no number", needs=needs)
    in_scope = [each for each in numbers if _has_scope(number, each)]
    closest = min(in_scope or numbers, key=lambda each: (each.skipped, _apart(number, each)))
    is_near = bool(in_scope) and _apart(number, closest) <= tolerance
    state, matches = _judged(number, in_scope, is_near=is_near)
    if state == "not reproduced":
        matches = [each for each in numbers if _reproduces(number, each)]
    compared = matches[0] if state == "reproduced" else closest
    reference = _in_unit_of(compared, log.answer)
    return Claim(
        **dict(number),
        log=log.name,
        state=state,
        matches=matches,
        closest=None if state == "reproduced" else closest,
        difference=compared.value / number.value - 1,
        reference=reference,
        reference_difference=reference and reference / number.value - 1,
    )


def _judged(
    number: ClaimedNumber, in_scope: list[LogNumber], *, is_near: bool
) -> tuple[ClaimState, list[LogNumber]]:
    """Return the state of a claim by the log's numbers of as many devices, and those that have
    its digits."""
    matches = [each for each in in_scope if _reproduces(number, each)]
    if matches:
        return "reproduced", [each for each in matches if not each.skipped] or matches
    if is_near:
        return "near", []
    close = [each for each in in_scope if _is_close(number, each)]
    return ("close" if close else "not reproduced"), close


def _has_scope(number: ClaimedNumber, of_log: LogNumber) -> bool:
    """Return whether a number of a log is of one device or of all as the claim says."""
    return not number.of or not of_log.of or of_log.of == number.of


def _apart(number: ClaimedNumber, of_log: LogNumber) -> float:
    return abs(of_log.value / number.value - 1)


def _has_digits(number: ClaimedNumber, of_log: LogNumber, shift: float = 0.0) -> bool:
    """Return whether a number of a log, less `shift`, is the claim to its digits and the
    log's."""
    error = of_log.rounding * of_log.value
    if error > COARSE * of_log.value:
        error = 0.0
    return abs(of_log.value - shift - number.value) <= (number.half + error) * EXACT


def _reproduces(number: ClaimedNumber, of_log: LogNumber) -> bool:
    if not _has_digits(number, of_log):
        return False
    has_many_digits = significant_digits(number.text) >= FEWEST_DIGITS
    return not of_log.skipped or (has_many_digits and of_log.skipped <= MOST_SKIPPED)


def _is_close(number: ClaimedNumber, of_log: LogNumber) -> bool:
    """Return whether a number has the claim's digits in another way: as a mean without many
    first prints, or truncated, up to one unit of the last digit above the claim."""
    is_truncated = not of_log.skipped and _has_digits(number, of_log, shift=number.half)
    return is_truncated or _has_digits(number, of_log)


def _in_unit_of(number: LogNumber, answer: Answer | None) -> float | None:
    """Return the answer in the unit of a number of its log, of one device or of all as it."""
    if not answer:
        return None
    model = answer.model
    mfu = model.mfu if model else None
    of_unit = {
        "s/step": answer.seconds_per_step,
        "steps/s": answer.steps_per_second,
        "%": PERCENT * mfu if mfu else None,
        "minutes": None,
    }
    if number.unit in of_unit:
        return of_unit[number.unit]
    speed = answer.tokens if number.unit in (TOKENS, "TFLOP/s") else answer.samples
    rate = speed.rate(of_all=number.of != "device") if speed else None
    if number.unit != "TFLOP/s":
        return rate
    return rate * model.flops_per_token / TERA if rate and model else None


# From the claim to the answer.


class WaterfallStage(NamedTuple):
    """A stage between a claimed number and the log's answer: its throughput."""

    stage: Stage
    value: float


class Waterfall(NamedTuple):
    """The stages to a log's answer, in its unit, of all devices or of one."""

    stages: list[WaterfallStage]
    unit: str
    of_all: bool


def waterfall(log: AuditedLog, claim: Claim | None = None) -> Waterfall | None:
    """Return the stages from a claim in the unit of the log's answer over the statistic that it
    is and samples / time of the protocol's steps to the answer; those of the log alone for
    another claim. None without a throughput."""
    answer = log.answer
    if not answer or not answer.speed:
        return None
    compared = claim.compared if claim else None
    is_compared = compared and compared.unit == answer.speed_unit
    of_all = answer.speed.of_all is not None
    values: dict[Stage, float | None] = {}
    if claim and compared and is_compared:
        of_all = compared.of != "device"
        values["claimed"] = claim.value
        values["explained"] = None if claim.closest else compared.value
    protocol = first_figure(log.figures, TIMED, "protocol")
    conversion = conversion_to(log, TOKENS) if answer.tokens else None
    factor = conversion.factor if conversion else 1.0
    if protocol and answer.period != "protocol":
        values["protocol"] = (protocol.rate(of_all=of_all) or 0.0) * factor
    values["answer"] = answer.speed.rate(of_all=of_all)
    stages = [WaterfallStage(stage, value) for stage, value in values.items() if value]
    return Waterfall(stages, answer.speed_unit, of_all)
