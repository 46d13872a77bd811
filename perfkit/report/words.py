"""A measurement's number and warnings in words, for its page and for a terminal."""

from perfkit.analysis.warnings import MeasurementChecks
from perfkit.core.results.schema import Result
from perfkit.report.text import names
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext


def number_words(result: Result) -> str:
    """Return the throughput of a complete measurement with its unit and interval."""
    throughput = result.throughput
    assert throughput
    words = f"{names.number(throughput.value)} {throughput.unit}, "
    words += _("median of n=%(n)d") % {"n": throughput.n}
    if throughput.interval and throughput.interval_level:
        low, high = map(names.number, throughput.interval)
        level = names.percent(throughput.interval_level, 4)
        interval = {"level": level, "low": low, "high": high}
        words += "; " + _("%(level)s interval %(low)s to %(high)s") % interval
    return words


def warning_words(checks: MeasurementChecks) -> str:
    """Return the number of warnings and their codes, worst first."""
    codes = [warning.code for warning in checks.warnings]
    if not codes:
        return _("no warnings")
    words = ngettext(
        "%(count)d warning: %(codes)s", "%(count)d warnings: %(codes)s", len(codes)
    )
    return words % {"count": len(codes), "codes": ", ".join(codes)}
