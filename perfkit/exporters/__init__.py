"""Measurements in the words of other tools, a file for each complete repeat.

A format is one module of this package, which turns a Training into text; what is common to all
is found in `training`.

training.py   a complete repeat with its raw steps
dllogger.py   as NVIDIA's DLLogger writes its file
mlperf.py     as MLPerf's mllog writes
optimum.py    as optimum-benchmark reports
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from perfkit.exporters import dllogger, mlperf, optimum
from perfkit.exporters.training import ExportError, Training, trainings
from perfkit.results.files import Measurement, write_atomically

__all__ = ["FORMATS", "ExportError", "export", "printed"]

FOLDER = "exported"
"""Where exported files lie in a measurement's folder."""


class Format(NamedTuple):
    """How a repeat is written, and how the name of such a file ends."""

    text: Callable[[Training], str]
    ending: str


FORMATS = {
    "dllogger": Format(dllogger.text, "dllogger.json"),
    "mlperf": Format(mlperf.text, "mlperf.txt"),
    "optimum": Format(optimum.text, "benchmark_report.json"),
}


def export(measurement: Measurement, name: str, to: Path | None = None) -> list[Path]:
    """Write the complete repeats in the format `name` of FORMATS, into `to` or beside the
    measurement; the files. Raises ExportError where no number stands behind the measurement's
    raw steps, OSError."""
    form = FORMATS[name]
    texts = [(one.repeat.index, form.text(one)) for one in trainings(measurement)]
    folder = to or measurement.folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for index, text in texts:
        files.append(folder / f"{measurement.result.id}-{index}.{form.ending}")
        write_atomically(files[-1], text)
    return files


def printed(measurement: Measurement, name: str) -> str:
    """The same as one text: the repeats one after the other. Raises ExportError."""
    return "".join(FORMATS[name].text(one) for one in trainings(measurement))
