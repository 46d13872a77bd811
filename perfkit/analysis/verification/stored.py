"""The stored form of a verification.

outputs/verified/<model>-<frameworks>-<digest>.json    a Verification, replaced atomically

A verification holds for measurements of the same model, size, optimizer, layout, execution,
versions and code of this suite.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from perfkit.measuring.about import FrameworkName
from perfkit.measuring.config import Config
from perfkit.measuring.results.base import NonNegative, Reading, Stored
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import ResultError, read_as
from perfkit.measuring.work import ModelName, ModelSize
from perfkit.training.frameworks import FRAMEWORKS

FOLDER = "verified"
SCHEMA_VERSION: Literal[1] = 1
WORK = ("model", "model_size", "optimizer", "image_size", "sequence_length")
"""Fields of a verification that must agree with a measurement's parameters."""

Precision = Literal["fp32", "fp64"]
TensorQuantity = Literal["gradients", "first_update", "last_update"]
Quantity = (
    Literal["parameters", "multiply_adds", "training_flops", "first_loss", "losses"]
    | TensorQuantity
)


class FrameworkSetup(Stored):
    """A framework and how it executes the training."""

    framework: FrameworkName
    """training framework"""
    version: str
    """its version"""
    execution: Literal["dynamic", "static"]
    """how the graph is executed"""
    layout: Literal["NCHW", "NHWC"] | None
    """memory layout of images; None for sequences"""

    def __str__(self) -> str:
        name = FRAMEWORKS[self.framework].display_name
        return setup_name(f"{name} {self.version}", self.execution, self.layout)

    def is_used_by(self, config: Config, version: Any) -> bool:
        """Return whether `config`, with this version of its framework, has this setup. Builds
        of a version (2.13.0+cpu, 2.13.0+cu126) are the same."""
        work = config.work.built_in
        measured = (config.framework, work.execution, work.layout)
        verified = (self.framework, self.execution, self.layout)
        return measured == verified and _release(version) == _release(self.version)


def setup_name(framework: str, execution: str, layout: str | None) -> str:
    """Return a setup in words, such as `PyTorch, dynamic, NHWC`."""
    parts = [framework, execution]
    if layout:
        parts.append(layout)
    return ", ".join(parts)


def _release(version: Any) -> str:
    return str(version).partition("+")[0]


class ComparedQuantity(Stored):
    """A quantity in which two setups must agree. They agree if the difference is known and not
    larger than allowed."""

    name: Quantity
    """the quantity"""
    precision: Precision | None
    """precision of the training; None if irrelevant"""
    base: int | float | None
    """the base's value: a count, a loss or a Euclidean norm; None if not finite"""
    other: int | float | None
    """the other setup's value"""
    difference: NonNegative | None
    """relative difference, for parameters the number of tensors that differ; None if it can't
    be computed"""
    allowed: NonNegative
    """largest difference with which the setups agree"""
    where: str
    """tensor or step with the largest difference, or the error"""

    @property
    def agreed(self) -> bool:
        return self.difference is not None and self.difference <= self.allowed


class SetupComparison(Stored):
    """A setup compared with the base."""

    side: FrameworkSetup
    """the setup"""
    checks: Annotated[list[ComparedQuantity], Field(min_length=1)]
    """each quantity, in each precision"""

    @property
    def agreed(self) -> bool:
        return all(quantity.agreed for quantity in self.checks)


class Verification(Stored):
    """The result of `perfkit verify`."""

    schema_version: Literal[1]
    """readers refuse any other"""
    created: str
    """UTC, ISO 8601"""
    model: ModelName
    """the model"""
    model_size: ModelSize | None
    """its size; None for a model with a single one"""
    optimizer: Literal["momentum", "adamw", "lamb"]
    """the optimizer"""
    image_size: int | None
    """height and width of the images, pixels; None for sequences"""
    sequence_length: int | None
    """tokens per sequence; None for images"""
    batch_size: int
    """samples in a step"""
    seed: int
    """random seed of weights and batch"""
    steps: Annotated[int, Field(ge=1)]
    """number of steps"""
    base: FrameworkSetup
    """the setup with which all others are compared"""
    against: Annotated[list[SetupComparison], Field(min_length=1)]
    """each other setup, with its checks"""
    environment: dict[str, Reading]
    """the CPU, and the suite's version, source and commit"""

    @property
    def agreed(self) -> bool:
        return all(comparison.agreed for comparison in self.against)

    @property
    def setups(self) -> list[FrameworkSetup]:
        """All setups, the base first."""
        return [self.base, *(comparison.side for comparison in self.against)]

    @property
    def file_name(self) -> str:
        """The name, which a repetition of the same verification shares and so replaces."""
        work = self.model_dump(include={*WORK, "batch_size", "seed", "steps"})
        work["sides"] = [setup.model_dump() for setup in self.setups]
        work["suite_source"] = self.environment["suite_source"].value
        digest = hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:8]
        frameworks = "-".join(setup.framework for setup in self.setups)
        return f"{self.model}-{frameworks}-{digest}.json"

    def agree(self, *setups: FrameworkSetup) -> bool:
        """Return whether all of these do the same work as the base, and so as each other."""
        compared = [comparison for comparison in self.against if comparison.side in setups]
        return all(comparison.agreed for comparison in compared)

    def setup_of(self, result: Result) -> FrameworkSetup | None:
        """Return the setup of this measurement; None if the verification does not hold for
        it."""
        if not result.work.facts or not self._is_about_work_of(result):
            return None
        config = result.config
        version = result.fact(FRAMEWORKS[config.framework].facts[0])
        for setup in self.setups:
            if setup.is_used_by(config, version):
                return setup
        return None

    def _is_about_work_of(self, result: Result) -> bool:
        """Return whether a measurement has the same work and the same code of this suite."""
        if any(getattr(result.work, name) != getattr(self, name) for name in WORK):
            return False
        source = self.environment.get("suite_source")
        if source is None or source.value is None:
            return False
        return source.value == result.fact("suite_source")


def read_verifications(outputs: Path, left_out: list[str]) -> list[Verification]:
    """Return the verifications stored under `outputs`, newest first; the reasons why others
    can't be read are added to `left_out`."""
    verifications = []
    for path in sorted((outputs / FOLDER).glob("*.json")):
        try:
            verifications.append(read_as(Verification, path))
        except ResultError as error:
            left_out.append(str(error))
    return sorted(verifications, key=lambda verification: verification.created, reverse=True)
