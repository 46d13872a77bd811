"""Check claimed numbers against the figures of a log: which figure explains a claim, the stages
from the claim down to the steady throughput, and the logs that match published numbers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from perfkit.analysis.published import FRAMEWORK_NAMES, Cell
from perfkit.analysis.published.matches import place_of
from perfkit.audit.audit import (
    AuditedLog,
    Claim,
    Explanation,
    Figure,
    Finding,
    Stage,
    State,
    WaterfallStage,
)
from perfkit.audit.recompute import Figures, half_of
from perfkit.core.messages import Message

NEARBY = 1e-3
"""Share of the claim on both sides within which figures are assumed uniformly distributed."""
COARSE = 1e-4
"""A figure that rounding may move by more than this share cannot explain a claim's digits."""
COUNTS = [2**power for power in range(13)]
"""Device counts by which the figure of one device may have been multiplied."""
APART = 0.005
"""Share by which two figures must differ to count as different."""
CHANCE = 0.2
"""Expected number of chance matches above which an explanation is weak."""
MAY_DIFFER = ("batch_size", "precision")
"""Facts in which a log may differ from the cell that it reproduces; reported as a finding."""
HALF = ("amp", "pure_fp16")
"""Names that suites use interchangeably for automatic mixed precision and float16."""
Audited = tuple[AuditedLog, Figures]
ClaimInput = Mapping[str, Any]
"""Fields of a Claim: at least text, value and place."""


class Candidate(NamedTuple):
    """A figure as it may be claimed: of all devices (None) or times a device count."""

    figure: Figure
    devices: int | None
    value: float


def check_claim(
    given: ClaimInput,
    log: AuditedLog,
    figures: Figures,
    tolerance: float = 0.0,
    found: Iterable[Message] = (),
) -> Claim:
    """Check a claim against every figure of a log; `found` are findings of the matching."""
    candidates, value = _candidates(figures), given["value"]
    if not candidates:
        return Claim(**given, log=log.name, state="no number")
    explanations, chance = _explained(given, candidates)
    # Prefer the log's own device count for the closest figure.
    whole = [c for c in candidates if c.devices is None]
    whole = whole or [c for c in candidates if c.devices == 1]
    closest = min(whole, key=lambda candidate: abs(candidate.value - value))
    difference = closest.value / value - 1
    # Another device count than the log's explains a claim without reproducing it. Figures that
    # the log reports count as printed.
    own = any(
        e.devices is None or (e.figure.statistic, e.devices) == ("reported", 1)
        for e in explanations
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
    found = [*found, *_of_explanation(claim, log, figures)]
    findings = [Finding(message.code, message.params, log.name) for message in found]
    return claim.model_copy(update={"findings": findings})


def _candidates(figures: Figures) -> list[Candidate]:
    """Return the candidates: first with the log's own device count, then with others."""
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
    return sorted(found, key=lambda candidate: candidate.devices is not None)


def _explained(
    given: ClaimInput, candidates: list[Candidate]
) -> tuple[list[Explanation], float]:
    """Return the candidates equal to the claim to its digits, rounded or else truncated, and
    how many of those up to the first such candidate are expected to match by chance."""
    half, nearby = half_of(given["text"]), NEARBY * given["value"]
    values = np.array([c.value for c in candidates])
    rounding = np.array([c.figure.rounding for c in candidates]) * values
    width, allowed = half + rounding, (half + rounding) * (1 + 1e-9)
    sharp = rounding <= np.maximum(COARSE * values, half * (1 + 1e-9))
    for truncated in (False, True) if half else (False,):
        # A truncated value lies up to one unit of the last digit above the claim.
        apart = np.abs(values - given["value"] - (half if truncated else 0.0))
        right = np.flatnonzero(sharp & (apart <= allowed))
        tried = slice(right[0] + 1 if len(right) else None)
        near = (sharp & (apart <= np.maximum(nearby, allowed)))[tried]
        chance = float(np.minimum(width[tried] / nearby, 1)[near].sum())
        if len(right):
            break
    found = [Explanation(**candidates[k]._asdict(), truncated=truncated) for k in right]
    return found, chance


def waterfall(
    claimed: float | None, explanations: list[Explanation], log: AuditedLog
) -> list[WaterfallStage]:
    """Return the stages from the claim over its explanation and samples / time of the
    protocol's steps to all steady steps, as far as known, with the difference between
    successive stages."""
    protocol, steady = log.figure("protocol"), log.figure("steady")
    stages: list[tuple[Stage, float | None, Figure | None]] = [
        ("claimed", claimed, None),
        *(("explained", best.value, best.figure) for best in explanations[:1]),
        ("protocol", protocol.throughput if protocol else None, protocol),
        ("steady", steady.throughput if steady else None, steady),
    ]
    found: list[WaterfallStage] = []
    for stage, value, figure in stages:
        if value:
            share = value / found[-1].value - 1 if found else None
            row = WaterfallStage(stage=stage, value=value, difference=share, figure=figure)
            found.append(row)
    return found


def _of_explanation(claim: Claim, log: AuditedLog, figures: Figures) -> Iterator[Message]:
    if not claim.explanations:
        return
    best, reference = claim.explanations[0], claim.reference
    figure, share = best.figure, claim.reference_difference
    reference = None if figures.is_sampled else reference
    if best.truncated:
        yield Message("truncated", {"value": best.value, "claimed": claim.text})
    if best.devices is not None and log.fact("ranks") is not None:
        yield Message("other_count", {"devices": best.devices, "value": best.value})
    if figure.statistic != "samples/time" and reference and abs(share or 0.0) > APART:
        steps = {"first": reference.first, "last": reference.last}
        value = {"difference": share, "reference": reference.throughput}
        yield Message("other_statistic", value | steps)
    if log.covers == "running" and figure.statistic in ("mean of rates", "mean after skipping"):
        yield Message("mean_of_running", {"skipped": figure.skipped})
    warm = log.figure("warm", "protocol", of=[figure.statistic])
    warm = warm if figures.has_warmup else None
    if figure.period == "all" and not figure.skipped and warm and warm.throughput:
        share = best.value / warm.throughput - 1
        if best.devices is None and abs(share) > APART / 5:
            yield Message("warm_up_inside", {"warm": warm.throughput, "difference": share})
    if claim.chance > CHANCE:
        yield Message("by_chance", {"chance": claim.chance})


def claims_of_tables(
    cells: list[Cell], logs: list[Audited], tolerance: float
) -> Iterator[Claim]:
    """Check each published cell against every matching log; yield cells without a log, too."""
    found: dict[int, list[Claim]] = {}
    for log, figures in logs:
        for candidates in cells_for(log, cells):
            for cell, claim in _kept(candidates, log, figures, tolerance):
                found.setdefault(id(cell), []).append(claim)
    for cell in cells:
        if cell["status"] == "published":
            yield from found.get(id(cell)) or [Claim(**of_cell(cell), log=None, state="no log")]


def of_cell(cell: Cell) -> ClaimInput:
    """Return a published number as a claim."""
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
    """Return the cells of one table that the log reproduces or, if none, those with its batch
    size and precision, each with its claim."""
    alike = [cell for cell in cells if not differs(log, cell)]
    ambiguous = [Message("ambiguous")] if len(alike) > 1 else []
    checked = []
    for cell in cells:
        found = [
            Message("other_work", {"key": key, "claimed": claimed, "log": own})
            for key, (claimed, own) in differs(log, cell).items()
        ]
        found += ambiguous
        checked.append((cell, check_claim(of_cell(cell), log, figures, tolerance, found)))
    reproduced = [
        (cell, claim)
        for cell, claim in checked
        if claim.state == "reproduced" and (cell in alike or claim.chance <= CHANCE)
    ]
    return reproduced or [(cell, claim) for cell, claim in checked if cell in alike]


def differs(log: AuditedLog, cell: Cell) -> dict[str, tuple[Any, Any]]:
    """Return the known facts of a log that differ from a cell: fact -> published, log's own. A
    log without a model fact is matched by its path."""
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
    pairs = {key: (value, log.fact(key)) for key, value in published.items()}
    found = {key: pair for key, pair in pairs.items() if pair[1] not in (None, pair[0])}
    if "model" not in log.facts and place["model"] not in log.name.lower():
        found["model"] = (place["model"], None)
    if accumulate and cell["accumulates"] is (accumulate == 1):
        found["accumulate"] = (cell["accumulates"], accumulate)
    if "precision" in found and (log.fact("precision") in HALF) != (precision in HALF):
        found["half"] = found.pop("precision")
    return found


def cells_for(log: AuditedLog, cells: list[Cell]) -> Iterator[list[Cell]]:
    """Yield, per table, the published cells that the log may belong to; none for inference."""
    if "framework" not in log.facts or log.fact("mode") == "inference":
        return
    published = [cell for cell in cells if cell["status"] == "published"]
    matching = [cell for cell in published if differs(log, cell).keys() <= {*MAY_DIFFER}]
    for table in dict.fromkeys(cell["table"] for cell in matching):
        yield [cell for cell in matching if cell["table"] == table]
