"""A measurement's page: its notebook with the show cells filled from the stored result.

The page reads `result.json` and the raw files and nothing else: it comes out the same right
after the measurement, after a crash, or on another machine years later; and it is the
notebook itself, so what the notebook shows is what the page shows.
"""

from pathlib import Path
from typing import Any

import nbformat
from nbconvert import HTMLExporter

from perfkit import report
from perfkit.config import ROOT, parameter_values
from perfkit.report.sections import Section, title
from perfkit.report.site import write_index
from perfkit.results import Measurement, write_atomically

TEMPLATES = Path(__file__).parent / "templates"


class MeasurementError(RuntimeError):
    """A measurement is not complete; the message says why and what to type next."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


def publish(measurement: Measurement) -> Section:
    """Write the measurement's page and the index; then raise MeasurementError if it is not
    complete, so that papermill ends non-zero too."""
    write_page(measurement)
    write_index(measurement.folder.parent)
    result = measurement.result
    if result.status != "complete":
        told = result.failure
        reason = f"{told.code}: {told.message}" if told else "it is not finished"
        kept = len(result.complete_repeats)
        done = (
            f"{kept} of {result.protocol.repeats} repeats are kept; the same command goes on "
            "from there. "
        )
        raise MeasurementError(
            f"{result.id} {result.status}: {reason}\n"
            f"{done if kept else ''}Logs: {_shown(measurement.folder / 'logs')}"
        )
    return Section(
        f"<p>The page: <code>{_shown(measurement.folder / 'report.html')}</code></p>"
    )


def write_page(measurement: Measurement) -> None:
    """Write notebook.ipynb and report.html beside the measurement's result.json."""
    notebook = filled_notebook(measurement)
    write_atomically(measurement.folder / "notebook.ipynb", nbformat.writes(notebook))
    exporter = HTMLExporter(template_name="perfkit", extra_template_basedirs=[str(TEMPLATES)])
    resources = {
        "title": title(measurement.result),
        "style": (TEMPLATES / "style.css").read_text(),
    }
    html, _ = exporter.from_notebook_node(notebook, resources)
    write_atomically(measurement.folder / "report.html", html)


def filled_notebook(measurement: Measurement) -> Any:
    """The model's notebook with this measurement's parameters and its show cells' outputs.

    A cell tagged "show" is one expression over `report` and `measurement`.
    """
    source = ROOT / "notebooks" / f"{measurement.result.config.model}.ipynb"
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if "parameters" in tags:
            cell.source = _parameters_source(measurement)
        elif "show" in tags:
            names = {"report": report, "measurement": measurement}
            section = eval(compile(cell.source, str(source), "eval"), names)
            html = {"text/html": section.html}
            cell.outputs = [nbformat.v4.new_output("display_data", html)]
    return notebook


def _parameters_source(measurement: Measurement) -> str:
    """The parameters cell with the values that this measurement was made with."""
    result = measurement.result
    values = parameter_values(result.config, result.protocol)
    return "\n".join(f"{name} = {value!r}" for name, value in values.items())


def _shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
