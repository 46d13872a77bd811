"""Series of measurements as Apache Otava reads them, which looks for changes in its way."""

import csv
import io
import re

import yaml

from perfkit.comparison.history import History, Series

CONFIG = "otava.yaml"
ATTRIBUTES = ("measurement", "label", "changes")


def otava_files(history: History) -> dict[str, str]:
    """Name -> text of the files: a CSV for each series, with a row for each measurement, and
    the configuration that names them as tests, whose metric `throughput` is better when
    higher."""
    tests = {f"{number:03}-{_slug(one.name)}": one for number, one in enumerate(history.series)}
    files = {f"{name}.csv": _rows(series) for name, series in tests.items()}
    metric = {"column": "throughput", "direction": 1, "scale": 1}
    config = {
        name: {
            "type": "csv",
            "file": f"{name}.csv",
            "time_column": "time",
            "metrics": {"throughput": dict(metric)},
            "attributes": [*ATTRIBUTES],
        }
        for name in tests
    }
    return files | {CONFIG: yaml.safe_dump({"tests": config}, sort_keys=False)}


def _rows(series: Series) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["time", "throughput", *ATTRIBUTES])
    for point in series.points:
        changed = " ".join(point.changes)
        rows.writerow([point.created, point.throughput, point.id, point.label, changed])
    return text.getvalue()


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80]
