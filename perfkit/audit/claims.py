"""Check a claimed number against the figures of a log: which figure explains it, and the stages
from the claim down to the steady throughput."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from perfkit.audit.audit import (
    AuditedLog,
    Claim,
    ClaimedNumber,
    ClaimState,
    Explanation,
    LocatedFinding,
    Stage,
    WaterfallStage,
    is_of_one_device,
)
from perfkit.audit.figure import Figure, claimable
from perfkit.audit.findings import APART
from perfkit.audit.recompute import OF_ONE, Figures, half_of
from perfkit.audit.samples import rate_unit, unit_of_figures
from perfkit.audit.statements import (
    ByChance,
    Finding,
    MeanOfRunning,
    OtherCount,
    OtherStatistic,
    Truncated,
    WarmUpInside,
)

NEARBY = 1e-3
"""Share of the claim on both sides within which figures are assumed uniformly distributed."""
COARSE = 1e-4
"""A figure that rounding may move by more than this share cannot explain a claim's digits."""
EXACT = 1 + 1e-9
"""Factor that allows for the rounding of floating-point numbers."""
COUNTS = [2**power for power in range(13)]
"""Device counts by which the figure of one device may have been multiplied."""
CHANCE = 0.2
"""Expected number of chance matches above which an explanation is weak."""
SAME = 1e-12
"""Share by which computing may change a number."""
FEWEST_TRIED = 10
"""Figures below which nothing is told of chance: few figures near the claim are no sample."""
WARM_UP_APART = 0.001
"""Share by which the first steps must change a figure to be reported."""


class LogFigures(NamedTuple):
    """A log, and all figures of it."""

    log: AuditedLog
    figures: Figures


class Candidate(NamedTuple):
    """A figure as it may be claimed: of all devices (None) or times a device count."""

    figure: Figure
    devices: int | None
    value: float


def check_claim(
    number: ClaimedNumber,
    audited: LogFigures,
    tolerance: float = 0.0,
    findings: Iterable[Finding] = (),
) -> Claim:
    """Check a claimed number against every figure of a log. `findings` are those of the search
    for a matching log."""
    log, figures = audited
    candidates = _candidates(figures)
    if not candidates:
        return Claim(**dict(number), log=log.name, state="no number")
    explanations, chance = _explained(number, candidates)
    closest = _closest(number, candidates)
    shown = explanations[0].figure if explanations else closest.figure
    difference = closest.value / number.value - 1
    reference = log.reference
    reference_difference = None
    of_all = not is_of_one_device(number, explanations)
    reference_rate = reference.rate(of_all=of_all) if reference else None
    if reference_rate:
        reference_difference = reference_rate / number.value - 1
    claim = Claim(
        **dict(number),
        log=log.name,
        unit=unit_of_figures(figures.log.facts, [shown]),
        state=_state(number, log, explanations, abs(difference) <= tolerance),
        explanations=explanations,
        closest=closest.figure,
        difference=difference,
        reference=reference,
        reference_difference=reference_difference,
        tried=len(candidates),
        chance=chance,
        waterfall=waterfall(number.value, explanations, log, of_all=of_all),
    )
    located = []
    for finding in (*findings, *_of_explanation(claim, audited)):
        located.append(LocatedFinding(finding=finding))
    return claim.model_copy(update={"findings": located})


def _candidates(figures: Figures) -> list[Candidate]:
    """Return the candidates: first with the log's own device count, then with others."""
    whole, multiplied = [], []
    for figure in claimable([*figures.shown, *figures.skipping]):
        per_device, throughput = figure.per_device, figure.throughput
        if throughput:
            whole.append(Candidate(figure, None, throughput))
        if per_device:
            ranks = round(throughput / per_device) if throughput else None
            for count in COUNTS:
                if count != ranks:
                    multiplied.append(Candidate(figure, count, count * per_device))
    return whole + multiplied


def _closest(number: ClaimedNumber, candidates: list[Candidate]) -> Candidate:
    """Return the candidate next to the claim, with the log's own device count if known."""
    own_count = [candidate for candidate in candidates if candidate.devices is None]
    if not own_count:
        own_count = [candidate for candidate in candidates if candidate.devices == 1]
    return min(own_count, key=lambda candidate: abs(candidate.value - number.value))


def _state(
    number: ClaimedNumber, log: AuditedLog, explanations: list[Explanation], is_near: bool
) -> ClaimState:
    """Return the state of a claim that a log has figures for. Another device count than the
    log's explains a claim without reproducing it; figures that the log reports count as
    printed."""
    if is_of_one_device(number, explanations):
        return "reproduced"
    for explanation in explanations:
        is_reported = explanation.figure.statistic == "reported" and explanation.devices == 1
        if explanation.devices is None or is_reported or log.fact("ranks") is None:
            return "reproduced"
    return "near" if is_near else "not reproduced"


def _explained(
    number: ClaimedNumber, candidates: list[Candidate]
) -> tuple[list[Explanation], float]:
    """Return the candidates equal to the claim to its digits, rounded or else truncated, and
    how many of those up to the first such candidate are expected to match by chance."""
    values = [candidate.value for candidate in candidates]
    rounding = [candidate.figure.rounding for candidate in candidates]
    matching = match_digits(number.value, half_of(number.text), values, rounding)
    explanations = []
    for index in matching.indices:
        figure, devices, value = candidates[index]
        explanation = Explanation(
            figure=figure, devices=devices, value=value, truncated=matching.is_truncated
        )
        explanations.append(explanation)
    return explanations, matching.chance


class Matching(NamedTuple):
    """The candidates whose digits are the claim's, by their indices; whether these digits are
    truncated; how many equally simple candidates are expected to match by chance."""

    indices: list[int]
    is_truncated: bool
    chance: float


def match_digits(
    claimed: float, half: float, values: Sequence[float], rounding: Sequence[float]
) -> Matching:
    """Find the values equal to a claim to its digits, rounded or else truncated. `half` is half
    a unit of the claim's last digit, `rounding` the share by which rounding may move each
    value; the values are sorted, the simplest first."""
    candidates = np.array(values)
    errors = np.array(rounding) * candidates
    width = half + errors
    is_sharp = errors <= np.maximum(COARSE * candidates, half * EXACT)
    nearby = NEARBY * claimed
    for is_truncated in (False, True):
        # A truncated value lies up to one unit of the last digit above the claim.
        middle = claimed + half if is_truncated else claimed
        distances = np.abs(candidates - middle)
        matching = np.flatnonzero(is_sharp & (distances <= width * EXACT))
        is_near = is_sharp & (distances <= np.maximum(nearby, width * EXACT))
        if len(matching):
            # Candidates after the first match are less simple.
            is_near[matching[0] + 1 :] = False
        chances = np.minimum(width / nearby, 1)
        chance = float(chances[is_near].sum())
        if len(matching) or not half:
            break
    return Matching(matching.tolist(), is_truncated, chance)


def waterfall(
    claimed: float | None,
    explanations: list[Explanation],
    log: AuditedLog,
    *,
    of_all: bool = True,
) -> list[WaterfallStage]:
    """Return the stages from the claim over its explanation and samples / time of the
    protocol's steps to all steady steps, as far as known, of all devices or of one, with the
    difference between successive stages."""
    stages: list[WaterfallStage] = []

    def add(stage: Stage, value: float | None, figure: Figure | None) -> None:
        if not value:
            return
        difference = value / stages[-1].value - 1 if stages else None
        stages.append(
            WaterfallStage(stage=stage, value=value, difference=difference, figure=figure)
        )

    add("claimed", claimed, None)
    if explanations:
        add("explained", explanations[0].value, explanations[0].figure)
    periods: tuple[Literal["protocol", "steady"], ...] = ("protocol", "steady")
    for period in periods:
        figure = log.figure(period)
        if figure:
            add(period, figure.rate(of_all=of_all), figure)
    return stages


def _of_explanation(claim: Claim, audited: LogFigures) -> Iterator[Finding]:
    """Yield the findings about the simplest explanation of a claim."""
    if not claim.explanations:
        return
    log = audited.log
    best = claim.explanations[0]
    statistic = best.figure.statistic
    if best.truncated:
        yield Truncated(value=best.value, claimed=claim.text)
    of_all = not claim.is_of_one_device
    if best.devices is not None and of_all and log.fact("ranks") is not None:
        yield OtherCount(devices=best.devices, value=best.value)
    if statistic != "samples/time" and not audited.figures.is_sampled:
        yield from _other_statistic(claim, of_all=of_all)
    if log.covers == "running" and statistic in ("mean of rates", "mean after skipping"):
        yield MeanOfRunning(skipped=best.figure.skipped)
    if best.devices is None and audited.figures.has_warmup:
        unit = rate_unit(audited.figures.log, of_all=True)
        yield from _warm_up_inside(best, log, unit)
    yield from by_chance(claim, is_own_number=_is_own_number(claim, best))


def by_chance(claim: Claim, *, is_own_number: bool) -> Iterator[ByChance]:
    """Yield the finding that a claim has so few digits that its explanation may be one by
    chance, unless this is a number that the log tells itself."""
    if claim.chance > CHANCE and claim.tried >= FEWEST_TRIED and not is_own_number:
        yield ByChance(chance=claim.chance)


def _is_own_number(claim: Claim, best: Explanation) -> bool:
    """Whether an explanation is a number that the log tells itself, of its own devices."""
    is_own_count = best.devices in (None, 1)
    return is_own_count and is_own_figure(best.figure, best.value, claim.value)


def is_own_figure(figure: Figure, value: float, claimed: float) -> bool:
    """Whether the value of a figure is one that the log reports or, digit by digit, a rate that
    it prints: of the many rates of its lines, some are close to any claim."""
    if figure.statistic == "reported":
        return True
    return figure.statistic in OF_ONE and is_same_number(value, claimed)


def is_same_number(value: float, other: float) -> bool:
    """Whether two numbers are equal but for the errors of computing with them."""
    return abs(value - other) <= SAME * abs(other)


def _other_statistic(claim: Claim, *, of_all: bool) -> Iterator[Finding]:
    reference, difference = claim.reference, claim.reference_difference
    rate = reference.rate(of_all=of_all) if reference else None
    if reference and rate and difference is not None and abs(difference) > APART:
        unit = claim.unit_of(of_all=of_all)
        yield OtherStatistic(
            difference=difference, reference=rate, unit=unit, **reference.ends()
        )


def _warm_up_inside(best: Explanation, log: AuditedLog, unit: str) -> Iterator[Finding]:
    figure = best.figure
    warm = log.figure("warm", "protocol", of=[figure.statistic])
    if figure.period != "all" or figure.skipped or not warm or not warm.throughput:
        return
    difference = best.value / warm.throughput - 1
    if abs(difference) > WARM_UP_APART:
        yield WarmUpInside(warm=warm.throughput, unit=unit, difference=difference)
