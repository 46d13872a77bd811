"""The published numbers are complete, and unpublished cells have no number."""

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
}


@pytest.fixture(scope="module")
def cells():
    return perfkit.published()


def test_every_table_has_the_expected_cells(cells):
    counts = cells.groupby("table")["status"].value_counts().unstack(fill_value=0)
    found = counts[["published", "not_published", "dash"]]
    assert {table: tuple(row) for table, row in found.T.items()} == CELLS


def test_exactly_the_published_cells_have_a_number(cells):
    assert (cells["throughput"].notna() == (cells["status"] == "published")).all()
    assert (cells["throughput"].dropna() > 0).all()


def test_table_sums_match_their_sources(cells):
    sums = cells.groupby("table")["throughput"].sum().round(3)
    assert sums.to_dict() == SUMS


def test_only_optional_columns_are_empty(cells):
    without = cells[cells["table"] == "fleetx-resnet50"]
    assert without["input"].isna().all() and without["note"].isna().all()
    sometimes = ["throughput", "printed", "speedup", "input", "statistic", "note"]
    always = cells.columns.difference(sometimes)
    assert cells[always].notna().all(axis=None)


def test_counts_are_positive_integers(cells):
    for column in ("nodes", "gpus_per_node", "batch_per_gpu"):
        assert cells[column].dtype == "int64" and (cells[column] > 0).all()


def test_sources_are_document_titles(cells):
    assert cells.groupby("table")["source"].nunique().eq(1).all()
    assert not cells["source"].str.contains(r"\.(?:txt|md|csv)\b|/|_").any()


def test_cells_are_unique(cells):
    # A cell may appear per GPU, with and without accumulation, or per run.
    where = ["table", "framework", "precision", "nodes", "gpus_per_node", "batch_per_gpu"]
    assert not cells.duplicated([*where, "gpu", "note"]).any()


def test_dlperf_averages_are_the_means_of_its_six_runs(cells):
    def by_topology(*tables):
        rows = cells[cells["table"].isin(tables) & (cells["framework"] == "paddle")]
        return rows.groupby(["nodes", "gpus_per_node"])["throughput"]

    runs = by_topology("dlperf-resnet50-run")
    averages = by_topology("dlperf-resnet50", "dlperf-resnet50-log")
    assert (runs.size() == 6).all() and (averages.size() == 1).all()
    # Printed to 0.01.
    assert ((runs.mean() - averages.mean()).abs() < 0.00501).all()


def test_published_throughput_rises_with_gpus(cells):
    # A mistyped digit would break the order.
    series = ["table", "framework", "precision", "batch_per_gpu", "statistic"]
    published = cells[cells["status"] == "published"].assign(
        gpus=cells["nodes"] * cells["gpus_per_node"], card=cells["gpu"].str.slice(0, 4)
    )
    best = published.groupby([*series, "card", "gpus"], dropna=False)["throughput"].max()
    rises = best.groupby(level=[*series, "card"], dropna=False).is_monotonic_increasing
    assert rises.all()
