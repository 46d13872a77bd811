"""Tables of measurements for notebooks/explore.ipynb, which draws and changes them."""

from typing import Any

import pandas as pd

import perfkit
from perfkit.analysis.comparison.blocks import with_told
from perfkit.core.frameworks import DISPLAY_NAMES

EXAMPLES = "outputs/examples"
TRAITS = ["framework", "precision", "batch_size", "topology", "input"]
"""Columns that a measurement is named by."""
COLUMNS = ["model", *TRAITS, "image_size", "sequence_length", "label", "status", "throughput"]
COLUMNS += ["throughput_low", "throughput_high", "unit", "data_wait_share", "folder"]
"""Columns of the table of all measurements."""


def load_any(outputs: str) -> tuple[str, pd.DataFrame]:
    """Return the folder of outputs, or that of the examples if nothing was measured, and its
    measurements (perfkit.load), the oldest first, with the frameworks' names."""
    folder = outputs
    measurements = perfkit.load(outputs)
    if not measurements["throughput"].any():
        folder = EXAMPLES
        measurements = perfkit.load(EXAMPLES)
    assert measurements["throughput"].any(), "Nothing measured: perfkit run resnet50"
    return folder, measurements.replace({"framework": DISPLAY_NAMES}).sort_values("created")


def named(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements that have a number, with their `panel`, which has the model and
    the size of its samples, and their `name` in it, which ends with a label or an id. A script
    has its arguments, and the precision and samples per step that it told, in its name."""
    frame = with_told(measurements.query("throughput.notna()"))
    pixels = frame["image_size"].map("{:.0f} px, ".format, na_action="ignore")
    tokens = frame["sequence_length"].map("{:.0f} tokens, ".format, na_action="ignore")
    size = pixels.fillna(tokens).fillna("")
    frame["panel"] = frame["model"] + ", " + size + frame["unit"]
    is_ambiguous = frame.duplicated(["panel", *TRAITS, "label"], keep=False)
    has_own_label = frame["label"].ne("") & ~is_ambiguous
    frame["ending"] = frame["label"].where(has_own_label, frame["id"].str[-8:])
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


def with_most_similar(measurements: pd.DataFrame, chosen: "pd.Series[str]") -> pd.DataFrame:
    """Return the chosen measurement and, if there is one, the measurement of its panel that has
    most values in common with it."""
    panel = measurements[measurements["panel"] == chosen["panel"]].astype(str)
    in_common = (panel == panel.loc[chosen.name]).sum(axis="columns")
    return measurements.loc[in_common.nlargest(2).index]


def ratio(two: pd.DataFrame) -> str:
    """Return the ratio of the first measurement's throughput to the second's in words."""
    if len(two) < 2:
        return "No second measurement"
    first, second = two.iloc[0], two.iloc[1]
    value = first["throughput"] / second["throughput"]
    return f"{value:.3f} = {first['name']}\n      / {second['name']}"


def differences(two: pd.DataFrame) -> pd.DataFrame:
    """Return the columns in which measurements differ, one below another."""
    columns = two.drop(columns="repeat_throughputs").astype(str).set_index("name").T
    return columns[columns.nunique(axis="columns") > 1]
