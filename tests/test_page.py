"""The page of a measurement: self-contained, escaped, reproducible, complete."""

import re
import shlex
from html import unescape
from itertools import product

import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from made.results import (
    keep,
    made_result,
    measured,
    rank_events,
    steady_peak,
    stored,
    with_raw_files,
    with_start,
)
from nbformat import v4

from perfkit.cli.notebook import model_notebook
from perfkit.measuring.format import number
from perfkit.measuring.paths import ROOT
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request.plan import plan, typed
from perfkit.measuring.results.base import Reading
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.repeat import Repeat
from perfkit.measuring.results.store import Store
from perfkit.report.checked import checked
from perfkit.report.measurement import MeasurementError, write_measurement
from perfkit.report.peaks import limits
from perfkit.report.setup import environment, parameters
from perfkit.report.site import publish
from perfkit.report.step_charts import overlaid
from perfkit.report.steps import repeats
from perfkit.report.text import names
from perfkit.report.tiles import headline


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    measurement = stored(tmp_path_factory.mktemp("outputs") / "m")
    publish(measurement)
    return measurement


def test_the_page_loads_nothing_external_and_forbids_it(published):
    text = published.page_file.read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text.replace("www.w3.org", ""))
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")


def folded(page):
    """Return the headings of the folded sections that have an address."""
    return [section.summary.get_text() for section in page.select("main details[id]")]


DETAILS = ["Limits", "Telemetry", "Parameters", "Effective settings", "Environment"]
DETAILS += ["Raw files"]


def test_the_page_has_every_section_and_no_dead_link(published):
    text = published.page_file.read_text()
    page = BeautifulSoup(text, "html.parser")
    headings = [heading.get_text() for heading in page.select("main h2")]
    assert headings == ["Repeats", "Command", "Details"]
    assert folded(page) == DETAILS
    listed = page.select(".sections li > a")
    assert [link.get_text() for link in listed] == headings
    targets = [f"#{heading['id']}" for heading in page.select("main h2")]
    assert [link["href"] for link in listed] == targets
    # The steps of all repeats, and the same for narrow screens.
    assert text.count("<figure") == 2
    assert "image/png" not in text
    links = set(re.findall(r'href="([^"#]+)"', text))
    assert {"repeats/1/rank0.jsonl", "notebook.ipynb"} < links
    for link in links:
        assert (published.folder / link).exists()


def many_steps(ranks):
    """Return the steps of two repeats of 5 steps, the first 2 of which are warm-up."""
    places = product((1, 2), range(ranks), range(1, 6))
    steps = pd.DataFrame(places, columns=["repeat", "rank", "step"])
    steps["seconds"] = steps["repeat"] + steps["rank"] + steps["step"]
    steps["measured"] = steps["step"] > 2
    steps["data_wait_seconds"] = 0.1
    steps["samples"] = 4
    steps["loss"] = None
    return steps


def first_values(axes):
    """Return the first y value of each line."""
    return [line.get_ydata()[0] for line in axes.lines]


def test_the_overlaid_chart_has_each_repeats_slowest_rank_and_their_median():
    (axes,) = overlaid(many_steps(ranks=2), "blue").axes
    assert first_values(axes) == [3.0, 4.0, 3.5]
    entries = axes.get_legend().get_texts()
    names = [entry.get_text() for entry in entries]
    assert names == ["a repeat", "median of the repeats", "data wait", "warm-up"]
    assert axes.get_ylim()[0] == 0
    assert axes.get_xlim() == (0.5, 5.5)


def test_the_stored_notebook_displays_in_any_viewer(published):
    notebook = nbformat.read(published.folder / "notebook.ipynb", 4)
    nbformat.validate(notebook)
    figures = 0
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.data["text/plain"]
            assert "var(--" not in str(output)
            if "image/png" in output.data:
                assert "image/svg+xml" not in output.data
                figures += 1
    assert figures == 1


def test_publishing_an_incomplete_measurement_writes_the_whole_page_and_raises(tmp_path):
    failure = Failure(code="timeout", reason="repeat 2 took over 9 s")
    measurement = stored(tmp_path / "m", status="partial", failure=failure)
    with pytest.raises(MeasurementError, match="timeout: repeat 2 took over 9 s"):
        publish(measurement)
    page = BeautifulSoup(measurement.page_file.read_text(), "html.parser")
    headings = [heading.get_text() for heading in page.select("main h2")]
    assert headings == ["Warnings", "Repeats", "Command", "Details"]
    assert folded(page) == DETAILS
    assert len(page.select(".tile")) == 3
    assert (tmp_path / "index.html").exists()


def written(measurement):
    """Write the page of a measurement and return it."""
    write_measurement(measurement, notebook=True)
    return BeautifulSoup(measurement.page_file.read_text(), "html.parser")


def failed_at_once(folder):
    """Return a measurement that failed before any step, with a log."""
    measurement = keep(folder, measured([]))
    write_logs(measurement, ["rank0"])
    return measurement


def write_logs(measurement, names):
    """Write the logs of a first repeat."""
    store = Store(measurement.folder)
    store.log_folder.mkdir()
    for name in names:
        store.log_file(1, name).write_text("no room\n")


def test_the_page_of_a_failure_before_any_step_has_no_empty_section(tmp_path):
    page = written(failed_at_once(tmp_path / "m"))
    headings = [heading.get_text() for heading in page.select("main h2")]
    assert headings == ["Command", "Details"]
    assert folded(page) == ["Parameters", "Environment", "Raw files"]
    assert [link.get_text() for link in page.select(".sections li > a")] == headings
    assert page.select("figure, .tile") == []
    text = " ".join(page.main.get_text(" ").split())
    assert "out_of_memory" in text and "no room" in text
    assert "Remedy: a smaller batch: -p batch_size 16" in text
    assert page.find("a", href="logs/1-rank0.log")
    assert "perfkit run resnet50" in page.select_one("pre.command").get_text()


def test_a_failure_is_shown_with_its_log(tmp_path):
    log = "  File <b>\nKeyError: 'planted'"
    failure = Failure(code="worker_error", reason="rank 9: KeyError", rank=9, log=log)
    measurement = stored(tmp_path / "m", repeats=[], status="failed", failure=failure)
    assert written(measurement).select_one("pre[lang=en]").get_text() == log


def test_the_command_on_the_page_reproduces_the_request(tmp_path):
    odd = tmp_path / "a folder with 'quotes'"
    odd.mkdir()
    given = {"input": "dali", "data_dir": str(odd), "label": "it-s", "device": "cpu"}
    given |= {"batch_size": 3, "measured_steps": 9, "protocol": "published"}
    planned = planned_on_cpu(given)
    command = names.command(begun(planned))
    assert command.startswith("perfkit run resnet50 ")
    assert replanned(command) == planned


def test_the_page_of_a_model_has_no_parameters_of_others(tmp_path):
    work = {"model": "bert", "image_size": None, "layout": None, "optimizer": "adamw"}
    work |= {"input": "dataloader", "dataloader_workers": 3, "sequence_length": 128}
    measurement = keep(tmp_path / "m", measured([4.0], **work))
    command = names.command(measurement.result)
    assert "-p dataloader_workers 3" in command and "dali" not in command
    assert ">dali_" not in parameters(measurement).html
    write_measurement(measurement, notebook=True)
    values = model_notebook(str(measurement.folder / "notebook.ipynb")).values
    assert values["dataloader_workers"] == 3
    assert "dali_threads" not in values and "image_size" not in values
    replanned = plan("bert", values, {"machine", "data"}).config
    assert replanned.identity == measurement.result.config.identity


def begun(planned):
    """Return the result of a planned measurement that has no repeat yet."""
    request = {"config": planned.config, "protocol": planned.protocol}
    return made_result(repeats=[], status="partial", **request)


def planned_on_cpu(given):
    """Return the plan of a request on a machine without GPUs."""
    request = {"device": "cpu"} | given
    return plan("resnet50", request, skip_checks={"data", "machine"})


def replanned(command):
    """Return the plan of a command, on a machine without GPUs."""
    words = shlex.split(command)
    given = {}
    for name, value in zip(words[4::3], words[5::3], strict=True):
        given[name] = typed(name, value)
    return planned_on_cpu(given)


def test_a_changed_protocol_is_marked_as_changed():
    assert names.protocol_name(Protocol.named("published")) == "published"
    changed = Protocol.named("published", repeats=1)
    assert names.protocol_name(changed) == "published, changed"


def test_the_title_shows_the_effective_precision():
    not_applied = measured([1.0], precision="amp", used="fp32")
    title = names.title(not_applied)
    assert title.startswith("ResNet-50 · Paddle · fp32 (requested: amp) · batch 32")
    applied = measured([1.0], precision="amp")
    assert "requested" not in names.title(applied)


def tiles(measurement):
    html = headline(checked(measurement)).html
    _before, *parts = html.split('class="tile"')
    return [re.sub(r"<.*?>|\s+", " ", part) for part in parts]


def test_the_tiles_show_throughput_and_trust(tmp_path):
    repeat = [rank_events([1.0] * 7, measured_steps=5)]
    result = measured([8.0] * 2, protocol="quick")
    measurement = with_raw_files(tmp_path / "m", result, [repeat, repeat])
    throughput, _arithmetic, trust = tiles(measurement)
    assert "8.000 images/s ± 0 %" in " ".join(throughput.split())
    assert "8.000 – 8.000 (50 %, n=2)" in throughput
    assert "○ Can't tell" in " ".join(unescape(trust).split())
    assert "n=2 is too few at 95 %; n=4 is enough." in trust
    assert "●" not in trust
    assert "Not checked: spread, step times" in trust


def test_the_trust_tile_names_the_worst_warning(tmp_path):
    numbers = {"status": "complete", "throughput": 4.0, "steps_per_second": 1.0}
    constant = Repeat(index=1, loss_first=7.0, loss_last=7.0, **numbers)
    usual = Repeat(index=2, **numbers)
    measurement = stored(tmp_path / "m", repeats=[constant, usual])
    assert "the loss did not change" in tiles(measurement)[-1]
    measurement.rank_file(1, 0).unlink()
    trust = tiles(measurement)[-1]
    assert "3 warnings" in trust
    assert "The raw files do not agree with the result" in trust
    assert "the loss did not change" not in trust


def with_peak(folder, result, flops):
    """Store the result with a peak of so many FLOP/s in each repeat."""
    update = {"peak": steady_peak(flops)}
    repeats = [repeat.model_copy(update=update) for repeat in result.repeats]
    return keep(folder, result.model_copy(update={"repeats": repeats}))


def test_a_share_above_100_percent_of_the_peak_is_unreliable(tmp_path):
    result = measured([4.0])
    measurement = with_peak(tmp_path / "m", result, flops=1e9)
    assert "Share of measured peak unreliable" in " ".join(tiles(measurement)[1].split())
    assert "is unreliable: convolutions may need" in limits(measurement).html


def gpt_on_eight_gpus(tokens_per_second, **changes):
    work = {"model": "gpt", "input": "synthetic", "sequence_length": 1024, "gpus": 8}
    work |= {"image_size": None, "layout": None, "optimizer": "adamw", "precision": "bf16"}
    return measured([tokens_per_second], device="gpu", used="bf16", **work, **changes)


def test_language_model_utilization_is_shown_with_its_count_of_operations(tmp_path):
    result = gpt_on_eight_gpus(1e6)
    measurement = with_peak(tmp_path / "m", result, flops=8e12)
    throughput, _peak, _trust = tiles(measurement)
    assert "tokens/s" in throughput
    assert "125,000 tokens/s per device" in throughput
    text = limits(measurement).html
    # V100s do not support bf16: no datasheet peak is shown.
    assert "Datasheet" not in text
    assert "0.8547 GFLOP per token" in text
    assert "N = 123,568,128 weights of matrix products" in text
    assert "T = 1024 tokens" in text
    # 6 N = 741.4 MFLOP; attention in full 113.2, causally 56.6.
    assert "counted causally, 6 L d T, the FLOPs are 6.63 % lower" in text


def limits_table(measurement):
    """Return the table of the limits: name -> median."""
    page = BeautifulSoup(limits(measurement).html, "html.parser")
    return {line("td")[0].get_text(): line("td")[1].get_text() for line in page("tr")[1:]}


def test_the_shares_of_both_peaks_count_attention_in_full(tmp_path):
    facts = {"gpus": ["NVIDIA H100 80GB HBM3, 80 GiB"] * 8}
    result = gpt_on_eight_gpus(3.3e6, facts=facts)
    rows = limits_table(with_peak(tmp_path / "m", result, flops=8 * 800e12))
    # 412,500 tokens/s per device; 854.655 MFLOP each.
    assert rows["Throughput per device (tokens/s)"] == "412,500"
    assert rows["Model's TFLOP/s per device"] == "352.5"
    assert rows["Share of measured peak (MFU)"] == "44.1 %"
    # The datasheet's dense peak is 989.5 TFLOP/s.
    assert rows["Share of its peak (MFU)"] == "35.6 %"


def test_memory_and_the_time_to_the_first_step_are_told_for_each_repeat(tmp_path):
    result = with_start(measured([4.0, 4.0]), 3 * 2**30, 12.5)
    section = repeats(keep(tmp_path / "m", result)).html
    page = BeautifulSoup(section, "html.parser")
    headings = [heading.get_text() for heading in page("th")]
    first = [cell.get_text() for cell in page("tr")[1]("td")]
    row = dict(zip(headings, first, strict=True))
    assert row["Peak memory (GiB)"] == "3.00"
    assert row["To first step (s)"] == "12.5"


def displayed(data, **fields):
    """Return an output of a notebook's cell that displays data, by MIME type."""
    return v4.new_output("display_data", data, **fields)


def test_cells_added_by_users_stay_on_the_page_without_scripts(tmp_path):
    measurement = stored(tmp_path / "outputs" / "m")
    evil = "<script>alert(1)</script><meta http-equiv=refresh content=0><b onload='x()'>b</b>"
    evil += "<a href=' DA&#9;TA:text/html,x'>c</a><img src='data:image/png;base64,aa'>"
    script = {"text/html": "<script>draw()</script>", "text/plain": "Figure()"}
    picture = {"image/png": "iVBORw0KGgo="}
    html = displayed({"text/html": f"<p>my finding</p>{evil}"})
    odd = displayed(script, metadata={"perfkit": "x"})
    odd_figure = displayed(picture, metadata={"perfkit": {}})
    latex = displayed({"text/latex": "$x$"})
    prose = v4.new_markdown_cell("I *added* this.")
    code = v4.new_code_cell("1", outputs=[html, odd, odd_figure, latex])
    foreign = v4.new_code_cell("report.no_such_thing()", metadata={"tags": ["show"]})
    raw = v4.new_raw_cell("report.no_such_thing()", metadata={"tags": ["show"]})
    executed = nbformat.read(ROOT / "notebooks" / "resnet50.ipynb", 4)
    executed.cells += [prose, code, foreign, raw]
    nbformat.write(executed, tmp_path / "executed.ipynb")
    write_measurement(measurement, executed=tmp_path / "executed.ipynb")
    for _ in range(2):
        text = (measurement.folder / "report.html").read_text()
        assert "<em>added</em>" in text
        assert "<p>my finding</p>" in text
        assert not re.search("<script>alert|<meta http-equiv=refresh|onload", text)
        assert '<a>c</a><img src="data:image/png;base64,aa">' in text
        assert "4.150 images/s" in text
        assert "<pre>Figure()</pre>" in text
        write_measurement(measurement)


MARKDOWN = {
    "First `a < b && c`.": "<p>First <code>a &lt; b &amp;&amp; c</code>.</p>",
    "See [raw](repeats/1/rank0.jsonl).": 'See <a href="repeats/1/rank0.jsonl">raw</a>.',
    "## Part\n[there](#Part)": '<h2 id="Part">Part<',
    "[a](java&#115;cript:x) <a href=' JavaScript:x'>b</a>": "<p><a>a</a> <a>b</a></p>",
    "An <img src=x onerror=alert(1) alt=x>.": '<p>An <img src="x" alt="x">.</p>',
    "So<scr<script></script>ipt>alert(1)</script>": "<p>So&lt;script&gt;alert(1)</p>",
    "## <script>alert(1)</script>": ">&lt;script&gt;alert(1)&lt;/script&gt;</h2>",
}
"""Markdown of a user's cells -> part of the page."""


def test_markdown_of_users_is_shown_as_written_without_scripts(tmp_path):
    measurement = stored(tmp_path / "m")
    executed = tmp_path / "executed.ipynb"
    cells = [v4.new_markdown_cell(source) for source in MARKDOWN]
    notebook = v4.new_notebook(cells=cells)
    nbformat.write(notebook, executed)
    write_measurement(measurement, executed=executed)
    text = measurement.page_file.read_text()
    for part in MARKDOWN.values():
        assert part in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (9999.9, "10,000"),
        (4.1, "4.100"),
        (123456.7, "123,457"),
        (0.01234567, "0.01235"),
        (None, "–"),
    ],
)
def test_numbers_show_four_digits(value, shown):
    assert number(value) == shown


def test_equal_gpus_are_named_once_with_their_number(tmp_path):
    gpus, capabilities = ["NVIDIA H100, 80 GiB"] * 8, ["9.0"] * 8
    facts = {"gpus": Reading(value=gpus), "compute_capability": Reading(value=capabilities)}
    measurement = stored(tmp_path / "m", environment=facts)
    table = BeautifulSoup(environment(measurement).html, "html.parser")
    cells = [[cell.get_text() for cell in row("td")] for row in table("tr")]
    shown = ["GPUs", "8 × NVIDIA H100, 80 GiB"]
    assert cells[1:] == [shown, ["compute capability", "9.0"]]


def test_missing_facts_are_grouped_by_reason_and_empty_facts_shown_as_none(tmp_path):
    missing = Reading(value=None, missing="no driver")
    empty = Reading(value=[])
    facts = {"driver": missing, "cpu": Reading(value="X"), "nccl": missing}
    measurement = stored(tmp_path / "m", environment=facts | {"variables": empty})
    html = environment(measurement).html
    text = " ".join(re.sub("<.*?>", " ", html).split())
    assert text.endswith("CPU X variables none driver, NCCL not read (no driver)")
