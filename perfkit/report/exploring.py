"""Tables of measurements for notebooks/explore.ipynb, which draws and changes them."""

import os
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup, escape

import perfkit
from perfkit.analysis.comparison.blocks import with_told
from perfkit.analysis.comparison.keys import differing, must_agree
from perfkit.analysis.comparison.stored import Comparison
from perfkit.analysis.warnings import severity
from perfkit.measuring.format import number, one_line, plus_minus, shortened
from perfkit.measuring.paths import ROOT, outputs_path
from perfkit.measuring.results.store import Measurement
from perfkit.report.elements import joined, severity_mark
from perfkit.report.rendering import page_warnings
from perfkit.report.style import COLOURS
from perfkit.training.frameworks import DISPLAY_NAMES

LAYOUT = {"topStart": "pageLength", "topEnd": "search", "bottomStart": "info"}
LAYOUT |= {"bottomEnd": "paging"}
"""Layout of a table by itables: with a filter box, which it leaves out of short tables."""
EXAMPLES = ROOT / "outputs" / "examples"
TRAITS = ["framework", "precision", "batch_size", "topology", "input"]
"""Columns that a measurement is named by."""
COLUMNS = ["work", *TRAITS, "label", "throughput", "±", "unit", "status", "trust", "page"]
"""Columns of the table of all measurements."""
NUMBERS = ["batch_size", "throughput"]
"""Columns of that table with numbers alone."""
WIDTH, ROW_HEIGHT, PANEL_HEIGHT = 13.5, 0.23, 1.1
"""Inches of a figure: its width, at which JupyterLab need not scale it in a window of 1440
pixels, and the heights of a row and of a panel's title and axes."""
ROWS: dict[str, Any]
ROWS = {"x": "repeat_throughputs", "y": "name", "hue": "framework", "palette": COLOURS}
ROWS |= {"row": "panel", "sharex": False, "sharey": False, "legend": False}
"""Arguments of seaborn.catplot for a row per measurement, a dot per repeat and a panel per
`panel`; names in rows begin with the framework, so that a legend is not needed."""
DIGITS = 4
"""Significant digits of a number."""
LONGEST = 80
"""Most characters of a value in the table of differences."""
LONGEST_LABEL = 24
"""Most characters of a label in a measurement's name."""


def load_any(outputs: str) -> tuple[str, pd.DataFrame]:
    """Return the folder of outputs, or that of the examples if nothing was measured, and its
    measurements (perfkit.load), the oldest first, with the frameworks' names."""
    folder = outputs
    measurements = perfkit.load(outputs)
    if not measurements["throughput"].any():
        folder = str(EXAMPLES)
        measurements = perfkit.load(folder)
    assert measurements["throughput"].any(), "Nothing measured: perfkit run resnet50"
    return folder, measurements.replace({"framework": DISPLAY_NAMES}).sort_values("created")


def overview(folder: str, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the table of all measurements of a folder, the newest first, without columns that
    have no value, as HTML: foreign text is escaped."""
    columns = {"work": _works(measurements)}
    pages = measurements["folder"].map(lambda name: outputs_path(folder) / name)
    columns["trust"] = pages.map(_trust)
    columns["page"] = pages.map(_page)
    throughputs = measurements["throughput"].map(number, na_action="ignore")
    columns["throughput"] = throughputs.astype(object).fillna("–")
    columns["±"] = measurements.apply(_plus_minus, axis="columns")
    table = measurements.assign(**columns)[COLUMNS].iloc[::-1]
    has_value = table.notna() & table.ne("")
    shown = table.loc[:, has_value.any()]
    return shown.map(
        lambda value: escape(value if isinstance(value, Markup) else one_line(value))
    )


def _trust(page: Path) -> Markup:
    """Return the worst warning of the measurement in this folder."""
    codes = page_warnings(page)
    if codes is None:
        return Markup("–")
    return joined([severity_mark(severity(codes)), codes[0] if codes else "none"])


def _page(page: Path) -> Markup:
    """Return a link to the page in this folder; empty without one."""
    if not (page / "report.html").exists():
        return Markup()
    address = os.path.relpath(page / "report.html")
    return Markup('<a href="%s" target="_blank">page</a>') % quote(address)


def _plus_minus(measurement: "pd.Series[Any]") -> str:
    low, high = measurement["throughput_low"], measurement["throughput_high"]
    return "" if isnan(low) else plus_minus(measurement["throughput"], low, high)


def _works(measurements: pd.DataFrame) -> "pd.Series[str]":
    """Return the model of each measurement, with the size of its images or sequences."""
    pixels = measurements["image_size"].map(", {:.0f} px".format, na_action="ignore")
    tokens = measurements["sequence_length"].map(", {:.0f} tokens".format, na_action="ignore")
    sizes = pixels.astype(object).fillna(tokens).fillna("")
    return measurements["model"] + sizes


def show(table: pd.DataFrame, **options: Any) -> None:
    """Show a table of texts and numbers in whole columns, which wrap, with itables' options."""
    import itables

    places = [place for place, name in enumerate(table.columns) if name in NUMBERS]
    right = {"className": "dt-right", "targets": places}
    left = {"className": "dt-left", "targets": "_all"}
    look = {"classes": "display compact", "columnDefs": [right, left], "layout": LAYOUT}
    itables.show(table, **look, **options)


def named(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements that have a number, with their `panel`, which has the model and
    the size of its samples, and their `name` in it, which ends with a label or an id. A script
    has its arguments, and the precision and samples per step that it told, in its name."""
    frame = with_told(measurements.query("throughput.notna()"))
    frame["panel"] = _works(frame) + ", " + frame["unit"]
    is_ambiguous = frame.duplicated(["panel", *TRAITS, "label"], keep=False)
    has_own_label = frame["label"].ne("") & ~is_ambiguous
    labels = frame["label"].map(partial(shortened, longest=LONGEST_LABEL))
    frame["ending"] = labels.where(has_own_label, frame["id"].str[-8:])
    traits = [name for name in (*TRAITS, "arguments", "ending") if name in frame]
    frame["name"] = frame[traits].apply(_words, axis="columns")
    return frame


def _words(traits: "pd.Series[Any]") -> str:
    """Return the traits that have a value."""
    texts = traits.dropna().astype(str)
    return " · ".join(filter(None, texts))


def repeats_of(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each repeat, whose throughput is in `repeat_throughputs`."""
    return measurements.explode("repeat_throughputs", ignore_index=True).infer_objects()


def rows_of(measurements: pd.DataFrame) -> dict[str, Any]:
    """Return the arguments of seaborn.catplot that draw the repeats of measurements in rows, in
    a figure as high as these need."""
    rows = measurements.groupby("panel", sort=False).size()
    heights = rows * ROW_HEIGHT + PANEL_HEIGHT
    height = heights.mean()
    ratios = {"gridspec_kws": {"height_ratios": [*heights]}}
    return ROWS | {"height": height, "aspect": WIDTH / height, "facet_kws": ratios}


def with_most_similar(measurements: pd.DataFrame, chosen: "pd.Series[str]") -> pd.DataFrame:
    """Return the chosen measurement and, if there is one, the measurement of its panel that has
    most values in common with it."""
    panel = measurements[measurements["panel"] == chosen["panel"]].astype(str)
    in_common = (panel == panel.loc[chosen.name]).sum(axis="columns")
    return measurements.loc[in_common.nlargest(2).index]


def comparison(folder: str, two: pd.DataFrame) -> Comparison | str:
    """Return the first measurement compared with the second, whatever they differ in, as
    `perfkit.compare` does it, or why that is not possible."""
    if len(two) < 2:
        return "No second measurement"
    b, a = (outputs_path(folder) / name for name in two["folder"])
    keys = [must_agree(Measurement.read(each)) for each in (a, b)]
    try:
        return perfkit.compare(a, b, across=[*differing(*keys)])
    except perfkit.ComparisonError as error:
        return str(error)


def differences(two: pd.DataFrame) -> pd.DataFrame:
    """Return the columns in which measurements differ, one below another, in short texts."""
    derived = ["repeat_throughputs", "folder", "ending"]
    columns = two.drop(columns=derived).set_index("name").T
    differs = columns.astype(str).nunique(axis="columns") > 1
    return columns[differs].map(_text)


def _text(value: Any) -> str:
    """Return a value of any column in few characters."""
    if isinstance(value, float):
        return "–" if isnan(value) else number(value, DIGITS)
    return shortened(value, LONGEST)
