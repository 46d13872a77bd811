"""The site opened from disk: sorted, filtered, in two languages."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from itertools import product
from urllib.parse import unquote
from xml.etree import ElementTree

import psutil
import pytest
from bs4 import BeautifulSoup
from made.clusters import wait_for
from made.results import (
    measured,
    rank_events,
    script_measured,
    stored,
    with_raw_files,
    write_all,
)
from markupsafe import Markup
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import expect
from pydantic import ValidationError

import perfkit
from perfkit.analysis.warnings import check
from perfkit.measuring.paths import ROOT
from perfkit.measuring.results.base import Reading
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import NOTEBOOK, Measurement
from perfkit.report import fleet, history, rankings, site
from perfkit.report.elements import table as report_table
from perfkit.report.links import Site
from perfkit.report.measurement import write_measurement
from perfkit.report.pages import OWN, Page
from perfkit.report.section import Section
from perfkit.report.site import parts, write_index, write_site, write_tables
from perfkit.report.summarized import Summary
from perfkit.report.text.language import LANGUAGES, file_name
from perfkit.report.text.names import command

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">&"\''
EXAMPLES = ROOT / "outputs" / "examples"
AXE = ROOT / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A site with several batch sizes, two inputs, a failed measurement and an audit."""
    folder = tmp_path_factory.mktemp("outputs")
    small = measured([10.0, 11.0, 12.0], batch_size=4)
    large = measured([20.0, 21.0, 22.0], batch_size=16)
    synthetic = measured([100.0, 101.0], batch_size=8, input="synthetic")
    failed = measured([], batch_size=128)
    labelled = measured([9.0], batch_size=4, label="monday")
    write_all(folder, small, large, synthetic, failed, labelled)
    stored(folder / "with-steps")
    (audit,) = EXAMPLES.glob("audits/paddle-perf-*")
    shutil.copytree(audit, folder / "audits" / "paddle-perf")
    progress = []
    write_site(folder, progress.append)
    assert progress == [1] * (7 + len(LANGUAGES))
    assert len(progress) == parts(folder)
    return folder


def with_steps(outputs):
    return next(outputs.glob("with-steps-*"))


@pytest.fixture
def without_published_charts(monkeypatch):
    monkeypatch.setitem(site.PAGES, "published", lambda _summary: Section())


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_sigkill_while_writing_a_site_leaves_no_process(tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    command = [sys.executable, "-c", "from perfkit.cli import main; main()"]
    with subprocess.Popen([*command, "report", tmp_path / "examples"]) as report:
        writers = wait_for(lambda: psutil.Process(report.pid).children())
        report.kill()
    _gone, alive = psutil.wait_procs(writers, timeout=20)
    assert alive == []


def pages(folder):
    return sorted(folder.rglob("*.html"))


def dead_links(folder):
    """Return the links to missing files and missing page fragments."""
    dead = []
    for page in pages(folder):
        text = page.read_text()
        parts = {*re.findall(r'id="([^"]+)"', text)}
        links = re.findall(r'href="([^"#]*)#?([^"]*)"', text)
        for link, part in links:
            if link.startswith("https://"):
                assert page.parent.name == "published", "where a table was published"
                continue
            path = page.parent / unquote(unescape(link))
            if not path.exists():
                dead.append((page, link))
            elif not link and part not in parts:
                dead.append((page, part))
    return dead


@pytest.mark.slow
def test_a_site_is_complete_in_every_language_without_dead_links(outputs):
    measurements = [path.parent for path in outputs.glob("*/result.json")]
    assert len(measurements) == 6
    for language, name in product(LANGUAGES, ("summary", "published", "history")):
        assert (outputs / name / file_name("report", language)).exists()
        assert (outputs / file_name("index", language)).exists()
        for place in measurements:
            assert (place / file_name("report", language)).exists()
    assert {path.name for path in outputs.glob("results.*")} == {"results.csv", "results.json"}
    assert dead_links(outputs) == []
    (page,) = outputs.glob("*-b128-*/report.html")
    failed = page.read_text()
    assert "no room" in failed
    assert 'class="tile"' not in failed


@pytest.mark.slow
def test_pages_written_one_by_one_have_no_dead_link(tmp_path):
    for path in EXAMPLES.rglob("*.json*"):
        if "verified" not in path.parts and path.parent != EXAMPLES:
            copied = tmp_path / path.relative_to(EXAMPLES)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copied)
    result = measured([2550.0] * 7, device="gpu", gpus=8, batch_size=128)
    write_all(tmp_path, result)
    for name in ("resnet50-torch-*-dataloader-quick-[!l]*", "resnet50-jax-*-live-*"):
        folder = next(tmp_path.glob(name))
        site.publish(Measurement.read(folder))
        assert dead_links(tmp_path) == []
    site.publish_comparison(next(tmp_path.glob("comparisons/resnet50-input-*")))
    assert dead_links(tmp_path) == []
    site.publish_audit(next(tmp_path.glob("audits/*")))
    assert dead_links(tmp_path) == []
    site.publish_page("summary", Summary.read(tmp_path))
    assert dead_links(tmp_path) == []
    below = [page for page in pages(tmp_path) if page.parent != tmp_path]
    assert len(below) == 14


def test_an_interrupted_site_has_no_empty_page_and_marks_the_old_summary(tmp_path, monkeypatch):
    page = write_index(Site(tmp_path)).read_text()
    assert "Nothing has been measured yet" in page
    # For a CPU or the GPUs, whichever the machine has.
    assert "<code>perfkit run resnet50 -p input synthetic</code> makes a first" in page
    folder = stored(tmp_path / "m").folder
    summary = tmp_path / "summary" / "report.html"
    summary.parent.mkdir()
    summary.touch()
    assert "older than" not in write_index(Site(tmp_path)).read_text()
    os.utime(summary, (0, 0))

    def interrupted(*_found):
        raise KeyboardInterrupt

    monkeypatch.setattr(site.Summary, "of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_site(tmp_path, lambda _part: None)
    assert (folder / "report.zh.html").exists()
    assert [page for page in pages(tmp_path) if not page.read_text()] == [summary]
    assert "older than the newest measurement" in write_index(Site(tmp_path)).read_text()


def test_csv_and_json_hold_the_same_measurements(outputs):
    with (outputs / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    records = json.loads((outputs / "results.json").read_text())
    assert len(rows) == 6
    repeats = []
    for row, record in zip(rows, records, strict=True):
        assert row["id"] == record["id"]
        throughput = None
        if row["throughput"]:
            throughput = float(row["throughput"])
        assert throughput == record["throughput"]
        texts = row["repeat_throughputs"].split()
        repeats.append([float(text) for text in texts])
    assert pytest.approx([10.0, 11.0, 12.0]) in repeats


def test_csv_cells_are_never_formulas(tmp_path):
    stored(tmp_path / "m", environment={"cpu": Reading(value='=HYPERLINK("http://x")')})
    write_tables(tmp_path, perfkit.load(tmp_path))
    with (tmp_path / "results.csv").open() as stream:
        (row,) = csv.DictReader(stream)
    assert row["environment.cpu"] == '\'=HYPERLINK("http://x")'


def hostile(content):
    """Return the result with HOSTILE in every unconstrained text and name, and their number."""
    replaced = 0

    def is_valid():
        nonlocal replaced
        try:
            Result.model_validate_json(json.dumps(content))
        except ValidationError:
            return False
        replaced += 1
        return True

    def replace_texts(node):
        """Replace unconstrained dictionary names, then every value below the node."""
        keys = range(len(node))
        if isinstance(node, dict):
            replace_names(node)
            keys = [*node]
        for key in keys:
            value = node[key]
            if isinstance(value, dict | list):
                replace_texts(value)
            elif isinstance(value, str):
                node[key] = HOSTILE
                if not is_valid():
                    node[key] = value

    def replace_names(node):
        for name in [*node]:
            node[HOSTILE] = node.pop(name)
            if not is_valid():
                node[name] = node.pop(HOSTILE)

    replace_texts(content)
    return Result.model_validate_json(json.dumps(content)), replaced


def with_every_text():
    """Return the content of a result that has a value in every field of text."""
    result = measured([1.0, 2.0], nodes=2, launcher="srun", strategy="fleetx-amp")
    content = json.loads(result.model_dump_json())
    failure = {"code": "bad_input", "reason": "late", "node": "b", "log": "late"}
    node = {"node": 1, "name": "b", "interface": "eth0", "differs": {"gpus": "A100"}}
    amp = {"value": "1", "state": "applied", "how": "by a flag"}
    effective = content["effective"]
    effective["strategy"] = {"amp": amp}
    effective["attention"] = "fused"
    effective["settings"] = {"optimizer": "fused"}
    content["nodes"] = [node]
    content["config"]["python"] = "bin/python"
    content["repeats"][0]["nodes"] = ["a", "b"]
    content["repeats"].append({"index": 3, "status": "failed", "failure": failure})
    content["protocol"]["repeats"] = 3
    content["status"] = "partial"
    content["failure"] = failure
    return content


@pytest.mark.usefixtures("without_published_charts")
def test_untrusted_text_is_escaped_in_every_field_of_a_result(tmp_path):
    result, replaced = hostile(with_every_text())
    assert replaced > 20
    write_all(tmp_path, result.model_copy(update={"id": "m"}))
    (folder,) = tmp_path.iterdir()
    logs = folder / "logs"
    logs.mkdir()
    (logs / "<script>alert(1)<.log").write_text(HOSTILE)
    broken = tmp_path / "<script>alert(1)<"
    broken.mkdir()
    (broken / "result.json").write_text("{")
    write_site(tmp_path, print)
    assert len(pages(tmp_path)) == 12
    for page in pages(tmp_path):
        text = page.read_text()
        own_scripts = 2 if page.name.startswith("index.") else 1
        assert text.count("<script") == own_scripts, page
        assert "<img src=x" not in text
        assert "&lt;script&gt;" in text or page.parent.name in ("published", "history")


def warned(text):
    """Return the index's warnings by the folder of the linked page, if any: the cell's text and
    its titles."""
    warnings = {}
    page = BeautifulSoup(text, "html.parser")
    for row in page.select("#measurements tbody tr:not(.group)"):
        cell = row.select_one("td.trust")
        cell_text = " ".join(cell.get_text().split())
        titles = [mark["title"] for mark in cell.select("[title]")]
        link = row.select_one("a")
        folder = link["href"].partition("/")[0] if link else ""
        warnings[folder] = (cell_text, *titles)
    return warnings


def test_rows_that_read_alike_tell_what_differs(tmp_path):
    one = {"script_sha256": "a" * 64, "script": "mine/train.py"}
    other = {"script_sha256": "b" * 64, "script": "other/train.py"}
    scripts = [script_measured([4.0], **content) for content in (one, other)]
    write_all(tmp_path, measured([4.0]), measured([4.0], seed=7), *scripts)
    page = BeautifulSoup(write_index(Site(tmp_path)).read_text(), "html.parser")
    names = [" ".join(name.get_text(" ").split()) for name in page.select("tbody th")]
    for end in ("seed 0", "seed 7", "script mine/train.py", "script other/train.py"):
        assert len([name for name in names if name.endswith(end)]) == 1, end


def test_other_load_is_named_beside_a_number_in_every_list(tmp_path):
    daily = [measured([10.0, 10.1, 10.2, 10.3]) for _day in range(3)]
    nodes = [measured([10.0, 10.1, 10.2, 10.3], node=f"node{n}") for n in range(3)]
    write_all(tmp_path, *daily, *nodes)
    for folder in tmp_path.iterdir():
        head = '<meta name="warnings" content="other_load outlier">'
        (folder / "report.html").write_text(f"<head>{head}</head>")
    write_index(Site(tmp_path))
    texts = [(tmp_path / "index.html").read_text()]
    summary = Summary.read(tmp_path)
    for section in (rankings.fastest, history.page, fleet.page):
        texts.append(section(summary).html)
    for text in texts:
        assert 'title="other_load, outlier"' in text


def test_the_index_lists_the_warnings_of_each_page(tmp_path):
    result = measured([32.0] * 7)
    even = rank_events([1.0] * 120, samples=32, measured_steps=100)
    late = rank_events([2.0] * 60 + [1.0] * 60, samples=32, measured_steps=100)
    good = with_raw_files(tmp_path / "good", result, [[even]] * 7)
    slow = with_raw_files(tmp_path / "slow", result, [[late]] * 7)
    failed = stored(tmp_path / "failed", repeats=[], status="partial", throughput=None)
    stored(tmp_path / "without-page")
    for measurement in (slow, good, failed):
        write_measurement(measurement)
    codes = [warning.code for warning in check(slow).warnings]
    assert "warm_up_longer" in codes, "what only the raw steps tell"
    index = write_index(Site(tmp_path)).read_text()
    warnings = warned(index)
    assert len(warnings) == 4
    first, *others = codes
    caution = f"▲ caution {first} +{len(others)}"
    assert warnings[slow.folder.name] == (caution, ", ".join(codes))
    assert warnings[good.folder.name] == ("● no warnings",)
    assert warnings[failed.folder.name] == ("–",)
    assert warnings[""] == ("–",)


@pytest.mark.usefixtures("without_published_charts")
def test_unreadable_measurements_are_named_and_the_others_shown(tmp_path, monkeypatch):
    odd = stored(tmp_path / "odd")
    unread = stored(tmp_path / "unread")
    good = stored(tmp_path / "good", created="2026-01-02T00:00:00+00:00")
    unread.rank_file(1, 0).write_text("nonsense\n")
    for name, text in (("cut", '{"schema_ver'), ("old", '{"schema_version": 1}')):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "result.json").write_text(text)
    written = site.write_measurement

    def stumble(measurement):
        if measurement.folder == odd.folder:
            raise TypeError("nobody thought of this")
        written(measurement)

    monkeypatch.setattr(site, "write_measurement", stumble)
    _index, left_out = write_site(tmp_path, print)
    reasons = [
        "cut/result.json: Invalid JSON: EOF while parsing a string",
        "old/result.json: schema_version is 1, this perfkit reads 9",
        f"{odd.folder.name}: its page could not be written (TypeError: nobody thought of this)",
        f"{unread.folder.name}: contradicts its raw files",
    ]
    assert len(left_out) == len(reasons)
    for page in (tmp_path / "index.html", tmp_path / "summary" / "report.html"):
        text = unescape(page.read_text())
        for reason in reasons:
            assert reason in text
        assert f"{good.folder.name}/report.html" in text
    assert "Invalid JSON" in (tmp_path / "cut" / "report.html").read_text()
    assert "rank0.jsonl: missing or changed since" in unescape(unread.page_file.read_text())


@pytest.mark.usefixtures("without_published_charts")
def test_an_entry_that_takes_no_page_is_named_and_the_other_pages_are_written(tmp_path):
    good = stored(tmp_path / "good")
    (tmp_path / "summary").write_text("a file")
    (tmp_path / "published").symlink_to("nowhere")
    looped = stored(tmp_path / "looped").folder / "repeats"
    shutil.rmtree(looped)
    looped.symlink_to("repeats")
    index, left_out = write_site(tmp_path, print)
    names = ["looped", "published", "summary"]
    assert sorted(re.split("[-:]", reason)[0] for reason in left_out) == names
    assert good.page_file.exists() and (tmp_path / "history" / "report.html").exists()
    assert "summary/" not in index.read_text()


@pytest.mark.usefixtures("without_published_charts")
def test_a_result_contradicting_its_raw_files_is_never_shown_as_fine(tmp_path):
    """At the top of its page, in the index of the site, and after a later publication."""
    changed = stored(tmp_path / "changed")
    good = stored(tmp_path / "good")
    path = changed.rank_file(1, 0)
    text = path.read_text()
    path.write_text(text.replace('"data_wait_seconds": 0.1', '"data_wait_seconds": 0.2'))
    write_site(tmp_path, lambda _part: None)
    page = BeautifulSoup(changed.page_file.read_text(), "html.parser")
    headline = page.select_one(".tiles")
    sentence = headline.find_previous("p").get_text()
    assert "contradicts its raw files" in sentence
    assert re.search("■ (1 warning|2 warnings)", headline.get_text())
    index = (tmp_path / "index.html").read_text()
    assert [*warned(index)] == [good.folder.name]
    assert f"{changed.folder.name}: contradicts its raw files: repeat 1" in index
    records = json.loads((tmp_path / "results.json").read_text())
    assert [record["id"] for record in records] == [good.folder.name]
    # The tables come from result.json alone, the warning from the page made above.
    site.publish(good)
    index = (tmp_path / "index.html").read_text()
    cell, *_titles = warned(index)[changed.folder.name]
    assert cell.startswith("■ error raw_files_differ")


FOREIGN_PAGE = "<script>alert(1)</script>"


def write_foreign_pages(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for language in LANGUAGES:
        (folder / file_name("report", language)).write_text(FOREIGN_PAGE)


def fleet_without_nodes(outputs):
    return outputs / "fleet"


def measurement_with_a_wrong_output(outputs):
    """Return the folder of a measurement whose page can't be made of its notebook."""
    folder = stored(outputs / "m").folder
    notebook = new_notebook(cells=[new_code_cell()], metadata={OWN: True})
    output = {"output_type": "display_data", "metadata": {}, "data": {"text/html": {"a": 1}}}
    notebook.cells[0].outputs = [output]
    (folder / NOTEBOOK).write_text(json.dumps(notebook))
    return folder


@pytest.mark.parametrize("plant", [fleet_without_nodes, measurement_with_a_wrong_output])
@pytest.mark.usefixtures("without_published_charts")
def test_no_page_of_a_site_links_to_a_foreign_page(tmp_path, plant):
    outputs = tmp_path / "outputs"
    stored(outputs / "good")
    write_foreign_pages(plant(outputs))
    write_site(outputs, lambda _part: None)
    own = [page for page in pages(outputs) if page.read_text() != FOREIGN_PAGE]
    assert len(own) > 8
    for page in own:
        for link in re.findall(r'href="([^"#]+\.html)', page.read_text()):
            linked = page.parent / unquote(link)
            assert linked.read_text() != FOREIGN_PAGE, (page, link)


@pytest.fixture
def open_page(browser):
    """Open a file in the browser; nothing may be logged or requested besides."""
    contexts = []
    problems = []

    def opened(path, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: problems.append(message.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("request", lambda r: r.is_navigation_request() or problems.append(r.url))
        tab.goto(path.as_uri())
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """An index with two devices and units, three frameworks, warnings and a failure."""
    folder = tmp_path_factory.mktemp("mixed")
    bert = {"model": "bert", "input": "synthetic", "image_size": None, "layout": None}
    bert |= {"sequence_length": 128, "batch_size": 2, "facts": {"cpu": "Xeon"}}
    jax = {"framework": "jax", "input": "synthetic", "execution": "static"}
    results = [
        measured([4.0], framework="torch", batch_size=4),
        measured([10.0, 11.0, 12.0], batch_size=4),
        measured([20.0, 21.0, 22.0], batch_size=16, precision="amp", image_size=64),
        measured([14.0, 15.0, 15.0, 16.0], batch_size=8, **jax),
        measured([], batch_size=128),
        measured([5.0], **bert),
        measured([30.0], framework="torch", **bert),
    ]
    write_all(folder, *results)
    for path in folder.iterdir():
        warnings = ""
        if "b4-0" in path.name:
            warnings = "above_peak drift"
        elif "b16" in path.name:
            warnings = "drift"
        head = f'<meta name="warnings" content="{warnings}">'
        (path / "report.html").write_text(f"<head>{head}</head>")
    write_index(Site(folder))
    return folder


def throughputs(tab):
    cells = tab.locator("tbody tr:visible td.throughput strong")
    return [float(text) for text in cells.all_inner_texts()]


def sorted_by(tab, name):
    heading = tab.get_by_role("columnheader", name=name)
    heading.get_by_role("button").click()
    return heading


def test_a_heading_sorts_all_rows_by_unit_and_number_in_both_directions(mixed, open_page):
    tab = open_page(mixed / "index.html")
    ascending = [4.0, 11.0, 15.0, 21.0, 5.0, 30.0]
    for order, values in (("ascending", ascending), ("descending", ascending[::-1])):
        heading = sorted_by(tab, "Throughput")
        assert heading.get_attribute("aria-sort") == order
        assert throughputs(tab) == values
        assert "out_of_memory" in tab.locator("tbody tr").last.inner_text()
    tab.get_by_role("columnheader", name="Framework").get_by_role("button").focus()
    tab.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") is None
    names = [text.split()[0] for text in tab.locator("td.framework").all_inner_texts()]
    assert names == ["JAX"] + ["Paddle"] * 4 + ["PyTorch"] * 2


FILTERED = {
    "resnet-50 pytorch": [4.0],
    "dali  batch": [4.0, 11.0, 21.0],
    "above_peak": [4.0],
    "images/s": [4.0, 11.0, 15.0, 21.0],
    "nobody": [],
    "": [4.0, 5.0, 11.0, 15.0, 21.0, 30.0],
}
"""Words in the filter -> throughputs of the rows that are left."""


def test_the_filter_shows_rows_with_all_words_sorted_or_not(mixed, open_page):
    tab = open_page(mixed / "index.html")
    for words, left in FILTERED.items():
        tab.get_by_label("Filter").fill(words)
        assert sorted(throughputs(tab)) == left, words
    tab.get_by_label("Filter").fill("bert")
    assert tab.locator("tr.group:visible").count() == 1
    sorted_by(tab, "Throughput")
    assert throughputs(tab) == [5.0, 30.0]


def pasted(tab):
    tab.evaluate("document.body.append(document.createElement('textarea'))")
    tab.locator("textarea").focus()
    tab.keyboard.press("Control+V")
    return tab.locator("textarea").input_value()


def downloaded(tab, button):
    with tab.expect_download() as found:
        button.click()
    return found.value


@pytest.mark.slow
def test_buttons_copy_the_command_and_download_charts(outputs, open_page):
    tab = open_page(with_steps(outputs) / "report.html")
    buttons = tab.get_by_role("button", name="Download SVG")
    assert buttons.count() == tab.locator("figure > svg:visible").count() > 0
    found = downloaded(tab, buttons.first)
    assert found.suggested_filename.endswith(".svg")
    root = ElementTree.parse(found.path()).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(root.iter())) > 20
    for details in tab.locator("details").all():
        details.evaluate("one => { one.open = true; }")
    tab.get_by_role("button", name="Copy command").click()
    expect(tab.get_by_role("button", name="Copied")).to_be_visible()
    assert pasted(tab) == command(Measurement.read(with_steps(outputs)).result)


def test_visible_rows_download_as_csv_and_copy_as_markdown(mixed, open_page):
    tab = open_page(mixed / "index.html")
    tab.get_by_label("Filter").fill("resnet-50 pytorch")
    found = downloaded(tab, tab.get_by_role("button", name="Download CSV"))
    head, row = csv.reader(found.path().read_text(encoding="utf-8-sig").splitlines())
    assert head[:3] == ["Configuration", "Framework", "Throughput"]
    assert row[0].startswith("ResNet-50 · fp32 · batch 4 · 1x1 · dali")
    assert row[1:3] == ["PyTorch", "4.000 images/s"]
    tab.get_by_role("button", name="Copy as Markdown").click()
    lines = pasted(tab).splitlines()
    assert lines[0].startswith("| Configuration | Framework | Throughput |")
    assert lines[1] == "|" + " --- |" * len(head)
    assert len(lines) == 3
    assert "| PyTorch | 4.000 images/s |" in lines[2]


def test_a_downloaded_table_is_complete_and_has_no_formula(open_page, tmp_path):
    rows = [
        ["=1+1", "-3.5 %"],
        ['say "a, b"', "@x"],
        ["b", Markup('+2<br><small data-column="Interval">+1 – +3</small>')],
    ]
    folder = tmp_path / "m"
    folder.mkdir()
    table = report_table(rows, ["text", "number"], "A table")
    page = Page(Site(tmp_path), folder, "Tables")
    page.write(Markup(table.html))
    tab = open_page(folder / "report.html")
    found = downloaded(tab, tab.get_by_role("button", name="Download CSV"))
    assert found.suggested_filename == "A-table.csv"
    text = found.path().read_text(encoding="utf-8-sig")
    head, formula, quoted, with_interval = csv.reader(text.splitlines())
    assert head == ["text", "number", "number: Interval"]
    assert formula == ["'=1+1", "-3.5 %", ""]
    assert quoted == ['say "a, b"', "'@x", ""]
    assert with_interval == ["b", "+2", "'+1 – +3"]


def test_links_keep_the_language(outputs, open_page):
    tab = open_page(outputs / "index.html")
    tab.locator("tbody a").first.click()
    assert tab.url.endswith("/report.html")
    tab.get_by_role("link", name="All measurements").click()
    tab.get_by_role("link", name="Summary").click()
    assert tab.title() == "Training throughput: summary"
    tab.locator("table a").first.click()
    assert tab.title().startswith("ResNet-50")
    tab.get_by_role("link", name="中文").click()
    assert tab.url.endswith("/report.zh.html")
    tab.get_by_role("link", name="全部测量").click()
    tab.locator("tbody a").first.click()
    assert tab.url.endswith("/report.zh.html")
    tab.get_by_role("link", name="English").click()
    assert tab.url.endswith("/report.html")


@pytest.mark.parametrize("language", list(LANGUAGES))
@pytest.mark.parametrize(
    "page", ["index", "summary/report", "published/report", "with-steps/report"]
)
def test_pages_fit_every_width_in_light_and_dark(outputs, open_page, page, language):
    sideways = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    body = "getComputedStyle(document.body)"
    page = page.replace("with-steps", with_steps(outputs).name)
    tab = open_page(outputs / file_name(page, language))
    for scheme, width in product(("light", "dark"), (390, 800, 1130, 1440)):
        tab.emulate_media(color_scheme=scheme)
        tab.set_viewport_size({"width": width, "height": 800})
        assert not tab.evaluate(sideways), (scheme, width)
        ink = tab.evaluate(f"{body}.color")
        paper = tab.evaluate(f"{body}.backgroundColor")
        assert (brightness(ink) > brightness(paper)) == (scheme == "dark")
        figure = tab.locator("figure > svg")
        if figure.count():
            style = figure.first.evaluate("svg => getComputedStyle(svg).filter")
            assert style == FIGURE_FILTERS[scheme]


@pytest.mark.parametrize(
    "page", ["index", "summary/report", "published/report", "audits/paddle-perf/report"]
)
def test_numbers_are_visible_on_narrow_screens(outputs, open_page, page):
    tab = open_page(outputs / f"{page}.html", viewport={"width": 390, "height": 800})
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert tab.locator("td:visible").count() >= 10
    beyond = "cell => cell.getBoundingClientRect().right > 390"
    outside = f"cells => cells.filter({beyond}).map(cell => cell.innerText)"
    assert tab.locator("td").evaluate_all(outside) == []


FIGURE_FILTERS = {"light": "none", "dark": "invert(0.93) hue-rotate(180deg)"}


def brightness(colour):
    """Return the sum of red, green and blue of a colour as the browser writes it."""
    parts = re.findall(r"\d+", colour)[:3]
    return sum(int(part) for part in parts)


@pytest.mark.parametrize(
    "page",
    [
        "index.html",
        "summary/report.html",
        "published/report.html",
        "resnet50-*/report.html",
        "comparisons/*/report.html",
        "audits/*/report.html",
    ],
)
@pytest.mark.slow
def test_example_pages_have_no_serious_accessibility_violation(open_page, page):
    """Check axe-core's rules; `make .venv/axe` installs it."""
    if not AXE.exists():
        pytest.skip(f"{AXE.relative_to(ROOT)} is missing: make .venv/axe")
    paths = sorted(EXAMPLES.glob(page))
    tab = open_page(paths[0], bypass_csp=True)
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.add_script_tag(path=AXE)
    serious = {}
    for scheme, width in product(("light", "dark"), (390, 1440)):
        tab.emulate_media(color_scheme=scheme)
        tab.set_viewport_size({"width": width, "height": 900})
        checked = tab.evaluate("axe.run({ resultTypes: ['violations'] })")
        for rule in checked["violations"]:
            if rule["impact"] not in ("serious", "critical"):
                continue
            for node in rule["nodes"]:
                place = (rule["id"], node["html"][:200])
                serious[place] = (scheme, width, node["failureSummary"])
    assert serious == {}


def test_a_page_passes_the_key_in_its_address_on_to_its_own_server_alone(outputs, browser):
    """JupyterLab's server sends files with its key alone."""
    page = outputs / "published" / "report.html"
    context = browser.new_context()
    context.route("http://jupyter.test/**", lambda route: route.fulfill(path=page))
    tab = context.new_page()
    tab.goto("http://jupyter.test/files/published/report.html?_xsrf=KEY")
    addresses = tab.locator("a[href]").evaluate_all("links => links.map(link => link.href)")
    local = [address for address in addresses if "//jupyter.test/" in address]
    foreign = {*addresses} - {*local}
    pages = {address.partition("#")[0] for address in local}
    assert any(page.endswith("/files/index.html?_xsrf=KEY") for page in pages)
    assert all(page.endswith("?_xsrf=KEY") for page in pages)
    assert foreign and not any("KEY" in address for address in foreign)
    context.close()


def test_the_index_lists_the_newest_first(tmp_path):
    for day in (1, 3, 2):
        created = f"2026-01-0{day}T00:00:00+00:00"
        measurement = stored(tmp_path / f"day{day}", created=created)
        measurement.page_file.touch()
    text = write_index(Site(tmp_path)).read_text()
    assert re.findall(r'href="(day\d)', text) == ["day3", "day2", "day1"]
