"""The published numbers are all there, and what was not published has no number."""

import pytest

import perfkit

CELLS = {  # table: cells with a number, left empty, marked with a dash
    "fleetx-resnet50": (26, 24, 10),
    "fleetx-vgg16": (44, 0, 0),
    "dlperf-resnet50": (10, 0, 0),
    "dlperf-resnet50-log": (1, 0, 0),
    "dlperf-resnet50-run": (36, 0, 0),
    "perf-resnet50": (33, 0, 3),
    "perf-bert": (44, 0, 4),
    "paddle-resnet50-report": (36, 0, 4),
}

# Summed once by a program that read the sources' own tables, not this package's file.
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


def test_every_table_has_its_published_empty_and_dashed_cells(cells):
    counts = cells.groupby("table")["status"].value_counts().unstack(fill_value=0)
    found = counts[["published", "not_published", "dash"]]
    assert {table: tuple(row) for table, row in found.T.items()} == CELLS


def test_a_cell_has_a_number_exactly_where_one_was_published(cells):
    assert (cells["throughput"].notna() == (cells["status"] == "published")).all()
    assert (cells["throughput"].dropna() > 0).all()


def test_the_numbers_of_a_table_add_up_to_what_its_source_adds_up_to(cells):
    sums = cells.groupby("table")["throughput"].sum().round(3)
    assert sums.to_dict() == SUMS


def test_no_empty_cell_is_filled_and_no_word_is_taken_for_an_empty_one(cells):
    without = cells[cells["table"] == "fleetx-resnet50"]
    assert without["input"].isna().all() and without["note"].isna().all()
    sometimes = ["throughput", "printed", "speedup", "input", "statistic", "note"]
    always = cells.columns.difference(sometimes)
    assert cells[always].notna().all(axis=None)


def test_counts_are_whole_numbers(cells):
    for column in ("nodes", "gpus_per_node", "batch_per_gpu"):
        assert cells[column].dtype == "int64" and (cells[column] > 0).all()


def test_a_source_is_the_name_of_a_document_not_of_a_file(cells):
    assert cells.groupby("table")["source"].nunique().eq(1).all()
    assert not cells["source"].str.contains(r"\.(?:txt|md|csv)\b|/|_").any()


def test_no_cell_is_there_twice(cells):
    # One cell may stand for V100 and A100, with and without accumulation, or once a run.
    where = ["table", "framework", "precision", "nodes", "gpus_per_node", "batch_per_gpu"]
    assert not cells.duplicated([*where, "gpu", "note"]).any()


def test_dlperfs_averages_are_the_means_of_its_six_runs(cells):
    def by_topology(*tables):
        some = cells[cells["table"].isin(tables) & (cells["framework"] == "paddle")]
        return some.groupby(["nodes", "gpus_per_node"])["throughput"]

    runs = by_topology("dlperf-resnet50-run")
    averages = by_topology("dlperf-resnet50", "dlperf-resnet50-log")
    assert (runs.size() == 6).all() and (averages.size() == 1).all()
    # Printed to 0.01.
    assert ((runs.mean() - averages.mean()).abs() < 0.00501).all()


def test_more_gpus_publish_a_higher_throughput(cells):
    # A slip in a transcribed digit would break the order.
    series = ["table", "framework", "precision", "batch_per_gpu", "statistic"]
    published = cells[cells["status"] == "published"].assign(
        gpus=cells["nodes"] * cells["gpus_per_node"],
        card=cells["gpu"].str.slice(0, 4),
    )
    best = published.groupby([*series, "card", "gpus"], dropna=False)["throughput"].max()
    rises = best.groupby(level=[*series, "card"], dropna=False).is_monotonic_increasing
    assert rises.all()
