"""A measurement's number and warnings, and what the machine did beside a change, in words for
pages and terminals."""

from collections.abc import Sequence

from perfkit.analysis.rates import MachineRate
from perfkit.analysis.verdicts import few_repeats
from perfkit.analysis.warnings import MeasurementChecks, severity
from perfkit.measuring.format import rate_text
from perfkit.measuring.results.schema import Result
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext
from perfkit.report.text.statements import sentence


def number_words(result: Result) -> str:
    """Return the throughput of a complete measurement, and of how many repeats it is."""
    throughput = result.throughput
    assert throughput
    median = _("median of n=%(n)d") % {"n": throughput.n}
    ends = throughput.interval or ()
    return f"{rate_text(throughput.value, throughput.unit, *ends)}, {median}"


def warning_words(checks: MeasurementChecks) -> str:
    """Return the number of warnings, and their codes with their severities, worst first."""
    few = few_repeats(len(checks.profiles))
    if not checks.warnings:
        return sentence(few) if few else _("no warnings")
    return counted_warnings([warning.code for warning in checks.warnings])


def counted_warnings(codes: Sequence[str]) -> str:
    """Return the number of these warnings, and their codes with their severities."""
    texts = [f"{code} ({_(severity([code]) or '')})" for code in codes]
    words = ngettext(
        "%(count)d warning: %(codes)s", "%(count)d warnings: %(codes)s", len(codes)
    )
    return words % {"count": len(codes), "codes": ", ".join(texts)}


def machine_words(rates: Sequence[MachineRate]) -> str:
    """Return that the machine is the first thing to look at; empty unless a rate fell with the
    training."""
    fell = [_(rate.name) for rate in rates if rate.fell_with_training]
    if not fell:
        return ""
    words = _(
        "Look at the machine first (clocks, other load, number of threads): %(rates)s fell by "
        "at least half as much as the training."
    )
    return words % {"rates": _(" and ").join(fell)}
