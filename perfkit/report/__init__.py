"""What notebooks and pages show of a measurement. Reads results, computes no number anew."""

from perfkit.report.page import publish
from perfkit.report.sections import (
    effective,
    environment,
    headline,
    method,
    parameters,
    plan,
    raw_files,
    repeats,
    step_times,
)

__all__ = [
    "effective",
    "environment",
    "headline",
    "method",
    "parameters",
    "plan",
    "publish",
    "raw_files",
    "repeats",
    "step_times",
]
