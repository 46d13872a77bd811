"""A claimed number against every figure of a log: which of them explains it, and how it comes
down to the steady throughput; and the published numbers at whose place a log stands."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

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
from perfkit.reference import Cell
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
"""Share by which figures must differ to be distinguished."""
CHANCE = 0.2
"""So many figures expected to agree by chance make an explanation weak."""
MAY_DIFFER = ("batch_size", "precision")
"""In these a log may differ from the cell whose number it gives, which is reported."""
HALF = ("amp", "pure_fp16")
"""What one calls automatic mixed precision, another calls float16."""
Audited = tuple[AuditedLog, Figures]
Given = Mapping[str, Any]
"""What is claimed, and where: fields of a Claim, at least its text, value and place."""


class Candidate(NamedTuple):
    """What a figure may be claimed as: of all devices (None), of one, or of another count."""

    figure: Figure
    devices: int | None
    value: float


def check_claim(
    given: Given,
    log: AuditedLog,
    figures: Figures,
    tolerance: float = 0.0,
    found: Iterable[Message] = (),
) -> Claim:
    """A claimed number against every figure of a log; `found` is what its place shows."""
    candidates, value = _candidates(figures), given["value"]
    if not candidates:
        return Claim(**given, log=log.name, state="no number")
    explanations, chance = _explained(given, candidates)
    # The closest of what the log itself has or, where that is nothing, of all.
    whole = [one for one in candidates if one.devices is None] or candidates
    closest = min(whole, key=lambda one: abs(one.value - value))
    difference = closest.value / value - 1
    # By a count of devices that is not the log's own, it is explained, but not reproduced; what
    # the log reports itself is as it reports it.
    own = any(
        one.devices is None or (one.figure.statistic, one.devices) == ("reported", 1)
        for one in explanations
    )
    state: State = "near" if abs(difference) <= tolerance else "not reproduced"
    if own or (explanations and log.fact("ranks") is None):
        state = "reproduced"
    throughput = log.reference.throughput if log.reference else None
    claim = Claim(
        **given,
        log=log.name,
        state=state,
        explanations=explanations,
        closest=closest.figure,
        difference=difference,
        reference=log.reference,
        reference_difference=throughput / value - 1 if throughput else None,
        tried=len(candidates),
        chance=chance,
        waterfall=waterfall(value, explanations, log),
    )
    found = [*found, *_of_explanation(claim, log)]
    findings = [Finding(message.code, message.params, log.name) for message in found]
    return claim.model_copy(update={"findings": findings})


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


def _explained(given: Given, candidates: list[Candidate]) -> tuple[list[Explanation], float]:
    """Those that are the claimed number to its digits, rounded or, if none is, truncated; and
    how many of the candidates up to the first of them would be by chance."""
    half, nearby = half_of(given["text"]), NEARBY * given["value"]
    values = np.array([one.value for one in candidates])
    rounding = np.array([one.figure.rounding for one in candidates]) * values
    width, allowed = half + rounding, (half + rounding) * (1 + 1e-9)
    sharp = rounding <= np.maximum(COARSE * values, half * (1 + 1e-9))
    for truncated in (False, True) if half else (False,):
        # What is truncated lies up to a whole digit above what is left.
        apart = np.abs(values - given["value"] - (half if truncated else 0.0))
        right = np.flatnonzero(sharp & (apart <= allowed))
        tried = slice(right[0] + 1 if len(right) else None)
        near = (sharp & (apart <= np.maximum(nearby, allowed)))[tried]
        chance = float(np.minimum(width[tried] / nearby, 1)[near].sum())
        if len(right):
            break
    found = [candidates[k]._asdict() | {"truncated": truncated} for k in right]
    return [Explanation(**one) for one in found], chance


def waterfall(
    claimed: float | None, explanations: list[Explanation], log: AuditedLog
) -> list[WaterfallStage]:
    """From the claim over what explains it and samples / time of the protocol's steps to all
    steady steps, each with its difference from the one before; as far as the log gives them."""
    protocol = log.figure("samples/time", "protocol") or log.figure("clock", "protocol")
    stages: list[tuple[Stage, float | None, Figure | None]] = [
        ("claimed", claimed, None),
        *(("explained", one.value, one.figure) for one in explanations[:1]),
        ("protocol", protocol.throughput if protocol else None, protocol),
        ("steady", log.steady.throughput if log.steady else None, log.steady),
    ]
    found: list[WaterfallStage] = []
    for stage, value, figure in stages:
        if value:
            share = value / found[-1].value - 1 if found else None
            one = WaterfallStage(stage=stage, value=value, difference=share, figure=figure)
            found.append(one)
    return found


def _of_explanation(claim: Claim, log: AuditedLog) -> Iterator[Message]:
    if not claim.explanations:
        return
    best, reference = claim.explanations[0], claim.reference
    figure, share = best.figure, claim.reference_difference
    if best.truncated:
        yield Message("truncated", {"value": best.value, "claimed": claim.text})
    if best.devices is not None:
        yield Message("other_count", {"devices": best.devices, "value": best.value})
    if figure.statistic != "samples/time" and reference and abs(share or 0.0) > APART:
        steps = {"first": reference.first, "last": reference.last}
        value = {"difference": share, "reference": reference.throughput}
        yield Message("other_statistic", value | steps)
    if log.covers == "running" and figure.statistic in ("mean of rates", "mean after skipping"):
        yield Message("mean_of_running", {"skipped": figure.skipped})
    warm = log.figure(figure.statistic, "warm")
    if figure.period == "all" and not figure.skipped and warm and warm.throughput:
        share = best.value / warm.throughput - 1
        if best.devices is None and abs(share) > APART / 5:
            yield Message("warm_up_inside", {"warm": warm.throughput, "difference": share})
    if claim.chance > CHANCE:
        yield Message("by_chance", {"chance": claim.chance})


# The published numbers at whose place a log stands.


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
            yield from found.get(id(cell)) or [Claim(**of_cell(cell), log=None, state="no log")]


def of_cell(cell: Cell) -> Given:
    """The published number as a claim."""
    name, batch = FRAMEWORK_NAMES[cell["framework"]], cell["batch_per_gpu"]
    words = [name, cell["precision"], cell["topology"], f"batch {batch}"]
    words += [] if cell["accumulates"] is None else [cell["note"]]
    place = f"{cell['table']}: {', '.join(words)}, {cell['gpu']}"
    known = {key: cell[key] for key in ("table", "gpu", "framework", "precision", "topology")}
    return known | {
        "text": cell["printed"],
        "value": cell["throughput"],
        "place": place,
        "batch_size": batch,
    }


def _kept(
    cells: list[Cell], log: AuditedLog, figures: Figures, tolerance: float
) -> list[tuple[Cell, Claim]]:
    """Of the cells of a table that may be a log's, those that it gives or, if it gives none,
    those of its batch and precision."""
    alike = [cell for cell in cells if not differs(log, cell)]
    ambiguous = [Message("ambiguous")] if len(alike) > 1 else []
    every = []
    for cell in cells:
        found = [
            Message("other_work", {"key": key, "claimed": claimed, "log": own})
            for key, (claimed, own) in differs(log, cell).items()
        ]
        found += ambiguous
        every.append((cell, check_claim(of_cell(cell), log, figures, tolerance, found)))
    given = [
        (cell, claim)
        for cell, claim in every
        if claim.state == "reproduced" and (cell in alike or claim.chance <= CHANCE)
    ]
    return given or [(cell, claim) for cell, claim in every if cell in alike]


def differs(log: AuditedLog, cell: Cell) -> dict[str, tuple[Any, Any]]:
    """In which of the facts that it tells a log is not of a cell: the published and its own.
    Where nothing else tells the model, its path does."""
    place, precision, accumulate = place_of(cell), cell["precision"], log.fact("accumulate")
    published: dict[str, Any] = {
        "model": place["model"],
        "framework": place["framework"],
        "nodes": cell["nodes"],
        "devices": cell["gpus_per_node"],
        "ranks": cell["nodes"] * cell["gpus_per_node"],
        "gpu": cell["gpu"].split("-")[0].upper(),
        "batch_size": cell["batch_per_gpu"],
        "precision": precision,
    }
    both = {key: (value, log.fact(key)) for key, value in published.items()}
    found = {key: pair for key, pair in both.items() if pair[1] not in (None, pair[0])}
    if "model" not in log.facts and place["model"] not in log.name.lower():
        found["model"] = (place["model"], None)
    if accumulate and cell["accumulates"] is (accumulate == 1):
        found["accumulate"] = (cell["accumulates"], accumulate)
    if "precision" in found and (log.fact("precision") in HALF) != (precision in HALF):
        found["half"] = found.pop("precision")
    return found


def cells_for(log: AuditedLog, cells: list[Cell]) -> Iterator[list[Cell]]:
    """Of each table, the published cells that may be a log's. Inference stands at none."""
    if "framework" not in log.facts or log.fact("mode") == "inference":
        return
    published = [cell for cell in cells if cell["status"] == "published"]
    like = [cell for cell in published if differs(log, cell).keys() <= {*MAY_DIFFER}]
    for table in dict.fromkeys(cell["table"] for cell in like):
        yield [cell for cell in like if cell["table"] == table]
