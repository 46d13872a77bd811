"""A measurement with the checks of its raw files, as its page and its lists show it."""

from dataclasses import dataclass

from perfkit.analysis.diagnosis import Diagnosis, read_diagnosis
from perfkit.analysis.warnings import MeasurementChecks, check
from perfkit.measuring.results.store import Measurement, ResultError
from perfkit.report.links import Site
from perfkit.report.section import Section
from perfkit.report.step_charts import step_chart
from perfkit.report.style import COLOURS
from perfkit.training.frameworks import DISPLAY_NAMES


@dataclass(frozen=True, repr=False, eq=False)
class CheckedMeasurement(Measurement):
    """A measurement with all that its sections show: the checks of its raw files, the chart of
    its raw steps (empty if there are none), and the site that its page is part of."""

    checks: MeasurementChecks
    chart: Section
    site: Site


def checked(measurement: Measurement, site: Site | None = None) -> CheckedMeasurement:
    """Return the measurement with its checks and its chart; its raw files are read unless they
    have been."""
    if isinstance(measurement, CheckedMeasurement):
        return measurement
    folder, result = measurement.folder, measurement.result
    checks = check(measurement)
    chart = Section()
    if not checks.steps.empty:
        colour = COLOURS[DISPLAY_NAMES[result.config.framework]]
        chart = step_chart(checks.steps, colour)
    return CheckedMeasurement(folder, result, checks, chart, site or Site(folder.parent))


def stored_diagnosis(measurement: Measurement) -> tuple[Diagnosis | None, str]:
    """Return the diagnosis, None without one, and why it can't be read."""
    try:
        return read_diagnosis(measurement), ""
    except ResultError as error:
        return None, error.relative_to(measurement.folder)
