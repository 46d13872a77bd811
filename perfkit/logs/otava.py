"""Series of measurements as Apache Otava reads them, which looks for changes in its way."""

import re

import pandas as pd
import yaml

from perfkit.comparison.history import History

CONFIG = "otava.yaml"
ATTRIBUTES = ("measurement", "label", "changes")


def otava_files(history: History) -> dict[str, str]:
    """Name -> text of the files: a CSV for each series, with a row for each measurement, and
    the configuration that names them as tests, whose metric `throughput` is better when
    higher."""
    files, tests = {}, {}
    for number, series in enumerate(history.series):
        slug = re.sub(r"[^a-z0-9]+", "-", series.name.lower()).strip("-")[:80]
        name = f"{number:03}-{slug}"
        rows = [
            (point.created, point.throughput, point.id, point.label, " ".join(point.changes))
            for point in series.points
        ]
        table = pd.DataFrame(rows, columns=["time", "throughput", *ATTRIBUTES])
        files[f"{name}.csv"] = table.to_csv(index=False, lineterminator="\n")
        tests[name] = {
            "type": "csv",
            "file": f"{name}.csv",
            "time_column": "time",
            "metrics": {"throughput": {"column": "throughput", "direction": 1, "scale": 1}},
            "attributes": [*ATTRIBUTES],
        }
    return files | {CONFIG: yaml.safe_dump({"tests": tests}, sort_keys=False)}
