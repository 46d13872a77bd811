"""The site as a reader has it: opened from disk, sorted, filtered, in two languages."""

import csv
import json
import os
import re
import shutil
from html import unescape
from itertools import product
from urllib.parse import unquote
from xml.etree import ElementTree

import nbformat
import pytest
from click.testing import CliRunner
from made import (
    made_result,
    measured,
    rank_events,
    stored,
    with_raw_files,
    write_all,
    write_steps,
)
from markupsafe import Markup
from playwright.sync_api import expect, sync_playwright
from pydantic import ValidationError

import perfkit
from perfkit import report
from perfkit.analysis.sanity import warnings_about
from perfkit.cli import main
from perfkit.config import ROOT
from perfkit.report import site
from perfkit.report.index import write_index, write_tables
from perfkit.report.measurement import write_measurement
from perfkit.report.pages import write_page
from perfkit.report.section import Section
from perfkit.report.section import table as report_table
from perfkit.report.site import (
    parts,
    publish,
    publish_audit,
    publish_comparison,
    publish_published,
    publish_summary,
    write_site,
)
from perfkit.report.summary import Summary
from perfkit.results.schema import Reading, Result
from perfkit.results.store import Measurement
from perfkit.text.format import command
from perfkit.text.language import LANGUAGES, file_name
from perfkit.text.messages import worst_first

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">&"\''
CHROMIUM = shutil.which("chromium")
AXE = ROOT / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A site: two batch sizes, two inputs, one measurement that failed."""
    folder = tmp_path_factory.mktemp("outputs")
    write_all(
        folder,
        measured([10.0, 11.0, 12.0], batch_size=4),
        measured([20.0, 21.0, 22.0], batch_size=16),
        measured([100.0, 101.0], batch_size=8, input="synthetic"),
        measured([], batch_size=128),
        measured([9.0], batch_size=4, label="monday"),
    )
    stored(folder / "with-steps")
    told = []
    write_site(folder, told.append)
    assert told == [1] * parts(folder) == [1] * (6 + len(LANGUAGES))
    return folder


@pytest.fixture
def without_published_charts(monkeypatch):
    """Leave out what takes most of a site's time, for tests of something else."""
    monkeypatch.setattr("perfkit.report.published_tables", lambda _summary: Section())


def pages(folder):
    return sorted(folder.rglob("*.html"))


def test_a_site_has_index_summary_pages_and_data_in_every_language(outputs):
    measurements = [path.parent for path in outputs.glob("*/result.json")]
    assert len(measurements) == 6
    for language in LANGUAGES:
        assert (outputs / file_name("index", language)).exists()
        folders = [outputs / name for name in ("summary", "published")]
        for folder in (*measurements, *folders):
            assert (folder / file_name("report", language)).exists()
    assert {path.name for path in outputs.glob("results.*")} == {"results.csv", "results.json"}


def dead_links(folder):
    """The links to a file that is not there, as page and link."""
    dead = []
    for page in pages(folder):
        for link in re.findall(r'href="([^"#]+)', page.read_text()):
            if link.startswith("https://"):
                assert page.parent.name == "published", "where a table was published"
            elif not (page.parent / unquote(unescape(link))).exists():
                dead.append((str(page.relative_to(folder)), link))
    return dead


def test_every_link_of_the_site_leads_to_a_file(outputs):
    assert dead_links(outputs) == []


def copy_examples(folder):
    """What the pages of the examples are made from, without a page."""
    kept = ROOT / "outputs" / "examples"
    for path in kept.rglob("*.json*"):
        if "verified" not in path.parts and path.parent != kept:
            copied = folder / path.relative_to(kept)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copied)


PUBLISHED = {
    "the summary": lambda folder: publish_summary(Summary.read(folder)),
    "a measurement": lambda folder: publish(
        Measurement.read(next(folder.glob("resnet50-paddle-*-quick-0e37df14")))
    ),
    "a measurement of a comparison": lambda folder: publish(
        Measurement.read(next(folder.glob("resnet50-jax-*-live-*")))
    ),
    "a comparison": lambda folder: publish_comparison(next(folder.glob("comparisons/*"))),
    "an audit": lambda folder: publish_audit(next(folder.glob("audits/*"))),
}


@pytest.mark.parametrize("what", PUBLISHED)
def test_every_link_leads_to_a_file_when_nothing_else_was_published(tmp_path, what):
    copy_examples(tmp_path)
    write_all(tmp_path, measured([2550.0] * 7, device="gpu", gpus=8, batch_size=128))
    PUBLISHED[what](tmp_path)
    written = [page for page in pages(tmp_path) if page.parent != tmp_path]
    assert written and (tmp_path / "index.html").exists()
    assert dead_links(tmp_path) == []


def test_a_site_whose_writing_was_interrupted_has_no_empty_page_and_an_old_summary_stays_old(
    tmp_path, monkeypatch
):
    stored(tmp_path / "m")
    summary = tmp_path / "summary" / "report.html"
    summary.parent.mkdir()
    summary.touch()
    os.utime(summary, (0, 0))

    def interrupted(_outputs):
        raise KeyboardInterrupt

    monkeypatch.setattr(site.Summary, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_site(tmp_path, lambda _part: None)
    assert (tmp_path / "m" / "report.zh.html").exists()
    assert [page for page in pages(tmp_path) if not page.read_text()] == [summary]
    assert "older than the newest measurement" in write_index(tmp_path).read_text()


def test_pages_link_to_the_summary_and_to_published_tables_that_are_written_later(outputs):
    for language, names in {"en": ["Summary", "Published tables"], "zh": ["汇总"]}.items():
        page = (outputs / "with-steps" / file_name("report", language)).read_text()
        header = page.partition("<header>")[2].partition("</header>")[0]
        for place in ("summary", "published"):
            assert f'href="../{place}/{file_name("report", language)}"' in header
        assert all(name in header for name in names)


def test_every_link_within_a_page_leads_to_a_part_of_it(outputs):
    for page in pages(outputs):
        text = page.read_text()
        links = re.findall(r'href="#([^"]+)"', text)
        assert {*links} <= {*re.findall(r'id="([^"]+)"', text)}, page


def test_csv_and_json_have_a_row_for_each_measurement_and_the_same_numbers(outputs):
    with (outputs / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    records = json.loads((outputs / "results.json").read_text())
    assert len(rows) == len(records) == 6
    assert [row["id"] for row in rows] == [record["id"] for record in records]
    numbers = {record["id"]: record["throughput"] for record in records}
    assert {r["id"]: float(r["throughput"]) for r in rows if r["throughput"]} == {
        name: value for name, value in numbers.items() if value is not None
    }
    assert "10.0 11.0 12.0" in {row["repeat_throughputs"] for row in rows}


def test_a_spreadsheet_takes_no_text_of_a_result_for_a_formula(tmp_path):
    stored(tmp_path / "m", environment={"cpu": Reading(value='=HYPERLINK("http://x")')})
    write_tables(tmp_path, perfkit.load(tmp_path))
    with (tmp_path / "results.csv").open() as stream:
        (row,) = csv.DictReader(stream)
    assert row["environment.cpu"] == '\'=HYPERLINK("http://x")'


def hostile(result):
    """The result with HOSTILE in the place of every text and name that may be any; how many."""
    content = json.loads(result.model_dump_json())
    taken = 0

    def valid():
        try:
            Result.model_validate_json(json.dumps(content))
        except ValidationError:
            return False
        return True

    def spoil(node):
        """Spoil names of a dictionary that may be any, then every value below the node."""
        nonlocal taken
        for name in list(node) if isinstance(node, dict) else []:
            node[HOSTILE] = node.pop(name)
            if valid():
                taken += 1
            else:
                node[name] = node.pop(HOSTILE)
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            value = node[key]
            if isinstance(value, dict | list):
                spoil(value)
            elif isinstance(value, str):
                node[key] = HOSTILE
                if valid():
                    taken += 1
                else:
                    node[key] = value

    spoil(content)
    return Result.model_validate_json(json.dumps(content)), taken


@pytest.mark.usefixtures("without_published_charts")
def test_foreign_text_is_escaped_wherever_a_result_may_have_it(tmp_path):
    full = measured([1.0, 2.0], nodes=2, launcher="srun", strategy="fleetx-amp")
    node = {"node": 1, "name": "b", "interface": "eth0", "differs": {"gpus": "A100"}}
    option = {"value": "1", "state": "applied", "how": "by a flag"}
    content = json.loads(full.model_dump_json())
    content["nodes"] = [node]
    content["effective"]["strategy"] = {"amp": option}
    content["repeats"][0]["nodes"] = ["a", "b"]
    content["repeats"].append(
        {"index": 3, "status": "failed"}
        | {"failure": {"code": "timeout", "params": {"detail": "late"}}}
    )
    content |= {
        "status": "partial",
        "failure": {"code": "timeout", "params": {"detail": "late"}},
    }
    result, taken = hostile(Result.model_validate_json(json.dumps(content)))
    assert taken > 20
    write_all(tmp_path, result.model_copy(update={"id": "m"}))
    (folder,) = tmp_path.iterdir()
    write_steps(folder, 1, [1.0])
    logs = folder / "logs"
    logs.mkdir()
    (logs / "<script>alert(1)<.log").write_text(HOSTILE)
    broken = tmp_path / "<script>alert(1)<"
    broken.mkdir()
    (broken / "result.json").write_text("{")
    write_site(tmp_path, print)
    assert len(pages(tmp_path)) == 10
    for page in pages(tmp_path):
        text = page.read_text()
        assert text.count("<script") == 1, page
        assert "<img src=x" not in text
        assert "&lt;script&gt;" in text or page.parent.name in ("published", "history")


def warned(text):
    """What the index has under Warnings, by the measurement's folder: what is shown, and the
    title."""
    row = r'href="([^/"]+)/report.html"[^>]*>.*?class="warned"[^>]*>(.*?)</td>'
    cells = re.findall(row, text, re.DOTALL)
    titles = {folder: re.findall('title="(.*?)"', cell) for folder, cell in cells}
    shown = {folder: " ".join(re.sub("<.*?>", "", cell).split()) for folder, cell in cells}
    return {folder: (shown[folder], *titles[folder]) for folder in shown}


def test_the_index_names_the_warnings_that_each_page_has(tmp_path):
    even = rank_events([1.0] * 120, samples=32, measured_steps=100)
    late = rank_events([2.0] * 60 + [1.0] * 60, samples=32, measured_steps=100)
    good = with_raw_files(tmp_path / "good", measured([32.0] * 7), [[even]] * 7)
    slow = with_raw_files(tmp_path / "slow", measured([32.0] * 7), [[late]] * 7)
    failed = stored(tmp_path / "failed", repeats=[], status="partial", throughput=None)
    for measurement in (slow, good, failed):
        write_measurement(measurement)
    found = warned(write_index(tmp_path).read_text())
    codes = worst_first(one.code for one in warnings_about(slow))
    assert "warm_up_longer" in codes, "what only the raw steps tell"
    assert found["slow"] == (f"▲ caution {codes[0]} +{len(codes) - 1}", ", ".join(codes))
    assert found["good"] == ("● none",)
    assert found["failed"] == ("–",)


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        ('<meta name="warnings" content="other_load above_peak">', "■ error above_peak"),
        ('<meta name="warnings" content="nobody_knows">', "–"),
        ("", "–"),
        ('<ul class="warnings"><li><code>drift</code></li></ul>', "–"),
        ("x" * 10_000 + '<meta name="warnings" content="drift">', "–"),
    ],
)
def test_the_index_reads_warnings_from_the_head_of_a_page_and_from_nowhere_else(
    tmp_path, head, shown
):
    stored(tmp_path / "m")
    (tmp_path / "m" / "report.html").write_text(f"<head>{head}</head>")
    assert warned(write_index(tmp_path).read_text())["m"][0].startswith(shown)


def test_the_index_says_nothing_of_warnings_where_there_is_no_page(tmp_path):
    stored(tmp_path / "m")
    text = write_index(tmp_path).read_text()
    (cell,) = re.findall(r'class="warned"[^>]*>(.*?)</td>', text, re.DOTALL)
    assert cell.strip() == "–"


@pytest.mark.usefixtures("without_published_charts")
def test_a_page_that_can_not_be_written_is_named_and_the_others_are_written(
    tmp_path, monkeypatch
):
    for name in ("good", "odd"):
        stored(tmp_path / name)
    written = site.write_measurement

    def stumble(measurement):
        if measurement.folder.name == "odd":
            raise TypeError("nobody thought of this")
        written(measurement)

    monkeypatch.setattr(site, "write_measurement", stumble)
    write_site(tmp_path, print)
    assert (tmp_path / "good" / "report.html").exists()
    for page in (tmp_path / "index.html", tmp_path / "summary" / "report.html"):
        text = unescape(page.read_text())
        assert "odd: its page could not be written (TypeError: nobody thought of this)" in text


def test_the_index_says_of_a_summary_that_it_is_older_than_the_newest_measurement(tmp_path):
    stored(tmp_path / "one")
    summary = tmp_path / "summary" / "report.html"
    summary.parent.mkdir()
    summary.touch()
    assert "older than" not in write_index(tmp_path).read_text()
    os.utime(summary, (0, 0))
    assert "older than the newest measurement" in write_index(tmp_path).read_text()


@pytest.mark.usefixtures("without_summary")
def test_a_file_that_can_not_be_read_does_not_steer_the_terminal_that_it_is_named_on(tmp_path):
    content = json.loads(measured([1.0]).model_dump_json()) | {"x\x1b[2J\x1b]0;y\x07": 1}
    folder = tmp_path / "from elsewhere\x1b[31m"
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(content))
    done = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert done.exit_code == 0
    assert "left out: " in done.stderr
    assert not {"\x1b", "\x07"} & {*done.stderr}


@pytest.mark.usefixtures("without_published_charts")
def test_what_can_not_be_read_is_named_in_index_and_summary_and_the_rest_is_there(tmp_path):
    stored(tmp_path / "good")
    for name, text in {"cut": '{"schema_ver', "old": '{"schema_version": 1}'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(text)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "result.json").write_text('{"schema_version": 99}')
    (tmp_path / "cut" / "report.html").write_text("as it was")
    _index, left_out = write_site(tmp_path, print)
    assert len(left_out) == 3
    assert "not JSON" in (tmp_path / "cut" / "report.html").read_text()
    for page in (tmp_path / "index.html", tmp_path / "summary" / "report.html"):
        text = unescape(page.read_text())
        assert "cut/result.json: not JSON, perhaps cut off" in text
        assert (
            "old/result.json: schema_version is 1, this perfkit reads 3, written by an" in text
        )
        assert (
            "new/result.json: schema_version is 99, this perfkit reads 3, and is newer" in text
        )
        assert "good/report.html" in text


def test_raw_steps_that_can_not_be_read_are_told_and_the_page_is_there(tmp_path):
    measurement = stored(tmp_path / "m")
    measurement.rank_file(1, 0).write_text("nonsense\n")
    write_measurement(measurement)
    text = unescape((tmp_path / "m" / "report.html").read_text())
    assert "The raw steps can't be read:" in text
    assert "repeats/1/rank0.jsonl:1:" in text


def test_a_site_without_a_measurement_has_the_published_tables(tmp_path):
    write_site(tmp_path, print)
    assert "Nothing has been measured yet" in (tmp_path / "index.html").read_text()
    assert "2097.20" in (tmp_path / "published" / "report.html").read_text()


def test_a_chinese_page_has_chinese_headings_and_charts(outputs):
    page = unescape((outputs / "with-steps" / "report.zh.html").read_text())
    assert '<html lang="zh-Hans">' in page
    assert re.search("<h2[^>]*>[^<]*各次重复", page)
    assert re.search("<text[^>]*>[^<]*[\u4e00-\u9fff]", page)
    assert not re.search(r"<h[12][^>]*>[^<]*(Repeats|Method)", page)
    published = unescape((outputs / "published" / "report.zh.html").read_text())
    assert "公布" in published and "每设备批量大小" in published


def test_a_summary_that_was_shown_in_one_language_is_published_in_both(tmp_path):
    write_all(tmp_path, measured([2550.0] * 7, device="gpu", gpus=8, batch_size=128))
    summary = Summary.read(tmp_path)
    shown = unescape(report.published_tables(summary).html)
    assert "GPU Tesla V100-SXM2-32GB; published: V100-SXM2-16GB" in shown
    publish_published(summary)
    chinese = unescape((tmp_path / "published" / "report.zh.html").read_text())
    assert "GPU 为 Tesla V100-SXM2-32GB；公布时为：V100-SXM2-16GB" in chinese
    assert "; published: V100" not in chinese


def test_publishing_keeps_the_notebook_with_png_figures_and_the_page_links_to_it(tmp_path):
    publish(stored(tmp_path / "m"))
    notebook = nbformat.read(tmp_path / "m" / "notebook.ipynb", 4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output["data"] for output in outputs)
    page = (tmp_path / "m" / "report.html").read_text()
    assert 'href="notebook.ipynb"' in page and "image/png" not in page


def test_the_header_is_the_same_on_every_page_and_marks_the_page_itself(outputs):
    for page in pages(outputs):
        header = page.read_text().partition("<header>")[2].partition("</header>")[0]
        names = re.findall("<(?:a href|span aria)[^>]*>([^<]+)</", header)
        chinese = page.name.endswith(".zh.html")
        site_pages = ["全部测量", "汇总"] if chinese else ["All measurements", "Summary"]
        assert names[:2] == site_pages, page
        marked = re.findall('aria-current="page">([^<]+)<', header)
        here = {outputs: site_pages[:1], outputs / "summary": site_pages[1:]}
        if page.parent.name not in ("published", "history"):
            assert marked == here.get(page.parent, []), page


@pytest.fixture(scope="module")
def browser(processes):
    if not CHROMIUM:
        pytest.skip("Debian's chromium is not installed")
    with sync_playwright() as playwright:
        options = ["--disable-background-networking", "--disable-component-update"]
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, chromium_sandbox=False, args=options
        )
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser):
    """Open a file as a page; at the end nothing was logged, and nothing asked for besides."""
    contexts, trouble = [], []

    def opened(path, fragment="", **options):
        context = browser.new_context(**options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: trouble.append(message.text))
        tab.on("pageerror", lambda error: trouble.append(str(error)))
        tab.on("request", lambda r: r.is_navigation_request() or trouble.append(r.url))
        tab.goto(f"{path.as_uri()}#{fragment}" if fragment else path.as_uri())
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """An index alone: two models with units of their own, three frameworks, pages whose heads
    have warnings, and what failed."""
    folder = tmp_path_factory.mktemp("mixed")
    bert = {"model": "bert", "input": "synthetic", "image_size": None, "layout": None}
    bert |= {"sequence_length": 128}
    write_all(
        folder,
        measured([4.0], framework="torch", batch_size=4),
        measured([10.0, 11.0, 12.0], batch_size=4),
        measured([20.0, 21.0, 22.0], batch_size=16, precision="amp"),
        measured([15.0], framework="jax", batch_size=8, input="synthetic", execution="static"),
        measured([], batch_size=128),
        measured([5.0], batch_size=2, **bert),
        measured([30.0], framework="torch", batch_size=2, **bert),
    )
    codes = {"b4-0": "above_peak drift", "b4-1": "", "b16": "drift"}
    for path in folder.iterdir():
        named = "".join(found for name, found in codes.items() if name in path.name)
        head = f'<meta name="warnings" content="{named}">'
        (path / "report.html").write_text(f"<head>{head}</head>")
    (folder / "audits").mkdir()
    write_index(folder)
    return folder


def throughputs(tab):
    cells = tab.locator("tbody tr:visible td:nth-child(6) strong")
    return [float(text) for text in cells.all_inner_texts()]


def sorted_by(tab, name):
    heading = tab.get_by_role("columnheader", name=name)
    heading.get_by_role("button").click()
    return heading


def test_a_click_on_a_heading_sorts_another_turns_the_order_a_third_groups_again(
    outputs, open_page
):
    tab = open_page(outputs / "index.html")
    grouped = throughputs(tab)
    heading = sorted_by(tab, "Throughput")
    assert throughputs(tab) == sorted(throughputs(tab))
    assert heading.get_attribute("aria-sort") == "ascending"
    sorted_by(tab, "Throughput")
    assert throughputs(tab) == sorted(throughputs(tab), reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    sorted_by(tab, "Throughput")
    assert throughputs(tab) == grouped and heading.get_attribute("aria-sort") is None


def test_headings_can_be_sorted_by_with_the_keyboard(outputs, open_page):
    tab = open_page(outputs / "index.html")
    tab.get_by_role("columnheader", name="Batch").get_by_role("button").focus()
    tab.keyboard.press("Enter")
    batches = tab.locator("tbody td:nth-child(4)").all_inner_texts()
    assert [int(text) for text in batches] == [4, 4, 4, 8, 16, 128]


def test_sorting_by_throughput_stays_within_a_unit_and_puts_what_has_none_last(
    mixed, open_page
):
    tab = open_page(mixed / "index.html")
    images, sequences = [4.0, 11.0, 15.0, 21.0], [5.0, 30.0]
    for direction in (1, -1):
        sorted_by(tab, "Throughput")
        assert tab.locator("tr.group:visible").all_inner_texts() == ["images/s", "sequences/s"]
        assert throughputs(tab) == images[::direction] + sequences[::direction]
        last = tab.locator("tbody").first.locator("tr").last
        assert "no number" in last.inner_text()


def test_a_filter_shows_the_rows_with_all_of_its_words_and_counts_them(outputs, open_page):
    tab = open_page(outputs / "index.html")
    tab.get_by_label("Filter").fill("dali complete")
    assert sorted(throughputs(tab)) == [9.0, 11.0, 21.0]
    assert tab.get_by_role("status").inner_text() == "3 of 6 shown"
    tab.get_by_label("Filter").fill("4")
    assert sorted(throughputs(tab)) == [4.15, 9.0, 11.0], "a number is looked for as a whole"
    tab.get_by_label("Filter").fill("out_of_memory")
    assert tab.locator("tbody tr:visible:not(.group)").count() == 1
    tab.get_by_label("Filter").fill("")
    assert tab.locator("tbody tr:visible:not(.group)").count() == 6


def test_the_filter_finds_the_names_that_commands_take_and_every_warning(mixed, open_page):
    tab = open_page(mixed / "index.html")
    for words, found in {
        "resnet50 torch": [4.0],
        "bert": [5.0, 30.0],
        "pytorch": [4.0, 30.0],
        "drift": [4.0, 21.0],
        "above_peak": [4.0],
    }.items():
        tab.get_by_label("Filter").fill(words)
        assert sorted(throughputs(tab)) == found, words


def test_chips_choose_one_or_more_values_of_a_column_and_work_together(mixed, open_page):
    tab = open_page(mixed / "index.html")
    chip = {
        name: tab.get_by_role("button", name=name, exact=True)
        for name in ("ResNet-50", "PyTorch", "JAX", "amp", "■ error", "● none", "Clear")
    }
    chip["ResNet-50"].click()
    assert sorted(throughputs(tab)) == [4.0, 11.0, 15.0, 21.0]
    assert chip["ResNet-50"].get_attribute("aria-pressed") == "true"
    chip["PyTorch"].click()
    assert throughputs(tab) == [4.0]
    chip["JAX"].click()
    assert sorted(throughputs(tab)) == [4.0, 15.0]
    chip["PyTorch"].click()
    assert throughputs(tab) == [15.0]
    chip["Clear"].click()
    assert chip["ResNet-50"].get_attribute("aria-pressed") == "false"
    assert len(throughputs(tab)) == 6
    chip["■ error"].click()
    assert throughputs(tab) == [4.0]
    chip["● none"].click()
    assert {4.0, 11.0} <= {*throughputs(tab)}
    assert tab.get_by_role("group", name="Warnings").get_by_role("button").count() == 3


def test_filter_chips_and_order_are_kept_in_the_address_and_restored(mixed, open_page):
    tab = open_page(mixed / "index.html")
    tab.get_by_label("Filter").fill("fp32 complete")
    tab.get_by_role("button", name="ResNet-50", exact=True).click()
    sorted_by(tab, "Throughput")
    sorted_by(tab, "Throughput")
    assert throughputs(tab) == [15.0, 11.0, 4.0]
    again = open_page(mixed / "index.html", fragment=tab.url.partition("#")[2])
    assert again.get_by_label("Filter").input_value() == "fp32 complete"
    assert throughputs(again) == [15.0, 11.0, 4.0]
    again.get_by_role("link", name="中文").click()
    assert again.url.endswith(f"index.zh.html#{tab.url.partition('#')[2]}")
    assert throughputs(again) == [15.0, 11.0, 4.0]
    again.goto(tab.url.replace("throughput-down", "throughput"))
    assert throughputs(again) == [4.0, 11.0, 15.0]
    again.get_by_role("button", name="Clear").click()
    assert "#" not in again.url and len(throughputs(again)) == 6


def test_a_link_to_a_part_of_the_index_keeps_the_filter_and_the_address_keeps_both_apart(
    mixed, open_page
):
    tab = open_page(mixed / "index.html")
    tab.get_by_label("Filter").fill("torch")
    sorted_by(tab, "Throughput")
    tab.get_by_role("link", name="Audits").click()
    expect(tab).to_have_url(re.compile("index.html#filter=torch&sort=throughput$"))
    expect(tab.locator("#audits")).to_be_in_viewport()
    assert throughputs(tab) == [4.0, 30.0]
    assert tab.get_by_label("Filter").input_value() == "torch"
    tab.get_by_label("Filter").fill("jax")
    expect(tab).to_have_url(re.compile("#sort=throughput&filter=jax$"))
    assert throughputs(tab) == [15.0]


def test_the_index_opened_at_a_part_shows_every_row_and_unknown_words_do_not_stay(
    mixed, open_page
):
    for fragment, kept in {"audits": "", "audits=&sort=throughput": "sort=throughput&"}.items():
        tab = open_page(mixed / "index.html", fragment=fragment)
        assert tab.get_by_role("status").inner_text() == "7 of 7 shown"
        tab.get_by_label("Filter").fill("jax")
        expect(tab).to_have_url(re.compile(f"#{kept}filter=jax$"))


def test_a_button_copies_the_command_of_a_measurement_from_index_and_page(outputs, open_page):
    tab = open_page(outputs / "index.html")
    expected = command(made_result())
    row = tab.locator("tr").filter(has=tab.locator('[href^="with-steps/"]'))
    row.get_by_role("button", name="Copy command").click()
    expect(row.locator("button.copy")).to_have_text("Copied")
    assert pasted(tab) == expected
    tab = open_page(outputs / "with-steps" / "report.html")
    for details in tab.locator("details").all():
        details.evaluate("one => { one.open = true; }")
    tab.get_by_role("button", name="Copy command").click()
    expect(tab.get_by_role("button", name="Copied")).to_be_visible()
    assert pasted(tab) == expected


def pasted(tab):
    tab.evaluate("document.body.append(document.createElement('textarea'))")
    tab.locator("textarea").focus()
    tab.keyboard.press("Control+V")
    return tab.locator("textarea").input_value()


def downloaded(tab, button):
    with tab.expect_download() as found:
        button.click()
    return found.value


def test_under_every_chart_is_its_download_as_svg(outputs, open_page):
    tab = open_page(outputs / "with-steps" / "report.html")
    buttons = tab.get_by_role("button", name="Download SVG")
    assert buttons.count() == tab.locator("figure > svg:visible").count() > 0
    found = downloaded(tab, buttons.first)
    assert found.suggested_filename.endswith(".svg")
    root = ElementTree.parse(found.path()).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and len(list(root.iter())) > 20


def test_under_every_table_is_its_download_as_csv_and_its_copy_as_markdown(mixed, open_page):
    tab = open_page(mixed / "index.html")
    tab.get_by_label("Filter").fill("resnet50 torch")
    found = downloaded(tab, tab.get_by_role("button", name="Download CSV"))
    assert found.suggested_filename.endswith(".csv")
    head, row = csv.reader(found.path().read_text(encoding="utf-8-sig").splitlines())
    assert head[:4] == ["Model", "Framework", "Precision", "Batch"]
    assert row[1:6] == ["PyTorch", "fp32", "4", "1x1", "4.000 images/s no interval (n=1)"]
    assert "Copy" not in row[0]
    tab.get_by_role("button", name="Copy as Markdown").click()
    lines = pasted(tab).splitlines()
    assert lines[0].startswith("| Model | Framework | Precision | Batch |")
    assert lines[1] == "|" + " --- |" * len(head) and len(lines) == 3
    assert "| PyTorch | fp32 | 4 | 1x1 |" in lines[2]


def test_a_downloaded_table_has_no_formula_and_is_whole(open_page, tmp_path):
    rows = [
        ["=1+1", "-3.5 %"],
        ['say "a, b"', "@x"],
        ["a|b\\", Markup('+2<br><small data-column="Interval">+1 – +3</small>')],
    ]
    folder = tmp_path / "m"
    folder.mkdir()
    html = Markup(report_table(rows, ["text", "number"], "A table").html)
    write_page(folder, html, outputs=tmp_path, title="Tables")
    tab = open_page(folder / "report.html")
    found = downloaded(tab, tab.get_by_role("button", name="Download CSV"))
    assert found.suggested_filename == "A-table.csv"
    text = found.path().read_text(encoding="utf-8-sig")
    tame = [["'=1+1", "-3.5 %", ""], ['say "a, b"', "'@x", ""], ["a|b\\", "+2", "'+1 – +3"]]
    assert list(csv.reader(text.splitlines())) == [
        ["text", "number", "number: Interval"],
        *tame,
    ]
    tab.get_by_role("button", name="Copy as Markdown").click()
    assert r"| a\|b\\ | +2 +1 – +3 |" in pasted(tab)


def test_links_lead_from_index_to_page_and_back_and_to_the_summary(outputs, open_page):
    tab = open_page(outputs / "index.html")
    tab.locator("tbody a").first.click()
    assert tab.url.endswith("/report.html")
    tab.get_by_role("link", name="All measurements").click()
    tab.get_by_role("link", name="Summary").click()
    assert tab.title() == "Training throughput: summary"
    tab.locator("table a").first.click()
    assert tab.title().startswith("ResNet-50")


def test_each_page_links_to_itself_in_the_other_language_and_stays_in_it(outputs, open_page):
    tab = open_page(outputs / "index.html")
    tab.get_by_role("link", name="中文").click()
    assert tab.url.endswith("/index.zh.html")
    tab.locator("tbody a").first.click()
    assert tab.url.endswith("/report.zh.html")
    tab.get_by_role("link", name="全部测量").click()
    assert tab.url.endswith("/index.zh.html")
    tab.get_by_role("link", name="English").click()
    assert tab.url.endswith("/index.html")


LOOKS = list(product(("light", "dark"), (390, 800, 1440)))
"""Schemes of colours and widths that pages are looked at in."""


@pytest.mark.parametrize("language", list(LANGUAGES))
@pytest.mark.parametrize(
    "page", ["index", "summary/report", "published/report", "with-steps/report"]
)
def test_pages_fit_narrow_and_wide_in_light_and_dark(outputs, open_page, page, language):
    sideways = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    body = "getComputedStyle(document.body)"
    tab = open_page(outputs / file_name(page, language))
    for scheme, width in LOOKS:
        tab.emulate_media(color_scheme=scheme)
        tab.set_viewport_size({"width": width, "height": 800})
        assert not tab.evaluate(sideways), (scheme, width)
        colours = tab.evaluate(f"[{body}.color, {body}.backgroundColor]")
        ink, paper = (sum(map(int, re.findall(r"\d+", c)[:3])) for c in colours)
        assert (ink > paper) == (scheme == "dark")


def test_figures_are_dark_on_dark_pages_and_as_they_are_on_light_ones(outputs, open_page):
    for scheme, filtered in {
        "light": "none",
        "dark": "invert(0.93) hue-rotate(180deg)",
    }.items():
        tab = open_page(outputs / "with-steps" / "report.html", color_scheme=scheme)
        style = "svg => getComputedStyle(svg).filter"
        assert tab.locator("figure > svg").first.evaluate(style) == filtered


@pytest.fixture(scope="module")
def examples(tmp_path_factory, processes):
    """The site of the results, the comparisons and the audits that are kept as examples."""
    folder = tmp_path_factory.mktemp("examples")
    copy_examples(folder)
    _index, left_out = write_site(folder, lambda _part: None)
    assert left_out == []
    return folder


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
def test_pages_have_no_serious_barrier(examples, open_page, page):
    """By axe-core's rules; `make .venv/axe` installs it."""
    if not AXE.exists():
        pytest.skip(f"{AXE.relative_to(ROOT)} is missing: make .venv/axe")
    tab = open_page(sorted(examples.glob(page))[0], bypass_csp=True)
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.add_script_tag(path=AXE)
    serious = {}
    for scheme, width in product(("light", "dark"), (390, 1440)):
        tab.emulate_media(color_scheme=scheme)
        tab.set_viewport_size({"width": width, "height": 900})
        found = tab.evaluate("axe.run({ resultTypes: ['violations'] })")["violations"]
        serious |= {
            (one["id"], node["html"][:200]): (scheme, width, node["failureSummary"])
            for one in found
            for node in one["nodes"]
            if one["impact"] in ("serious", "critical")
        }
    assert serious == {}


def test_without_scripts_measurements_are_grouped_by_model_newest_first(mixed, browser):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((mixed / "index.html").as_uri())
    headings = [body.locator("tr").first.inner_text() for body in tab.locator("tbody").all()]
    assert headings == ["BERT-base pre-training (2)", "ResNet-50 v1.5 (5)"]
    assert "4.000" in tab.locator("tbody").nth(1).inner_text()
    context.close()


def test_without_scripts_the_index_is_whole_and_offers_nothing_that_needs_them(
    outputs, browser
):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((outputs / "index.html").as_uri())
    assert tab.locator("tbody tr:not(.group):visible").count() == 6
    assert tab.get_by_role("button").count() == 0
    assert tab.get_by_role("searchbox").count() == 0
    context.close()


def test_the_index_is_in_the_order_of_time_newest_first(tmp_path):
    for day in (1, 3, 2):
        stored(tmp_path / f"day{day}", created=f"2026-01-0{day}T00:00:00+00:00")
        (tmp_path / f"day{day}" / "report.html").touch()
    text = write_index(tmp_path).read_text()
    assert re.findall(r'href="(day\d)', text) == ["day3", "day2", "day1"]
