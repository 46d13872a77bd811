"""Claimed numbers beside the logs that should have given them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfkit.audit.figures import Recomputed, half_of
from perfkit.audit.findings import APART, CHANCE
from perfkit.audit.stored import AuditedLog, Claim, Explanation, Figure, Finding, State
from perfkit.tables.cells import Cell, accumulates, topology
from perfkit.tables.matches import PUBLISHED_FRAMEWORK, PUBLISHED_MODEL
from perfkit.words.wording import FRAMEWORK_NAMES

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
    cell: Cell | None = None

    @classmethod
    def of_cell(cls, cell: Cell) -> "Given":
        return cls(cell["printed"] or "–", cell["throughput"] or 0.0, place_of(cell), cell)

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
            topology=topology(cell) if cell else None,
            batch_size=cell.get("batch_per_gpu"),
            log=log.name if log else None,
            state=state,
            **(nothing | found),
        )


def place_of(cell: Cell) -> str:
    """Where a published number stands, in words."""
    name = FRAMEWORK_NAMES[cell["framework"]]
    words = [name, cell["precision"], topology(cell), f"batch {cell['batch_per_gpu']}"]
    if accumulates(cell) is not None:
        words.append(cell["note"])
    return f"{cell['table']}: {', '.join(words)}, {cell['gpu']}"


def claims_of_tables(
    cells: list[Cell], logs: list[Recomputed], tolerance: float
) -> Iterator[Claim]:
    """Each cell beside every log at its place; those that no log stands at, too."""
    found: dict[int, list[Claim]] = {}
    for one in logs:
        for some in cells_for(one.log, cells):
            for cell, claim in _kept(some, one, tolerance):
                found.setdefault(id(cell), []).append(claim)
    for cell in cells:
        if cell["status"] == "published":
            yield from found.get(id(cell)) or [Given.of_cell(cell).claim(None, "no log")]


def _kept(cells: list[Cell], one: Recomputed, tolerance: float) -> Iterator[tuple[Cell, Claim]]:
    """Of the cells of a table that may be a log's, those that it gives or, if it gives none,
    those of its batch and precision."""
    alike = [cell for cell in cells if not differs(one.log, cell)]
    judged_cells = [
        (cell, judged(Given.of_cell(cell), one, tolerance, ambiguous=len(alike) > 1))
        for cell in cells
    ]
    given = [
        (cell, claim)
        for cell, claim in judged_cells
        if claim.state == "reproduced" and (cell in alike or claim.chance <= CHANCE)
    ]
    yield from given or [(cell, claim) for cell, claim in judged_cells if cell in alike]


def differs(log: AuditedLog, cell: Cell) -> dict[str, tuple[Any, Any]]:
    """In what a log differs from a cell, of what it may: what is published and the log's."""
    both = {
        "batch_size": (cell["batch_per_gpu"], log.fact("batch_size")),
        "precision": (cell["precision"], log.fact("precision")),
    }
    return {key: (of, own) for key, (of, own) in both.items() if own not in (None, of)}


def cells_for(log: AuditedLog, cells: list[Cell]) -> Iterator[list[Cell]]:
    """Of each table, the published cells that may be a log's: of its model, framework,
    topology and accumulation as far as it tells them, and of the GPU that its path
    names; where nothing else tells the model, its path may."""
    if "framework" not in log.facts:
        return
    like = [cell for cell in cells if cell["status"] == "published" and _is_place(log, cell)]
    for table in dict.fromkeys(cell["table"] for cell in like):
        some = [cell for cell in like if cell["table"] == table]
        path = log.name.lower()
        yield [c for c in some if c["gpu"].split("-")[0].lower() in path] or some


def _is_place(log: AuditedLog, cell: Cell) -> bool:
    framework = cell["framework"]
    model = next(own for own, name in PUBLISHED_MODEL.items() if name == cell["model"])
    if log.fact("model") is None and model not in log.name.lower():
        return False
    place: dict[str, Any] = {
        "model": model,
        "framework": PUBLISHED_FRAMEWORK.get(framework, framework),
        "nodes": cell["nodes"],
        "devices": cell["gpus_per_node"],
        "ranks": cell["nodes"] * cell["gpus_per_node"],
    }
    accumulated, half = log.fact("accumulate"), ("amp", "pure_fp16")
    if accumulated and accumulates(cell) is (accumulated == 1):
        return False
    # What one calls automatic mixed precision, another calls float16.
    if (log.fact("precision") in half) != (cell["precision"] in half) and log.fact("precision"):
        return False
    return all(log.fact(key) in (None, value) for key, value in place.items())


def judged(
    given: Given, one: Recomputed, tolerance: float, *, ambiguous: bool = False
) -> Claim:
    """A claimed number against every figure of a log."""
    log, claimed, half = one.log, given.value, half_of(given.text)
    figures = [*one.figures.shown, *one.figures.skipping]
    candidates = [(f, devices, value) for f in figures for devices, value in _values(f)]
    if not candidates:
        return given.claim(log, "no number")
    # The simplest first: as the log has it, then of another count of devices.
    candidates.sort(key=lambda one: one[1] is not None)
    explanations: list[Explanation] = []
    chance = 0.0
    for figure, devices, value in candidates:
        rounding = figure.rounding * value
        if rounding > max(COARSE * value, half * (1 + 1e-9)):
            continue
        width = half + rounding
        if abs(value - claimed) > max(NEARBY * claimed, width * (1 + 1e-9)):
            continue
        if not explanations:
            chance += min(width / (NEARBY * claimed), 1.0)
        if abs(value - claimed) <= width * (1 + 1e-9):
            explanations.append(Explanation(figure=figure, devices=devices, value=value))
    whole = [(f, value) for f, devices, value in candidates if devices is None]
    closest, nearest = min(
        whole or [(f, value) for f, _devices, value in candidates],
        key=lambda one: abs(one[1] - claimed),
    )
    difference = nearest / claimed - 1
    state: State = "not reproduced"
    # By a count of devices that is not the log's own, it is explained, but not reproduced; what
    # the log says itself is as it says it.
    own = any(
        one.devices is None or (one.figure.statistic, one.devices) == ("told", 1)
        for one in explanations
    )
    if own or (explanations and log.fact("ranks") is None):
        state = "reproduced"
    elif abs(difference) <= tolerance:
        state = "near"
    right = log.right
    throughput = right.throughput if right else None
    claim = given.claim(
        log,
        state,
        explanations=explanations,
        closest=closest,
        difference=difference,
        right=right,
        right_difference=throughput / claimed - 1 if throughput else None,
        tried=len(candidates),
        chance=chance,
    )
    found = [
        Finding(name=name, file=log.name, line=None, figures=told)
        for name, told in _findings(claim, log, ambiguous)
    ]
    return claim.model_copy(update={"findings": found})


def _values(figure: Figure) -> Iterator[tuple[int | None, float]]:
    """What a figure may be claimed as: of all devices (None), of one, or of other counts of
    them than the log has."""
    device, every = figure.per_device, figure.throughput
    if every:
        yield None, every
    if not device:
        return
    ranks = round(every / device) if every else None
    for count in COUNTS:
        if count != ranks:
            yield count, count * device


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
