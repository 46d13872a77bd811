"""The published numbers are complete, and unpublished cells have no number."""

from collections import Counter

import pytest

import perfkit

CELLS = {  # table: cells with a number, empty, with a dash
    "fleetx-resnet50": (26, 24, 10),
    "fleetx-vgg16": (44, 0, 0),
    "dlperf-resnet50": (10, 0, 0),
    "dlperf-resnet50-log": (1, 0, 0),
    "dlperf-resnet50-run": (36, 0, 0),
    "perf-resnet50": (33, 0, 3),
    "perf-bert": (44, 0, 4),
    "paddle-resnet50-report": (36, 0, 4),
    "torchtitan-llama3-8b": (6, 0, 0),
    "torchtitan-llama3-8b-long": (4, 0, 0),
    "torchtitan-llama3-8b-h200": (2, 0, 0),
    "megatron-bridge-llama3-8b": (7, 0, 0),
    "mlperf51-llama31-8b": (39, 0, 0),
    "references": (11, 0, 0),
}

# Computed once from the sources' own tables, not from this package's file.
SUMS = {
    "fleetx-resnet50": 289095.21,
    "fleetx-vgg16": 218677.16,
    "dlperf-resnet50": 40744.37,
    "dlperf-resnet50-log": 633.65,
    "dlperf-resnet50-run": 115000.88,
    "perf-resnet50": 264615.0,
    "perf-bert": 206363.824,
    "paddle-resnet50-report": 268039.813,
    "torchtitan-llama3-8b": 41460.0,
    "torchtitan-llama3-8b-long": 8049.0,
    "torchtitan-llama3-8b-h200": 21691.0,
    "megatron-bridge-llama3-8b": 209557.0,
    "mlperf51-llama31-8b": 4918.87,
    "references": 41632.6,
}


@pytest.fixture(scope="module")
def cells():
    return perfkit.published()


def test_every_table_has_the_expected_cells(cells):
    for table, expected in CELLS.items():
        of_table = cells[cells["table"] == table]
        counts = Counter(of_table["status"])
        assert (counts["published"], counts["not_published"], counts["dash"]) == expected
    assert {*cells["table"]} == {*CELLS}
    assert {*cells["status"]} == {"published", "not_published", "dash"}


def test_exactly_the_published_cells_have_a_number(cells):
    has_number = cells["throughput"].notna()
    is_published = cells["status"] == "published"
    assert (has_number == is_published).all()
    numbers = cells["throughput"].dropna()
    assert (numbers > 0).all()


def test_table_sums_match_their_sources(cells):
    printed = cells["printed"].astype(float).groupby(cells["table"])
    sums = printed.sum().round(3)
    assert sums.to_dict() == SUMS


def test_throughput_is_that_of_all_gpus_in_the_unit_of_the_model(cells):
    of_printed = {}
    for table in ("torchtitan-llama3-8b", "mlperf51-llama31-8b", "perf-bert"):
        cell = cells[(cells["table"] == table) & cells["throughput"].notna()].iloc[0]
        of_printed[cell["printed"]] = (cell["throughput"], cell["unit"])
    # 8 GPUs; sequences of 8,192 tokens.
    assert of_printed == {
        "5762": (8 * 5762, "tokens/s"),
        "24.89": (pytest.approx(24.89 * 8192), "tokens/s"),
        "147.14": (147.14, "sequences/s"),
    }


def test_the_global_batch_is_that_of_all_gpus(cells):
    stated = cells.dropna(subset=["global_batch", "batch_per_gpu"])
    gpus = stated["nodes"] * stated["gpus_per_node"]
    of_all = stated["batch_per_gpu"] * stated["accumulate"] * gpus
    assert len(stated) == 13
    assert (stated["global_batch"] == of_all).all()


def test_references_have_the_address_of_their_own_file(cells):
    references = cells[cells["table"] == "references"]
    assert references["url"].str.match(r"https://github\.com/.+/blob/.+\.(txt|csv|md)$").all()
    assert cells["url"].notna().sum() == len(references)


def test_cells_are_unique(cells):
    # A cell may appear per GPU, with and without accumulation, or per run.
    where = ["table", "framework", "precision", "nodes", "gpus_per_node", "batch_per_gpu"]
    is_duplicate = cells.duplicated([*where, "gpu", "note", "setup"])
    assert not is_duplicate.any()


def test_dlperf_averages_are_the_means_of_its_six_runs(cells):
    def by_topology(*tables):
        of_tables = cells["table"].isin(tables)
        of_paddle = cells["framework"] == "paddle"
        rows = cells[of_tables & of_paddle]
        return rows.groupby(["nodes", "gpus_per_node"])["throughput"]

    runs = by_topology("dlperf-resnet50-run")
    averages = by_topology("dlperf-resnet50", "dlperf-resnet50-log")
    assert (runs.size() == 6).all()
    assert (averages.size() == 1).all()
    differences = runs.mean() - averages.mean()
    # Printed to 0.01.
    assert (differences.abs() < 0.00501).all()


def test_published_throughput_rises_with_gpus(cells):
    # A mistyped digit would break the order.
    published = cells[cells["status"] == "published"].copy()
    published["gpus"] = published["nodes"] * published["gpus_per_node"]
    published["card"] = published["gpu"].str.slice(0, 4)
    series = ["table", "framework", "precision", "batch_per_gpu", "statistic", "card"]
    by_gpus = published.groupby([*series, "gpus"], dropna=False)
    best = by_gpus["throughput"].max()
    of_series = best.groupby(level=series, dropna=False)
    assert of_series.is_monotonic_increasing.all()
