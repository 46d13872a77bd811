"""A claimed number against every figure of a log: which of them explains it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from perfkit.audit.figures import Figures, Recomputed, half_of
from perfkit.audit.findings import APART, CHANCE
from perfkit.audit.stored import AuditedLog, Claim, Explanation, Figure, Finding, State
from perfkit.text.format import FRAMEWORK_NAMES

if TYPE_CHECKING:
    from perfkit.reference.cells import Cell

NEARBY = 1e-3
"""Of the claimed number: in so wide a range on both sides figures are taken to lie anywhere."""
COARSE = 1e-4
"""A figure that rounding may move by more than this share explains no digits."""
COUNTS = [2**power for power in range(13)]
"""Numbers of devices by which a device's figure may have been multiplied."""


@dataclass(frozen=True)
class Given:
    """What is claimed, and where."""

    text: str
    value: float
    place: str
    cell: "Cell | None" = None

    @classmethod
    def of_cell(cls, cell: "Cell") -> "Given":
        return cls(cell["printed"] or "–", cell["throughput"] or 0.0, place_words(cell), cell)

    def claim(self, log: AuditedLog | None, state: State, **found: Any) -> Claim:
        cell: Cell = self.cell or {}
        nothing: dict[str, Any] = {
            "explanations": [],
            "closest": None,
            "difference": None,
            "right": None,
            "right_difference": None,
            "tried": 0,
            "chance": 0.0,
            "findings": [],
        }
        return Claim(
            text=self.text,
            value=self.value or None,
            place=self.place,
            table=cell.get("table"),
            gpu=cell.get("gpu"),
            framework=cell.get("framework"),
            precision=cell.get("precision"),
            topology=cell.get("topology"),
            batch_size=cell.get("batch_per_gpu"),
            log=log.name if log else None,
            state=state,
            **(nothing | found),
        )


def place_words(cell: "Cell") -> str:
    """Where a published number stands, in words."""
    name = FRAMEWORK_NAMES[cell["framework"]]
    words = [name, cell["precision"], cell["topology"], f"batch {cell['batch_per_gpu']}"]
    if cell["accumulates"] is not None:
        words.append(cell["note"])
    return f"{cell['table']}: {', '.join(words)}, {cell['gpu']}"


class Candidate(NamedTuple):
    """What a figure may be claimed as: of all devices (None), of one, or of another count."""

    figure: Figure
    devices: int | None
    value: float


def judged(
    given: Given, one: Recomputed, tolerance: float, *, ambiguous: bool = False
) -> Claim:
    """A claimed number against every figure of a log."""
    log, claimed = one.log, given.value
    candidates = _candidates(one.figures)
    if not candidates:
        return given.claim(log, "no number")
    explanations, chance = _explained(given, candidates)
    closest = _closest(claimed, candidates)
    difference = closest.value / claimed - 1
    throughput = log.right.throughput if log.right else None
    claim = given.claim(
        log,
        _state(explanations, difference, log, tolerance),
        explanations=explanations,
        closest=closest.figure,
        difference=difference,
        right=log.right,
        right_difference=throughput / claimed - 1 if throughput else None,
        tried=len(candidates),
        chance=chance,
    )
    found = [
        Finding(name=name, file=log.name, line=None, figures=told)
        for name, told in _findings(claim, log, ambiguous)
    ]
    return claim.model_copy(update={"findings": found})


def _candidates(figures: Figures) -> list[Candidate]:
    """The simplest first: as the log has it, then of another count of devices than it has."""
    found = []
    for figure in (*figures.shown, *figures.skipping):
        device, every = figure.per_device, figure.throughput
        if every:
            found.append(Candidate(figure, None, every))
        if device:
            ranks = round(every / device) if every else None
            found += [Candidate(figure, n, n * device) for n in COUNTS if n != ranks]
    return sorted(found, key=lambda one: one.devices is not None)


def _explained(given: Given, candidates: list[Candidate]) -> tuple[list[Explanation], float]:
    """Those that are the claimed number to its digits, and how many of the candidates up to
    the first of them would be by chance."""
    claimed, half = given.value, half_of(given.text)
    explanations: list[Explanation] = []
    chance = 0.0
    for figure, devices, value in candidates:
        rounding = figure.rounding * value
        width = half + rounding
        apart, allowed = abs(value - claimed), width * (1 + 1e-9)
        if rounding > max(COARSE * value, half * (1 + 1e-9)):
            continue
        if apart > max(NEARBY * claimed, allowed):
            continue
        if not explanations:
            chance += min(width / (NEARBY * claimed), 1.0)
        if apart <= allowed:
            explanations.append(Explanation(figure=figure, devices=devices, value=value))
    return explanations, chance


def _closest(claimed: float, candidates: list[Candidate]) -> Candidate:
    """Of what the log itself has or, where that is nothing, of all."""
    whole = [one for one in candidates if one.devices is None]
    return min(whole or candidates, key=lambda one: abs(one.value - claimed))


def _state(
    explanations: list[Explanation], difference: float, log: AuditedLog, tolerance: float
) -> State:
    # By a count of devices that is not the log's own, it is explained, but not reproduced; what
    # the log says itself is as it says it.
    own = any(
        one.devices is None or (one.figure.statistic, one.devices) == ("told", 1)
        for one in explanations
    )
    if own or (explanations and log.fact("ranks") is None):
        return "reproduced"
    return "near" if abs(difference) <= tolerance else "not reproduced"


def _findings(
    claim: Claim, log: AuditedLog, ambiguous: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    for key in ("batch_size", "precision"):
        of, own = getattr(claim, key), log.fact(key)
        if None not in (of, own) and own != of:
            yield "other_work", {"key": key, "claimed": of, "log": own}
    if ambiguous:
        yield "ambiguous", {}
    if not claim.explanations:
        return
    best = claim.explanations[0]
    figure = best.figure
    if best.devices is not None:
        yield "other_count", {"devices": best.devices, "value": best.value}
    share = claim.right_difference
    if figure.statistic != "samples/time" and share is not None and abs(share) > APART:
        assert claim.right
        value, steps = claim.right.throughput, {"first": claim.right.first}
        steps |= {"last": claim.right.last}
        yield "other_statistic", {"difference": share, "right": value, **steps}
    if "running" in log.covers and figure.statistic in ("mean of rates", "mean after skipping"):
        yield "mean_of_running", {"skipped": figure.skipped}
    warm = next(
        (f for f in log.figures if (f.statistic, f.period) == (figure.statistic, "warm")), None
    )
    if figure.period == "all" and not figure.skipped and warm and warm.throughput:
        share = best.value / warm.throughput - 1
        if best.devices is None and abs(share) > APART / 5:
            yield "warm_up_inside", {"warm": warm.throughput, "difference": share}
    if claim.chance > CHANCE:
        yield "by_chance", {"chance": claim.chance}
