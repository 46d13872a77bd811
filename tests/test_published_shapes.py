"""The page of published tables: numbers in their source's layout, measurements, charts.

snapshots/published.txt is the page's text without measurements. Review changes, then rewrite
it with: python tests/test_published_shapes.py"""

import re
import tempfile
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest
from bs4 import BeautifulSoup
from made.results import measured, write_all

import perfkit
from perfkit.analysis.published.cells import cells_of
from perfkit.analysis.published.matches import match
from perfkit.measuring.results.frames import records
from perfkit.report.links import Site
from perfkit.report.published import page
from perfkit.report.published_cells import difference_words
from perfkit.report.published_charts import CHARTS
from perfkit.report.section import Picture, Prose
from perfkit.report.summarized import Summary

SNAPSHOT = Path(__file__).parent / "snapshots" / "published.txt"
GPU8 = {"device": "gpu", "gpus": 8, "batch_size": 128}
FLEETX = GPU8 | {"strategy": "fleetx-fp32", "execution": "static"}
"""The configuration of FleetX's published 2506.47 images/s for ResNet-50."""
GPU1 = {"device": "gpu", "gpus": 1, "batch_size": 256}
FP16 = GPU1 | {"precision": "pure_fp16"}


@pytest.fixture(scope="module")
def cells():
    return cells_of(perfkit.published())


@pytest.fixture(scope="module")
def section(tmp_path_factory):
    """The page without measurements."""
    return written(tmp_path_factory.mktemp("empty"))


def written(outputs, *results):
    """Return the page with these results."""
    frame = perfkit.load(write_all(outputs, *results))
    site = Site(Path("nowhere"))
    return page(Summary(site, frame))


def without_charts(outputs, *results):
    """Return the page without its slow charts."""
    with patch.dict(CHARTS, clear=True):
        return written(outputs, *results)


def page_text(section):
    """Return headings, sentences and table rows as lines: cells by |, lines of a cell by /."""
    page = page_of(section)
    for line in page.find_all("br"):
        line.replace_with(" / ")
    lines = []
    for element in page.find_all(["h2", "p", "summary", "caption", "tr"]):
        texts = []
        for cell in element.find_all(["th", "td"]) or [element]:
            words = cell.get_text().split()
            texts.append(" ".join(words))
        line = " | ".join(texts)
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def page_of(section):
    html = ""
    for part in section.parts:
        if isinstance(part, Prose):
            html += part.html + "\n"
    return BeautifulSoup(html, "html.parser")


def matching(section):
    """Return the list of the measurements that match the first source."""
    words = re.compile("Measurements matching these numbers")
    return page_of(section).find("summary", string=words).parent


def pictures_of(section):
    return [part for part in section.parts if isinstance(part, Picture)]


def in_cell(section):
    """Return the lines of GPU8's cell in the first table."""
    table = page_of(section).find("table")
    columns = texts_of(table("th"))
    place = columns.index("1x8")
    for row in table("tr"):
        if row.td and row.td.get_text() == "128":
            cell = row("td")[place]
            return [*cell.stripped_strings]
    raise AssertionError("no row for a batch of 128")


def texts_of(elements):
    return [element.get_text() for element in elements]


def matched(cells, tmp_path, *results):
    frame = perfkit.load(write_all(tmp_path, *results))
    return match(cells, records(frame))


def test_the_page_text_matches_the_snapshot(section):
    """It covers layouts, blank and dashed cells, speedups that differ from the printed ones,
    marks for smaller batches and pure FP16, counts, and the charts' findings."""
    assert page_text(section) == SNAPSHOT.read_text(), "look at what changed; see above"
    pictures = pictures_of(section)
    assert len(pictures) == 15
    for picture in pictures:
        assert picture.alt


def test_every_published_number_is_shown_as_printed(section, cells):
    first_lines = Counter()
    for cell in page_of(section)("td"):
        first_lines[next(cell.stripped_strings, "")] += 1
    printed = Counter(cell.printed for cell in cells if cell.printed)
    assert printed.total() == 299
    assert printed <= first_lines


def test_every_source_has_a_link(section, cells):
    links = set()
    for heading in page_of(section)("h2"):
        link = heading.find_next("a")["href"]
        assert link.startswith("https://github.com/")
        links.add(link)
    sources = {cell.source for cell in cells}
    assert len(links) == len(sources)


def test_a_measurement_is_shown_below_the_published_number_with_ratio_and_differences(tmp_path):
    result = measured([2600.0, 2500.0, 2550.0], **FLEETX)
    section = without_charts(tmp_path, result)
    assert in_cell(section) == ["2506.47", "2,550 ± 2 % (1.02×)"]
    assert texts_of(matching(section)("td")) == [
        "fleetx-resnet50 · 128 · 1x8 · V100, FP32",
        "2506.47",
        "2,550 ± 2 % (1.02×)",
        "complete",
        "median of 3 runs; each the mean of steps 21-120; "
        "published: median of 7 runs; each the mean of steps 21-120",
    ]
    not_run = re.findall(r"of which not measured: (\d+)", page_of(section).get_text())
    # Sources with a measurement come first.
    assert not_run[:9] == ["25", "46", "44", "77", "36", "10", "2", "7", "39"]
    assert not_run[9:] == ["2", "1", "5", "3"]


def test_an_exact_reproduction_has_no_differences(cells, tmp_path):
    result = measured([2550.0] * 7, **FLEETX)
    differences = {}
    for pair in matched(cells, tmp_path, result):
        differences[pair.cell.table] = [difference.key for difference in pair.differences]
    assert differences["fleetx-resnet50"] == []
    # DLPerf used a 16 GB card and prints no strategy.
    assert differences["dlperf-resnet50"] == ["gpus", "strategy", "statistic"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"facts": {"gpus": ["NVIDIA H100 80GB HBM3, 80 GiB"]}},
            "GPU NVIDIA H100 80GB HBM3; published: V100",
        ),
        ({"tf32_used": True}, "effective precision fp32 (TF32); published: fp32"),
        ({"tf32": True, "tf32_used": False}, ""),
    ],
)
def test_differences_from_the_published_setup_are_stated(cells, tmp_path, change, words):
    result = measured([2550.0] * 7, **FLEETX | change)
    matches = matched(cells, tmp_path, result)
    (pair,) = (pair for pair in matches if pair.cell.table == "fleetx-resnet50")
    assert difference_words(pair) == words


def test_a_different_input_is_stated(cells, tmp_path):
    result = measured([393.0] * 7, input="synthetic", **GPU1)
    matches = matched(cells, tmp_path, result)
    (pair,) = (pair for pair in matches if pair.cell.printed == "393.561")
    assert "input synthetic; published: dali/xla" in difference_words(pair)


@pytest.mark.parametrize(
    "other",
    [
        {"device": "cpu", "gpus": None, "processes": 8},
        {"nodes": 2, "launcher": "srun"},
        {"batch_size": 127},
        {"precision": "amp"},
        {"image_size": 32},
    ],
)
def test_a_measurement_of_different_work_is_not_matched(cells, tmp_path, other):
    result = measured([1.0], **GPU8 | other)
    for pair in matched(cells, tmp_path, result):
        assert pair.cell.printed != "2506.47"


def test_a_cell_shows_the_newest_measurements_and_the_list_all(tmp_path):
    results = []
    for day in (1, 3, 5, 2, 4):
        created = {"created": f"2026-01-0{day}T00:00:00+00:00"}
        result = measured([2500.0 + day], **FLEETX)
        results.append(result.model_copy(update=created))
    section = without_charts(tmp_path, *results)
    numbers = []
    for line in in_cell(section):
        number, _bracket, _ratio = line.partition(" (")
        numbers.append(number)
    assert numbers == ["2506.47", "2,505", "2,504", "2,503", "and 2 more"]
    assert len(matching(section)("tr")) == 1 + 5


def test_a_failed_measurement_is_shown_with_its_code(tmp_path):
    failed = measured([], **GPU8)
    section = without_charts(tmp_path, failed)
    assert in_cell(section) == ["2506.47", "failed: out_of_memory"]


TORCHTITAN = {"model": "llama", "model_size": "8b", "framework": "torch", "device": "gpu"}
TORCHTITAN |= {"gpus": 8, "batch_size": 2, "sequence_length": 8192, "execution": "static"}
TORCHTITAN |= {"precision": "bf16", "input": "dataloader", "optimizer": "adamw"}
TORCHTITAN |= {"image_size": None, "layout": None, "facts": {"gpus": ["NVIDIA H100 96GB"] * 8}}


def test_a_measurement_of_llama_is_beside_torchtitans_number_per_gpu(cells, tmp_path):
    result = measured([8 * 6000.0] * 7, **TORCHTITAN)
    matches = {pair.cell.setup: pair for pair in matched(cells, tmp_path, result)}
    assert {*matches} == {"FSDP", "FSDP + torch.compile"}
    compiled = matches["FSDP + torch.compile"]
    assert compiled.measured == pytest.approx(6000)
    assert compiled.ratio == pytest.approx(6000 / 6667)
    differing = {each.key: (each.published, each.measured) for each in compiled.differences}
    assert differing.pop("statistic")[0] == "steps 81-90"
    # The suite has neither yet.
    assert differing == {"sharding": ("full", "none"), "recompute": ("selective", "none")}
    eager = {each.key for each in matches["FSDP"].differences}
    assert eager == {"sharding", "recompute", "statistic", "execution"}


@pytest.mark.parametrize("other", [{"model_size": "1b"}, {"sequence_length": 4096}])
def test_a_measurement_of_another_llama_is_not_matched(cells, tmp_path, other):
    result = measured([8 * 6000.0] * 7, **TORCHTITAN | other)
    assert matched(cells, tmp_path, result) == []


def legends(section):
    """Count the names in the charts' legends."""
    names = Counter()
    for picture in pictures_of(section):
        axes = picture.figure.axes[-1]
        names.update(texts_of(axes.get_legend().get_texts()))
    return names


def test_measured_numbers_join_only_the_charts_of_their_gpu(section, tmp_path):
    tensorflow = GPU1 | {"framework": "tensorflow"}
    on_h100 = FP16 | {"facts": {"gpus": ["NVIDIA H100"]}}
    results = []
    for parameters in (FP16, tensorflow, on_h100):
        results.append(measured([1438.5] * 7, **parameters))
    with_results = written(tmp_path, *results)
    before, after = legends(section), legends(with_results)
    assert before <= after
    assert after - before == {"Paddle, measured": 1, "TensorFlow, measured": 1}


if __name__ == "__main__":
    page = written(tempfile.mkdtemp())
    SNAPSHOT.write_text(page_text(page))
