"""What notebooks and pages show. Reads results; the numbers are computed elsewhere."""

from perfkit.report.bench import Bench, figures, figures_environment, figures_overview
from perfkit.report.language import speak
from perfkit.report.sections import (
    conditions,
    effective,
    environment,
    headline,
    limits,
    method,
    parameters,
    plan,
    raw_files,
    repeats,
    same_work,
    step_times,
    warnings,
)
from perfkit.report.site import publish, publish_figures, publish_summary
from perfkit.report.summary import (
    Summary,
    left_out,
    measured_charts,
    measured_tables,
    overview,
    published_charts,
    published_tables,
    speedups,
)

__all__ = [
    "Bench",
    "Summary",
    "conditions",
    "effective",
    "environment",
    "figures",
    "figures_environment",
    "figures_overview",
    "headline",
    "left_out",
    "limits",
    "measured_charts",
    "measured_tables",
    "method",
    "overview",
    "parameters",
    "plan",
    "publish",
    "publish_figures",
    "publish_summary",
    "published_charts",
    "published_tables",
    "raw_files",
    "repeats",
    "same_work",
    "speak",
    "speedups",
    "step_times",
    "warnings",
]
