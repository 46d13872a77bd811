"""The page of a measurement."""

from pathlib import Path
from typing import Any

from perfkit.measuring.config import Config
from perfkit.measuring.format import amount, minute, printable
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.remedies import remedy
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import NOTEBOOK, RESULT, Measurement, Store
from perfkit.report.checked import CheckedMeasurement, checked
from perfkit.report.elements import code, heading, link, paragraph, part, strong
from perfkit.report.pages import (
    OWN,
    Filling,
    Page,
    keep_own_notebook,
    source_notebook,
    write_page,
)
from perfkit.report.peaks import limits
from perfkit.report.profile import where_the_step_goes
from perfkit.report.section import Section, folded
from perfkit.report.setup import command, effective_settings, environment, parameters
from perfkit.report.steps import raw_files, repeats, telemetry, warnings
from perfkit.report.text import names
from perfkit.report.text.language import LANGUAGES, in_language
from perfkit.report.text.language import gettext as _
from perfkit.report.tiles import headline, plan
from perfkit.report.told import script
from perfkit.report.verification import work_equivalence
from perfkit.report.words import number_words, warning_words

__all__ = ["MeasurementError", "failure_lines", "outcome", "page", "plan", "write_measurement"]


def page(measurement: Measurement) -> Section:
    """The page of a measurement: throughput, share of the peak and trust, the chart of its
    steps, warnings, repeats and the command; all else is folded."""
    shown = checked(measurement)
    is_followed = measurement.result.work.launches_itself
    section = headline(shown) + shown.chart
    section += part(_("Where the step goes"), where_the_step_goes(shown))
    section += part(_("Warnings"), warnings(shown))
    section += part(_("Repeats"), repeats(shown))
    section += part(_("Command"), command(shown))
    details = {
        _("Limits"): Section() if is_followed else limits(shown),
        _("Telemetry"): telemetry(shown),
        _("Work equivalence"): work_equivalence(shown),
        _("Training command") if is_followed else _("Script"): script(shown),
        _("Parameters"): parameters(shown),
        _("Effective settings"): effective_settings(shown),
        _("Environment"): environment(shown),
        _("Raw files"): raw_files(shown),
    }
    section += heading(_("Details"), _("Details"), level=2)
    for name, each in details.items():
        section += folded(name, each, address=name.replace(" ", "-"))
    return section.on_page_in(shown.folder)


class MeasurementError(RuntimeError):
    """The measurement is not complete; the message gives the reason and the next command."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


def outcome(measurement: Measurement) -> Section:
    """The last output of a model notebook, which `papermill --log-output` prints: lines with
    throughput, warnings, and page. Raises MeasurementError if it is not complete."""
    result = measurement.result
    if result.status != "complete":
        raise MeasurementError(_incomplete(measurement))
    page = str(measurement.page_file)
    warnings = warning_words(checked(measurement).checks)
    section = paragraph(strong(number_words(result))) + paragraph(warnings)
    section += paragraph(link("report.html", code(page)))
    return section.on_page_in(measurement.folder)


def _incomplete(measurement: Measurement) -> str:
    """Return the reasons why a measurement is not complete, one per line, and what to do."""
    result = measurement.result
    lines = [f"{result.id} {result.status}:"]
    if result.failure:
        lines += failure_lines(result.failure, result.config)
    else:
        lines.append("  not finished")
    complete = len(result.complete_repeats)
    if complete:
        repeats = amount(result.protocol.repeats, "repeat")
        kept = f"{complete} of {repeats} {'is' if result.protocol.repeats == 1 else 'are'} kept"
        lines.append(f"{kept}; the same command continues.")
    lines.append(f"Logs: {Store(measurement.folder).log_folder}")
    return "\n".join(lines)


def failure_lines(failure: Failure, config: Config) -> list[str]:
    """Return a failure for a terminal: its errors, what may help, and the last lines of the
    log."""
    lines = f"{failure.code}: {failure.reason}".splitlines()
    help_against = remedy(failure, config)
    if help_against:
        lines.append(f"Remedy: {help_against}")
    if failure.log:
        lines.append("Last lines of the log:")
        lines += [f"| {line}" for line in failure.log.splitlines()]
    return [f"  {printable(line)}" for line in lines]


def write_measurement(
    measurement: Measurement, *, notebook: bool = False, executed: Path | None = None
) -> None:
    """Write the measurement's page in every language and, with `notebook`, notebook.ipynb with
    its outputs. `executed` is an executed notebook of the user's: it becomes notebook.ipynb,
    and its cells are on the page too."""
    checked_measurement = checked(measurement)
    result, folder = measurement.result, measurement.folder
    if executed:
        keep_own_notebook(executed, folder)
    source = source_notebook(folder, result.work.word)
    keeps_english = notebook and OWN not in source.metadata
    for language in LANGUAGES:
        with in_language(language):
            filling = Filling(
                section=lambda: page(checked_measurement),
                parameters=_notebook_values(result),
                heading=names.title(result),
                keep=keeps_english and language == "en",
            )
            write_page(_page(checked_measurement), source, filling)


def _notebook_values(result: Result) -> dict[str, Any]:
    """Return the values of the parameters cell of the measurement's notebook. Sample data is
    found from any working directory if it is not named."""
    values = names.taken_parameters(result)
    if result.work.has_sample_data:
        values["data_dir"] = None
    return values


def _page(measurement: CheckedMeasurement) -> Page:
    """Return the measurement's page, whose head has the codes of its warnings."""
    result = measurement.result
    started = _("Started %(time)s") % {"time": minute(result.created)}
    facts = {}
    if result.complete_repeats:
        codes = [warning.code for warning in measurement.checks.warnings]
        facts["warnings"] = " ".join(codes)
    made = [started, names.device(result), names.framework_version(result)]
    return Page(
        site=measurement.site,
        folder=measurement.folder,
        title=f"{names.title(result)} · {result.id.rsplit('-', 1)[-1]}",
        made=" · ".join(filter(None, made)),
        files=[NOTEBOOK, RESULT],
        facts=facts,
    )
