"""Configurations: what the measurements of a series, or of a fleet's workload, agree in."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from perfkit.analysis.comparison.keys import KeyValue
from perfkit.measuring.results.base import Stored
from perfkit.measuring.results.frames import records

NAME = ["model", "model_size", "name", "used", "batch_size", "topology", "input"]
"""Columns that always name a configuration; `name` is the framework's, `used` the effective
precision. Others are added where configurations differ in them."""


class Configuration(Stored):
    """Columns of `perfkit.load`, and the values in which measurements agree."""

    values: dict[str, KeyValue]
    """column -> value"""
    apart: list[str]
    """columns that tell it from other configurations of the same NAME"""


def configurations(frame: pd.DataFrame, columns: Sequence[str]) -> dict[Any, Configuration]:
    """Return the configuration of each `series` of the frame by its number: NAME and those of
    the `columns` that the frame has, as its first measurement has them."""
    heads = frame.drop_duplicates("series").set_index("series")
    keys = [key for key in columns if key in heads and key not in NAME]
    by_number = {}
    for _values, alike in heads.groupby(NAME, dropna=False, sort=False):
        apart = [key for key in keys if alike[key].nunique(dropna=False) > 1]
        for number, row in zip(alike.index, records(alike), strict=True):
            values = {key: row[key] for key in [*NAME, *keys]}
            by_number[number] = Configuration(values=values, apart=apart)
    return by_number
