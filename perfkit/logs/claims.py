"""A claimed number against every figure of a log: which of them explains it, and how it comes
down to the steady throughput; and the published numbers at whose place a log stands."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfkit.logs.audit import (
    AuditedLog,
    Claim,
    Explanation,
    Figure,
    Stage,
    State,
    WaterfallStage,
)
from perfkit.logs.recompute import Figures, half_of
from perfkit.messages import Message
from perfkit.reference.cells import Cell
from perfkit.reference.matches import place_of
from perfkit.results.schema import Finding
from perfkit.text.format import FRAMEWORK_NAMES

NEARBY = 1e-3
"""Of the claimed number: in so wide a range on both sides figures are taken to lie anywhere."""
COARSE = 1e-4
"""A figure that rounding may move by more than this share explains no digits."""
COUNTS = [2**power for power in range(13)]
"""Numbers of devices by which a device's figure may have been multiplied."""
APART = 0.005
"""Figures that differ by more than this share are told apart."""
CHANCE = 0.2
"""So many figures expected to agree by chance make an explanation weak."""
HALF = ("amp", "pure_fp16")
"""What one calls automatic mixed precision, another calls float16."""


@dataclass(frozen=True)
class ClaimInput:
    """What is claimed, and where."""

    text: str
    value: float
    place: str
    cell: Cell | None = None

    @classmethod
    def of_cell(cls, cell: Cell) -> "ClaimInput":
        name = FRAMEWORK_NAMES[cell["framework"]]
        words = [name, cell["precision"], cell["topology"], f"batch {cell['batch_per_gpu']}"]
        words += [] if cell["accumulates"] is None else [cell["note"]]
        place = f"{cell['table']}: {', '.join(words)}, {cell['gpu']}"
        return cls(cell["printed"] or "–", cell["throughput"] or 0.0, place, cell)

    def claim(self, log: AuditedLog | None, state: State, **found: Any) -> Claim:
        cell: Cell = self.cell or {}
        keys = ("table", "gpu", "framework", "precision", "topology")
        found |= {key: cell.get(key) for key in keys}
        return Claim(
            text=self.text,
            value=self.value or None,
            place=self.place,
            log=log.name if log else None,
            state=state,
            batch_size=cell.get("batch_per_gpu"),
            **found,
        )


class Candidate(NamedTuple):
    """What a figure may be claimed as: of all devices (None), of one, or of another count."""

    figure: Figure
    devices: int | None
    value: float


def check_claim(
    given: ClaimInput,
    log: AuditedLog,
    figures: Figures,
    tolerance: float = 0.0,
    *,
    ambiguous: bool = False,
) -> Claim:
    """A claimed number against every figure of a log."""
    candidates = _candidates(figures)
    if not candidates:
        return given.claim(log, "no number")
    explanations, chance = _explained(given, candidates)
    closest = _closest(given.value, candidates)
    difference = closest.value / given.value - 1
    throughput = log.reference.throughput if log.reference else None
    claim = given.claim(
        log,
        _state(explanations, difference, log, tolerance),
        explanations=explanations,
        closest=closest.figure,
        difference=difference,
        reference=log.reference,
        reference_difference=throughput / given.value - 1 if throughput else None,
        tried=len(candidates),
        chance=chance,
        waterfall=waterfall(given.value, explanations, log),
    )
    found = [Finding(m.code, m.params, log.name) for m in _findings(claim, log, ambiguous)]
    return claim.model_copy(update={"findings": found})


def _candidates(figures: Figures) -> list[Candidate]:
    """The simplest first: as the log has it, then of another count of devices than it has."""
    found = []
    for figure in (*figures.shown, *figures.skipping):
        if figure.period == "steady":
            continue
        device, whole = figure.per_device, figure.throughput
        if whole:
            found.append(Candidate(figure, None, whole))
        if device:
            ranks = round(whole / device) if whole else None
            found += [Candidate(figure, n, n * device) for n in COUNTS if n != ranks]
    return sorted(found, key=lambda one: one.devices is not None)


def _explained(
    given: ClaimInput, candidates: list[Candidate]
) -> tuple[list[Explanation], float]:
    """Those that are the claimed number to its digits, rounded or, if none is, truncated; and
    how many of the candidates up to the first of them would be by chance."""
    claimed, half = given.value, half_of(given.text)
    for truncated in (False, True):
        explanations: list[Explanation] = []
        chance = 0.0
        for figure, devices, value in candidates:
            rounding = figure.rounding * value
            width = half + rounding
            # What is truncated lies up to a whole digit above what is left.
            apart = abs(value - claimed - (half if truncated else 0.0))
            allowed = width * (1 + 1e-9)
            if rounding > max(COARSE * value, half * (1 + 1e-9)):
                continue
            if apart > max(NEARBY * claimed, allowed):
                continue
            if not explanations:
                chance += min(width / (NEARBY * claimed), 1.0)
            if apart <= allowed:
                explanations.append(
                    Explanation(
                        figure=figure, devices=devices, value=value, truncated=truncated
                    )
                )
        if explanations or not half:
            break
    return explanations, chance


def _closest(claimed: float, candidates: list[Candidate]) -> Candidate:
    """Of what the log itself has or, where that is nothing, of all."""
    whole = [one for one in candidates if one.devices is None]
    return min(whole or candidates, key=lambda one: abs(one.value - claimed))


def _state(
    explanations: list[Explanation], difference: float, log: AuditedLog, tolerance: float
) -> State:
    # By a count of devices that is not the log's own, it is explained, but not reproduced; what
    # the log reports itself is as it reports it.
    own = any(
        one.devices is None or (one.figure.statistic, one.devices) == ("reported", 1)
        for one in explanations
    )
    if own or (explanations and log.fact("ranks") is None):
        return "reproduced"
    return "near" if abs(difference) <= tolerance else "not reproduced"


def waterfall(
    claimed: float | None, explanations: list[Explanation], log: AuditedLog
) -> list[WaterfallStage]:
    """From the claim over what explains it and samples / time of the protocol's steps to all
    steady steps, each with its difference from the one before; as far as the log gives them."""
    stages: list[tuple[Stage, float | None, Figure | None]] = [("claimed", claimed, None)]
    if explanations:
        stages.append(("explained", explanations[0].value, explanations[0].figure))
    protocol = log.figure("samples/time", "protocol") or log.figure("clock", "protocol")
    stages.append(("protocol", protocol.throughput if protocol else None, protocol))
    stages.append(("steady", log.steady.throughput if log.steady else None, log.steady))
    found: list[WaterfallStage] = []
    for stage, value, figure in stages:
        if value:
            difference = value / found[-1].value - 1 if found else None
            found.append(
                WaterfallStage(stage=stage, value=value, difference=difference, figure=figure)
            )
    return found


def _findings(claim: Claim, log: AuditedLog, ambiguous: bool) -> Iterator[Message]:
    for key in ("batch_size", "precision"):
        of, own = getattr(claim, key), log.fact(key)
        if None not in (of, own) and own != of:
            yield Message("other_work", {"key": key, "claimed": of, "log": own})
    if ambiguous:
        yield Message("ambiguous", {})
    if not claim.explanations:
        return
    best = claim.explanations[0]
    figure, reference = best.figure, claim.reference
    if best.truncated:
        yield Message("truncated", {"value": best.value, "claimed": claim.text})
    if best.devices is not None:
        yield Message("other_count", {"devices": best.devices, "value": best.value})
    share = claim.reference_difference
    if figure.statistic != "samples/time" and reference and abs(share or 0.0) > APART:
        steps = {"first": reference.first, "last": reference.last}
        value = {"difference": share, "reference": reference.throughput}
        yield Message("other_statistic", value | steps)
    means = ("mean of rates", "mean after skipping")
    if log.covers == "running" and figure.statistic in means:
        yield Message("mean_of_running", {"skipped": figure.skipped})
    warm = log.figure(figure.statistic, "warm")
    if figure.period == "all" and not figure.skipped and warm and warm.throughput:
        share = best.value / warm.throughput - 1
        if best.devices is None and abs(share) > APART / 5:
            yield Message("warm_up_inside", {"warm": warm.throughput, "difference": share})
    if claim.chance > CHANCE:
        yield Message("by_chance", {"chance": claim.chance})


# The published numbers at whose place a log stands.

Audited = tuple[AuditedLog, Figures]


def claims_of_tables(
    cells: list[Cell], logs: list[Audited], tolerance: float
) -> Iterator[Claim]:
    """Each cell beside every log at its place; those that no log stands at, too."""
    found: dict[int, list[Claim]] = {}
    for log, figures in logs:
        for some in cells_for(log, cells):
            for cell, claim in _kept(some, log, figures, tolerance):
                found.setdefault(id(cell), []).append(claim)
    for cell in cells:
        if cell["status"] == "published":
            yield from found.get(id(cell)) or [ClaimInput.of_cell(cell).claim(None, "no log")]


def _kept(
    cells: list[Cell], log: AuditedLog, figures: Figures, tolerance: float
) -> Iterator[tuple[Cell, Claim]]:
    """Of the cells of a table that may be a log's, those that it gives or, if it gives none,
    those of its batch and precision."""
    alike = [cell for cell in cells if not differs(log, cell)]
    several = len(alike) > 1
    claims = [
        (
            cell,
            check_claim(ClaimInput.of_cell(cell), log, figures, tolerance, ambiguous=several),
        )
        for cell in cells
    ]
    given = [
        (cell, claim)
        for cell, claim in claims
        if claim.state == "reproduced" and (cell in alike or claim.chance <= CHANCE)
    ]
    yield from given or [(cell, claim) for cell, claim in claims if cell in alike]


def differs(log: AuditedLog, cell: Cell) -> dict[str, tuple[Any, Any]]:
    """In what a log differs from a cell, of what it may: what is published and the log's."""
    both = {
        "batch_size": (cell["batch_per_gpu"], log.fact("batch_size")),
        "precision": (cell["precision"], log.fact("precision")),
    }
    return {key: (of, own) for key, (of, own) in both.items() if own not in (None, of)}


def cells_for(log: AuditedLog, cells: list[Cell]) -> Iterator[list[Cell]]:
    """Of each table, the published cells that may be a log's: of its model, framework,
    topology, accumulation and GPU as far as it tells them; where nothing else tells the model,
    its path may. Inference stands at none."""
    if "framework" not in log.facts or log.fact("mode") == "inference":
        return
    like = [cell for cell in cells if cell["status"] == "published" and _is_place(log, cell)]
    for table in dict.fromkeys(cell["table"] for cell in like):
        yield [cell for cell in like if cell["table"] == table]


def _is_place(log: AuditedLog, cell: Cell) -> bool:
    own = place_of(cell)
    if log.fact("model") is None and own["model"] not in log.name.lower():
        return False
    place: dict[str, Any] = {
        "model": own["model"],
        "framework": own["framework"],
        "nodes": cell["nodes"],
        "devices": cell["gpus_per_node"],
        "ranks": cell["nodes"] * cell["gpus_per_node"],
        "gpu": cell["gpu"].split("-")[0].upper(),
    }
    accumulated = log.fact("accumulate")
    if accumulated and cell["accumulates"] is (accumulated == 1):
        return False
    if (log.fact("precision") in HALF) != (cell["precision"] in HALF) and log.fact("precision"):
        return False
    return all(log.fact(key) in (None, value) for key, value in place.items())
