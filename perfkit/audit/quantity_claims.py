"""Check a claim with a unit against the numbers of a log in the same quantity."""

from collections.abc import Iterable, Iterator

from perfkit.audit.answer import (
    TOKENS,
    counts_every_expert,
    every_expert_counted,
    log_datasheet,
    parameters_of_token,
)
from perfkit.audit.audit import (
    GIVEN,
    AuditedLog,
    Claim,
    ClaimedNumber,
    ClaimState,
    LocatedFinding,
)
from perfkit.audit.claims import (
    LogFigures,
    by_chance,
    is_own_figure,
    is_same_number,
    match_digits,
)
from perfkit.audit.figure import common_rates, unit_for
from perfkit.audit.findings import APART
from perfkit.audit.log_quantities import AS_PRINTED, log_quantities, reported_step_rates
from perfkit.audit.quantity import Claimed, LogQuantity, unit_text
from perfkit.audit.recompute import half_of
from perfkit.audit.samples import unit_of
from perfkit.audit.statements import (
    ClaimNeeds,
    Finding,
    FlopsOverPeak,
    MeanOfRunning,
    OfAllDevices,
    OfOneDevice,
    OtherStatistic,
    PrintedBasis,
    ReportedBasis,
    SparsePeak,
    Truncated,
)

BY_FLOPS = ("TFLOP/s", "MFU")
"""Quantities to which a throughput is converted by the parameters."""


def check_quantity(claimed: Claimed, audited: LogFigures, tolerance: float = 0.0) -> Claim:
    """Check a claimed quantity against every number of a log in that quantity.

    A claim that says whether it is of one device or of all is reproduced only by such a number;
    for others, the number that reproduces it tells."""
    log, figures = audited
    number = ClaimedNumber(
        text=claimed.text,
        value=claimed.value,
        place=GIVEN,
        quantity=claimed.kind,
        of=claimed.of,
    )
    candidates = _sorted_by_scope(log_quantities(log, figures, claimed.kind), claimed)
    if not candidates:
        claim = Claim(**dict(number), log=log.name, state="no number")
        findings = [*_of_experts(claimed, log), *_needed(claimed, log)]
        return _with_findings(claim, findings)
    values = [candidate.value for candidate in candidates]
    rounding = [candidate.rounding for candidate in candidates]
    matching = match_digits(claimed.value, claimed.half, values, rounding)
    matches = [candidates[index] for index in matching.indices]
    closest = _closest(candidates, claimed)
    difference = closest.value / claimed.value - 1
    is_near = _has_scope(closest, claimed) and abs(difference) <= tolerance
    claim = Claim(
        **dict(number),
        log=log.name,
        state=_state(matches, claimed, is_near),
        quantities=matches,
        closest_quantity=closest,
        difference=difference,
        tried=len(candidates),
        chance=matching.chance,
    )
    if not matches:
        return _with_findings(claim, _of_experts(claimed, log))
    return _with_findings(claim, _findings(claim, audited, claimed, matching.is_truncated))


def claim_of_step_rate(number: ClaimedNumber, log: AuditedLog) -> Claim | None:
    """Return the claim of a number without a unit as the updates per second that a log reports
    itself; None if it has other digits."""
    rates = reported_step_rates(log)
    values = [rate.value for rate in rates]
    rounding = [rate.rounding for rate in rates]
    matching = match_digits(number.value, half_of(number.text), values, rounding)
    if not matching.indices:
        return None
    matches = [rates[index] for index in matching.indices]
    claimed = number.model_copy(update={"quantity": "steps/s"})
    claim = Claim(
        **dict(claimed),
        log=log.name,
        state="reproduced",
        quantities=matches,
        tried=len(rates),
        chance=matching.chance,
    )
    if not matching.is_truncated:
        return claim
    return _with_findings(claim, [Truncated(value=matches[0].value, claimed=number.text)])


def _with_findings(claim: Claim, findings: Iterable[Finding]) -> Claim:
    located = []
    for finding in findings:
        located.append(LocatedFinding(finding=finding))
    return claim.model_copy(update={"findings": located})


def _of_experts(claimed: Claimed, log: AuditedLog) -> Iterator[Finding]:
    """Yield the finding that no throughput is converted by FLOPs because of the experts."""
    if claimed.kind in BY_FLOPS:
        yield from every_expert_counted(log.facts)


def _needed(claimed: Claimed, log: AuditedLog) -> Iterator[ClaimNeeds]:
    """Yield what the command line has to state for a throughput of tokens in the claimed
    quantity, if anything."""
    unit = unit_of(log.facts)
    if not log.figures or unit not in (TOKENS, "samples/s"):
        return
    options = []
    if claimed.kind == "MFU" and log_datasheet(log.facts) is None:
        options.append("-p gpu_model NAME")
    is_of_experts = counts_every_expert(log.facts)
    if claimed.kind in BY_FLOPS and not is_of_experts and not parameters_of_token(log.facts):
        options.append("-p parameters N")
    by_length = ("samples/s",) if unit == TOKENS else ("tokens/s", *BY_FLOPS)
    if claimed.kind in by_length and log.fact("sequence_length") is None:
        options.append("-p sequence_length N")
    if options:
        yield ClaimNeeds(quantity=claimed.kind, options=options)


def _has_scope(quantity: LogQuantity, claimed: Claimed) -> bool:
    """Return whether a number is of one device or of all as the claim says."""
    return not claimed.of or not quantity.of or quantity.of == claimed.of


def _closest(candidates: list[LogQuantity], claimed: Claimed) -> LogQuantity:
    """Return the number closest to the claim, among those with the claim's scope if any."""
    same_scope = [candidate for candidate in candidates if _has_scope(candidate, claimed)]
    return min(
        same_scope or candidates, key=lambda candidate: abs(candidate.value - claimed.value)
    )


def _sorted_by_scope(candidates: list[LogQuantity], claimed: Claimed) -> list[LogQuantity]:
    """Return the candidates with the claim's scope, then the others."""
    return sorted(candidates, key=lambda candidate: not _has_scope(candidate, claimed))


def _state(matches: list[LogQuantity], claimed: Claimed, is_near: bool) -> ClaimState:
    if any(_has_scope(match, claimed) for match in matches):
        return "reproduced"
    return "near" if is_near else "not reproduced"


def _findings(
    claim: Claim, audited: LogFigures, claimed: Claimed, is_truncated: bool
) -> Iterator[Finding]:
    """Yield the findings about the simplest number that reproduces a claim."""
    best = claim.quantities[0]
    if is_truncated:
        yield Truncated(value=best.value, claimed=claimed.text)
    if best.of and not _has_scope(best, claimed):
        yield OfAllDevices() if best.of == "all" else OfOneDevice()
    if isinstance(best.conversion, FlopsOverPeak) and best.conversion.sparse:
        # Sparsity doubles the peak.
        yield SparsePeak(share=2 * best.value / 100)
    yield from _about_figure(best, audited, unit_text(claimed.kind, claimed.text))
    yield from by_chance(claim, is_own_number=_is_own_number(best, claimed))


def _is_own_number(best: LogQuantity, claimed: Claimed) -> bool:
    """Whether a number is one that the log reports or, digit by digit, one that it prints."""
    if best.conversion or not _has_scope(best, claimed):
        return False
    if isinstance(best.basis, ReportedBasis):
        return True
    if isinstance(best.basis, PrintedBasis):
        is_printed = best.basis.statistic in AS_PRINTED
        return is_printed and is_same_number(best.value, claimed.value)
    return bool(best.figure and is_own_figure(best.figure, best.value, claimed.value))


def _about_figure(best: LogQuantity, audited: LogFigures, unit: str) -> Iterator[Finding]:
    """Yield the findings about a statistic that is not samples / time, in the claim's
    `unit`."""
    figure, reference = best.figure, audited.log.reference
    if figure is None or figure.statistic == "samples/time" or audited.figures.is_sampled:
        return
    rates = common_rates(reference, figure) if reference else None
    if reference and rates and abs(rates.difference) > APART:
        yield OtherStatistic(
            difference=rates.difference,
            reference=best.value * (1 + rates.difference),
            unit=unit_for(unit, of_all=best.of != "device"),
            **reference.ends(),
        )
    is_mean = figure.statistic in ("mean of rates", "mean after skipping")
    if audited.log.covers == "running" and is_mean:
        yield MeanOfRunning(skipped=figure.skipped)
