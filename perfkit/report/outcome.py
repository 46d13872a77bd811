"""How a measurement ended, in a line: number, interval, warnings and page."""

from markupsafe import Markup

from perfkit.config import portable
from perfkit.report.section import Section, markup
from perfkit.report.steps import read_steps
from perfkit.results.schema import Result
from perfkit.results.store import Measurement
from perfkit.text.format import number, percent
from perfkit.text.language import gettext as _
from perfkit.text.language import ngettext
from perfkit.text.messages import coded


class MeasurementError(RuntimeError):
    """A measurement is not complete; the message says why and what to type next."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


def number_words(result: Result) -> str:
    """The throughput of a complete measurement with its unit and interval."""
    found = result.throughput
    assert found
    words = f"{number(found.value)} {found.unit}, " + _("median of n=%(n)d") % {"n": found.n}
    if found.interval and found.interval_level:
        low, high = map(number, found.interval)
        shown = {"level": percent(found.interval_level, 4), "low": low, "high": high}
        words += "; " + _("%(level)s interval %(low)s to %(high)s") % shown
    return words


def warning_words(measurement: Measurement) -> str:
    """How many warnings there are, and their codes, the worst first."""
    codes = [warning.code for warning in read_steps(measurement).checks.warnings]
    if not codes:
        return _("no warnings")
    words = ngettext(
        "%(count)d warning: %(codes)s", "%(count)d warnings: %(codes)s", len(codes)
    )
    return words % {"count": len(codes), "codes": ", ".join(codes)}


def outcome(measurement: Measurement) -> Section:
    """The last output of a model notebook, which `papermill --log-output` prints. Raises
    MeasurementError if the measurement is not complete."""
    result, kept = measurement.result, len(measurement.result.complete_repeats)
    if result.status != "complete":
        failure = result.failure
        reason = coded(failure) if failure else "it is not finished"
        done = (
            f"{kept} of {result.protocol.repeats} repeats are kept; the same command goes on. "
        )
        logs = f"{done if kept else ''}Logs: {portable(str(measurement.folder / 'logs'))}"
        raise MeasurementError(f"{result.id} {result.status}: {reason}\n{logs}")
    shown, warned = number_words(measurement.result), warning_words(measurement)
    link = Markup('<a href="report.html">%s</a>') % portable(str(measurement.page_file))
    line = Markup("<strong>%s</strong> · %s · %s") % (shown, warned, link)
    return markup(f"<p>{line}</p>")
