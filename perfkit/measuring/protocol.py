"""How a configuration is measured."""

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from perfkit.measuring.about import IGNORED, STRICT

FEWEST_TO_END = 7
"""The fewest repeats whose range is a 98 % interval for the median (results/schema.py)."""


class Protocol(BaseModel):
    """How a configuration is measured. A repeat starts fresh worker processes."""

    model_config = STRICT

    name: Annotated[Literal["published", "steady", "quick"], replace(IGNORED, unset="auto")]
    """the protocol that provides the defaults"""
    warmup_steps: Annotated[int, Field(ge=1, le=10**6)]
    """steps dropped at the start of a repeat; auto: until the steps are steady"""
    measured_steps: Annotated[int, Field(ge=1, le=10**6)]
    """steps in the window, after the warm-up"""
    measured_seconds: Annotated[float, Field(ge=0, le=24 * 3600)]
    """shortest window, seconds, after a warm-up of a third of it at least; 0: exactly
    measured_steps"""
    warmup_limit: Annotated[int | None, Field(ge=1, le=10**6)] = None
    """extend the warm-up until the steps are steady, up to this number of steps; None: exactly
    warmup_steps, for warmup_steps=auto up to 1000"""
    warmup_seconds: Annotated[int | None, Field(ge=1, le=7 * 24 * 3600), IGNORED] = None
    """with warmup_limit, longest warm-up, seconds; None: no limit, 600 for warmup_steps=auto"""
    repeats: Annotated[int, Field(ge=1, le=1000), IGNORED]
    """fresh runs of the workers; auto: as many as interval_target needs"""
    interval_target: Annotated[float | None, Field(gt=0, lt=1), IGNORED] = None
    """stop when the interval is below this share of the median; None: run all repeats,
    for repeats=auto 0.02"""
    budget: Annotated[int | None, Field(ge=1, le=30 * 24 * 3600), IGNORED] = None
    """with interval_target, start no repeat after this time, seconds; None: no limit, for
    repeats=auto 3600"""
    statistic: Literal["median"] = "median"
    """statistic over the repeats' throughputs"""

    @property
    def steps(self) -> int:
        """Steps of a repeat including the warm-up; with `warmup_limit`, the minimum."""
        return self.warmup_steps + self.measured_steps

    @property
    def fixes_warmup(self) -> bool:
        """Whether the warm-up and the window have a number of steps that is known before."""
        return self.warmup_limit is None and not self.measured_seconds

    @property
    def warmup_words(self) -> str:
        """The number of warm-up steps, or its limit, as text."""
        if self.warmup_limit:
            return f"≤ {self.warmup_limit}"
        return f"≥ {self.warmup_steps}" if self.measured_seconds else str(self.warmup_steps)

    @property
    def measured_words(self) -> str:
        """The number of measured steps, or the fewest, as text."""
        return f"≥ {self.measured_steps}" if self.measured_seconds else str(self.measured_steps)

    @model_validator(mode="after")
    def _warmup_can_end(self) -> Self:
        if self.warmup_limit is None:
            if self.warmup_seconds is not None:
                raise ValueError("warmup_seconds: needs warmup_limit or warmup_steps=auto")
        elif self.warmup_limit < self.warmup_steps:
            raise ValueError(
                f"warmup_limit: {self.warmup_limit} is less than warmup_steps="
                f"{self.warmup_steps}, the minimum length of the warm-up"
            )
        return self

    @model_validator(mode="after")
    def _can_end_early(self) -> Self:
        if self.budget is not None and self.interval_target is None:
            raise ValueError("budget: needs interval_target or repeats=auto")
        if self.interval_target is not None and self.repeats < FEWEST_TO_END:
            raise ValueError(
                f"interval_target: needs at least {FEWEST_TO_END} repeats: -p repeats auto, or "
                f"-p repeats {FEWEST_TO_END}"
            )
        return self

    @classmethod
    def named(cls, name: str, **overrides: float | str | None) -> Self:
        """Return protocol `name` with overrides; `repeats` and `warmup_steps` may be "auto"."""
        values = {field: value for field, value in overrides.items() if value is not None}
        if values.get("repeats") == "auto":
            del values["repeats"]
            values = AUTO | values
        if values.get("warmup_steps") == "auto":
            del values["warmup_steps"]
            values = AUTO_WARMUP | values
        return cls.model_validate({"name": name} | PROTOCOLS[name] | values)


AUTO_WARMUP: dict[str, Any] = {"warmup_steps": 1, "warmup_limit": 1000, "warmup_seconds": 600}
"""What warmup_steps=auto stands for."""

STEPS = {"measured_steps": 100, "measured_seconds": 0, "repeats": 7}

PROTOCOLS: dict[str, dict[str, Any]] = {
    # Steps 1-20 dropped, 21-120 measured, 7 runs, median: the method of the FleetX ResNet-50
    # and VGG-16 benchmark pages.
    "published": {"warmup_steps": 20, **STEPS},
    "steady": AUTO_WARMUP | STEPS,
    # Five repeats are the fewest whose range is an interval of over 90 % for the median.
    "quick": {"warmup_steps": 2, "measured_steps": 5, "measured_seconds": 3, "repeats": 5},
}

AUTO: dict[str, Any] = {"repeats": 100, "interval_target": 0.02, "budget": 3600}
"""What repeats=auto stands for."""
