"""The site as a reader has it: opened from disk, sorted, filtered, in two languages."""

import csv
import json
import os
import re
import shutil
from html import unescape

import pytest
from click.testing import CliRunner
from made import (
    made_figure,
    made_result,
    measured,
    rank_events,
    stored,
    with_raw_files,
    write_all,
    write_steps,
)
from playwright.sync_api import expect, sync_playwright
from pydantic import ValidationError

import perfkit
from perfkit.analysis.sanity import warnings_about
from perfkit.cli import main
from perfkit.report import site
from perfkit.report.index import write_index, write_tables
from perfkit.report.page import write_page
from perfkit.report.rendering import Section
from perfkit.report.site import parts, publish_summary, write_site
from perfkit.report.summary import Summary
from perfkit.results.figures import store_figure
from perfkit.results.schema import Reading, Result
from perfkit.words.language import LANGUAGES, file_name
from perfkit.words.wording import command

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">&"\''
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A site: two batch sizes, two inputs, one measurement that failed, one own figure."""
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
    store_figure(folder, "ratio", made_figure())
    told = []
    write_site(folder, told.append)
    assert told == [1] * parts(folder) == [1] * (6 + 1 + len(LANGUAGES))
    return folder


@pytest.fixture
def without_published_charts(monkeypatch):
    """Leave out what takes most of a summary's time, for tests of something else."""
    monkeypatch.setattr("perfkit.report.published_charts", lambda _summary: Section(""))


def pages(folder):
    return sorted(folder.rglob("*.html"))


def test_a_site_has_index_summary_pages_and_data_in_every_language(outputs):
    measurements = [path.parent for path in outputs.glob("*/result.json")]
    assert len(measurements) == 6
    for language in LANGUAGES:
        assert (outputs / file_name("index", language)).exists()
        for folder in (*measurements, outputs / "summary", outputs / "bench"):
            assert (folder / file_name("report", language)).exists()
    assert {path.name for path in outputs.glob("results.*")} == {"results.csv", "results.json"}


def test_every_link_of_the_site_leads_to_a_file(outputs):
    for page in pages(outputs):
        for link in re.findall(r'href="([^"#]+)"', page.read_text()):
            assert (page.parent / unescape(link)).exists(), f"{page.name}: {link}"


def test_every_link_within_a_page_leads_to_a_part_of_it(outputs):
    for page in pages(outputs):
        text = page.read_text()
        links = re.findall(r'href="#([^"]+)"', text)
        assert links or page.parent == outputs, page
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
        {"index": 3, "status": "failed"} | {"failure": {"code": "time_out", "message": "late"}}
    )
    content |= {"status": "partial", "failure": {"code": "time_out", "message": "late"}}
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
    assert len(pages(tmp_path)) == 6
    for page in pages(tmp_path):
        text = page.read_text()
        assert text.count("<script") == 1, page
        assert "<img" not in text
        assert "&lt;script&gt;" in text


def warned(text):
    """What the index has under Warnings, by the measurement's folder."""
    row = r'href="([^/"]+)/report.html">.*?class="warned"[^>]*>(.*?)</td>'
    cells = re.findall(row, text, re.DOTALL)
    return {folder: re.sub("<.*?>", "", cell) for folder, cell in cells}


def test_the_index_names_the_warnings_that_each_page_has(tmp_path):
    even = rank_events([1.0] * 120, samples=32, measured_steps=100)
    late = rank_events([2.0] * 60 + [1.0] * 60, samples=32, measured_steps=100)
    good = with_raw_files(tmp_path / "good", measured([32.0] * 7), [[even]] * 7)
    slow = with_raw_files(tmp_path / "slow", measured([32.0] * 7), [[late]] * 7)
    failed = stored(tmp_path / "failed", repeats=[], status="partial", throughput=None)
    for measurement in (slow, good, failed):
        write_page(measurement)
    found = warned(write_index(tmp_path).read_text())
    assert found["slow"].split(", ") == [one.name for one in warnings_about(slow)]
    assert "warm_up_longer" in found["slow"], "what only the raw steps tell"
    assert found["good"] == "none"
    assert found["failed"] == "–"


def test_the_index_says_nothing_of_warnings_where_there_is_no_page(tmp_path):
    stored(tmp_path / "m")
    assert ">–</td>" in write_index(tmp_path).read_text()


@pytest.mark.usefixtures("without_published_charts")
def test_a_page_that_can_not_be_written_is_named_and_the_others_are_written(
    tmp_path, monkeypatch
):
    for name in ("good", "odd"):
        stored(tmp_path / name)
    written = site.write_page

    def stumble(measurement):
        if measurement.folder.name == "odd":
            raise TypeError("nobody thought of this")
        written(measurement)

    monkeypatch.setattr(site, "write_page", stumble)
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
            "old/result.json: schema_version is 1, this perfkit reads 2, written by an" in text
        )
        assert (
            "new/result.json: schema_version is 99, this perfkit reads 2, and is newer" in text
        )
        assert "good/report.html" in text


def test_raw_steps_that_can_not_be_read_are_told_and_the_page_is_there(tmp_path):
    measurement = stored(tmp_path / "m")
    measurement.raw_file(1, 0).write_text("nonsense\n")
    write_page(measurement)
    text = unescape((tmp_path / "m" / "report.html").read_text())
    assert "The raw steps can't be read:" in text
    assert "repeats/1/rank0.jsonl:1:" in text


def test_a_site_without_a_measurement_has_the_published_tables(tmp_path):
    write_site(tmp_path, print)
    assert "Nothing has been measured yet" in (tmp_path / "index.html").read_text()
    summary = (tmp_path / "summary" / "report.html").read_text()
    assert "2097.20" in summary and "not run" in summary


def test_a_chinese_page_has_chinese_headings_and_charts(outputs):
    page = unescape((outputs / "with-steps" / "report.zh.html").read_text())
    assert '<html lang="zh-Hans">' in page
    assert "<h2" in page and "每步耗时" in page
    assert not re.search(r"<h[12][^>]*>[^<]*(Repeats|Method)", page)
    summary = unescape((outputs / "summary" / "report.zh.html").read_text())
    assert "公布的表格" in summary and "每设备批量大小" in summary


@pytest.mark.usefixtures("without_published_charts")
def test_a_summary_that_was_shown_in_one_language_is_published_in_both(tmp_path):
    write_all(tmp_path, measured([2550.0] * 7, device="gpu", gpus=8, batch_size=128))
    summary = Summary.of(tmp_path)
    assert "on Tesla V100" in str([one.differs for one in summary.matches])
    publish_summary(summary)
    chinese = unescape((tmp_path / "summary" / "report.zh.html").read_text())
    assert "GPU 为 Tesla V100-SXM2-32GB；公布时为：V100-SXM2-16GB" in chinese
    assert "on Tesla V100" not in chinese


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

    def opened(path, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: trouble.append(message.text))
        tab.on("pageerror", lambda error: trouble.append(str(error)))
        tab.on("request", lambda r: r.is_navigation_request() or trouble.append(r.url))
        tab.goto(path.as_uri())
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []


def throughputs(tab):
    cells = tab.locator("tbody tr:visible td:nth-child(5) strong")
    return [float(text) for text in cells.all_inner_texts()]


def test_a_click_on_a_heading_sorts_by_it_and_another_turns_the_order(outputs, open_page):
    tab = open_page(outputs / "index.html")
    heading = tab.get_by_role("columnheader", name="Throughput")
    heading.get_by_role("button").click()
    assert throughputs(tab) == sorted(throughputs(tab))
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.get_by_role("button").click()
    assert throughputs(tab) == sorted(throughputs(tab), reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"


def test_headings_can_be_sorted_by_with_the_keyboard(outputs, open_page):
    tab = open_page(outputs / "index.html")
    tab.get_by_role("columnheader", name="Batch").get_by_role("button").focus()
    tab.keyboard.press("Enter")
    batches = tab.locator("tbody td:nth-child(2)").all_inner_texts()
    assert [int(text) for text in batches] == [4, 4, 4, 8, 16, 128]


def test_a_filter_shows_the_rows_with_all_of_its_words_and_counts_them(outputs, open_page):
    tab = open_page(outputs / "index.html")
    tab.get_by_role("searchbox").fill("dali complete")
    assert sorted(throughputs(tab)) == [9.0, 11.0, 21.0]
    assert tab.get_by_role("status").inner_text() == "3 of 6 shown"
    tab.get_by_role("searchbox").fill("4")
    assert sorted(throughputs(tab)) == [4.15, 9.0, 11.0], "a number is looked for as a whole"
    tab.get_by_role("searchbox").fill("out_of_memory")
    assert tab.locator("tbody tr:visible").count() == 1
    tab.get_by_role("searchbox").fill("")
    assert tab.locator("tbody tr:visible").count() == 6


@pytest.mark.parametrize("page", ["index.html", "with-steps/report.html"])
def test_the_copy_button_copies_the_command_of_the_measurement(outputs, open_page, page):
    tab = open_page(outputs / page)
    scope = tab.locator("tr", has_text="synthetic").last if page == "index.html" else tab
    button = scope.locator("button.copy")
    expected = button.get_attribute("data-copies")
    button.click()
    expect(button).to_have_text("Copied")
    tab.evaluate("document.body.append(document.createElement('textarea'))")
    tab.locator("textarea").focus()
    tab.keyboard.press("Control+V")
    assert tab.locator("textarea").input_value() == expected
    if page != "index.html":
        assert expected == command(made_result())


def test_links_lead_from_index_to_page_and_back_and_to_the_summary(outputs, open_page):
    tab = open_page(outputs / "index.html")
    tab.locator("tbody a").first.click()
    assert tab.url.endswith("/report.html")
    tab.get_by_role("link", name="All measurements").click()
    tab.get_by_role("link", name="Summary").click()
    assert tab.title() == "Training throughput: summary"
    tab.locator(".grid a").first.click()
    assert tab.title().startswith("ResNet-50 v1.5")


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("language", list(LANGUAGES))
def test_pages_fit_narrow_and_wide_in_light_and_dark(
    outputs, open_page, scheme, width, language
):
    sideways = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    for page in ("index", "summary/report", "with-steps/report", "bench/report"):
        tab = open_page(
            outputs / file_name(page, language),
            color_scheme=scheme,
            viewport={"width": width, "height": 800},
        )
        assert not tab.evaluate(sideways), page
        body = "getComputedStyle(document.body)"
        colours = tab.evaluate(f"[{body}.color, {body}.backgroundColor]")
        ink, paper = (sum(map(int, re.findall(r"\d+", c)[:3])) for c in colours)
        assert (ink > paper) == (scheme == "dark")


def test_texts_of_a_chart_take_the_pages_colour(outputs, open_page):
    for page in ("summary/report.html", "with-steps/report.html"):
        tab = open_page(outputs / page, color_scheme="dark")
        ink = tab.evaluate("getComputedStyle(document.body).color")
        texts = "figure svg text, figure svg g[style*=fill]"
        assert tab.locator(texts).first.evaluate("text => getComputedStyle(text).fill") == ink


def test_without_scripts_the_index_is_whole_and_offers_nothing_that_needs_them(
    outputs, browser
):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((outputs / "index.html").as_uri())
    assert tab.locator("tbody tr").count() == 6
    assert tab.get_by_role("button").count() == 0
    assert tab.get_by_role("searchbox").count() == 0
    context.close()


def test_the_index_is_in_the_order_of_time_newest_first(tmp_path):
    for day in (1, 3, 2):
        stored(tmp_path / f"day{day}", created=f"2026-01-0{day}T00:00:00+00:00")
        (tmp_path / f"day{day}" / "report.html").touch()
    text = write_index(tmp_path).read_text()
    assert re.findall(r'href="(day\d)', text) == ["day3", "day2", "day1"]
