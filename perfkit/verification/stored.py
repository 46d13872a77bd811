"""A verification as it is stored, and which measurements it holds for: those of the same model,
size, optimizer, layout, execution, versions and code of this suite.

    outputs/verified/<model>-<sides>-<digest>.json    a Verification, replaced atomically
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from perfkit.config import FrameworkName, ModelName
from perfkit.frameworks import FRAMEWORKS
from perfkit.results.schema import Reading, Result, Stored
from perfkit.results.store import ResultError, read_as

FOLDER = "verified"
SCHEMA_VERSION: Literal[1] = 1

Precision = Literal["fp32", "fp64"]
Name = Literal[
    "parameters",
    "multiply_adds",
    "training_flops",
    "first_loss",
    "losses",
    "gradients",
    "first_update",
    "last_update",
]


class Side(Stored):
    """One framework, and how it was run."""

    framework: FrameworkName
    version: str
    execution: Literal["dynamic", "static"]
    layout: Literal["NCHW", "NHWC"] | None


Finite = Annotated[float, Field(allow_inf_nan=False)]


class Check(Stored):
    """One thing in which two sides are to agree. `base` and `other` are what each has of it: a
    count, a loss, a norm; None where that is no number."""

    name: Name
    precision: Annotated[Precision | None, Field(description="None: without arithmetic")]
    base: int | Finite | None
    other: int | Finite | None
    difference: Annotated[
        Finite | None,
        Field(ge=0, description="relative but for parameters; None: there is none to tell"),
    ]
    allowed: Annotated[Finite, Field(ge=0)]
    where: Annotated[str, Field(description="the worst tensor or step, or what is amiss")]

    @property
    def agreed(self) -> bool:
        return self.difference is not None and self.difference <= self.allowed


class Against(Stored):
    """A side, and its checks against the base."""

    side: Side
    checks: Annotated[list[Check], Field(min_length=1)]

    @property
    def agreed(self) -> bool:
        return all(check.agreed for check in self.checks)

    def check(self, name: Name, precision: Precision | None = None) -> Check:
        wanted = (name, precision)
        return next(one for one in self.checks if (one.name, one.precision) == wanted)


class Verification(Stored):
    """What `perfkit verify` found."""

    schema_version: Literal[1]
    created: Annotated[str, Field(description="UTC, ISO 8601")]
    model: ModelName
    optimizer: Literal["momentum", "adamw", "lamb"]
    image_size: int | None
    sequence_length: int | None
    batch_size: int
    seed: int
    steps: Annotated[int, Field(ge=1)]
    base: Side
    against: Annotated[list[Against], Field(min_length=1)]
    environment: dict[str, Reading]

    @property
    def agreed(self) -> bool:
        return all(one.agreed for one in self.against)

    @property
    def sides(self) -> list[Side]:
        return [self.base, *(one.side for one in self.against)]

    @property
    def file_name(self) -> str:
        """The same for one that stands in the place of this."""
        work = self.model_dump(include={"model", "optimizer", "batch_size", "seed", "steps"})
        work |= self.model_dump(include={"image_size", "sequence_length"})
        work["sides"] = [side.model_dump() for side in self.sides]
        work["suite_source"] = self.environment["suite_source"].value
        digest = hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:8]
        names = "-".join(side.framework for side in self.sides)
        return f"{self.model}-{names}-{digest}.json"

    def agree(self, *sides: Side) -> bool:
        """Whether all of these do the work of the base, and so of each other."""
        return all(one.agreed for one in self.against if one.side in sides)


def read_verifications(outputs: Path, left_out: list[str]) -> Iterator[Verification]:
    """Those stored under `outputs`, newest first; `left_out` gets why one can't be read."""
    found = []
    for path in sorted((outputs / FOLDER).glob("*.json")):
        try:
            found.append(read_as(Verification, path, SCHEMA_VERSION))
        except ResultError as error:
            left_out.append(str(error))
    yield from sorted(found, key=lambda one: one.created, reverse=True)


def side_in(verification: Verification, result: Result) -> Side | None:
    """The side that this measurement was; None if the verification does not hold for it. Builds
    of one version (2.13.0+cpu, 2.13.0+cu126) count as one."""
    if result.imported:
        return None
    config, v = result.config, verification
    source = v.environment["suite_source"].value if "suite_source" in v.environment else None
    one = (config.model, config.optimizer, config.image_size, config.sequence_length)
    its = (v.model, v.optimizer, v.image_size, v.sequence_length)
    if one != its or source is None or source != result.fact("suite_source"):
        return None
    version = result.fact(FRAMEWORKS[config.framework].facts[0])
    for side in v.sides:
        how = (side.framework, side.execution, side.layout, _release(side.version))
        if how == (config.framework, config.execution, config.layout, _release(str(version))):
            return side
    return None


def _release(version: str) -> str:
    return version.partition("+")[0]


def verifications_of(
    outputs: Path, result: Result, left_out: list[str] | None = None
) -> list[tuple[Verification, Side]]:
    """Those that hold for this measurement, newest first, and which of their sides it is."""
    told = [] if left_out is None else left_out
    found = ((one, side_in(one, result)) for one in read_verifications(outputs, told))
    return [(one, side) for one, side in found if side]


def verification_of(
    outputs: Path, one: Result, other: Result
) -> tuple[Verification, Side, Side] | None:
    """The newest that compared what these two measurements did, and their sides."""
    for verification, side in verifications_of(outputs, one):
        its = side_in(verification, other)
        if its and its != side:
            return verification, side, its
    return None
