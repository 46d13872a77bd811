"""The page of a measurement: self-contained, escaped, reproducible, complete."""

import re
import shlex

import nbformat
import pandas as pd
import pytest
from made import keep, made_result, measured, rank_events, stored, with_raw_files

from perfkit import report
from perfkit.core.config import Protocol
from perfkit.core.format import number
from perfkit.core.paths import ROOT
from perfkit.core.request.plan import plan, typed
from perfkit.core.results.failures import Timeout
from perfkit.core.results.identity import Reading
from perfkit.core.results.repeat import Peak, Rank, Repeat
from perfkit.report.diagnosis import diagnose_command
from perfkit.report.measurement import MeasurementError, write_measurement
from perfkit.report.step_charts import each_repeat, overlaid
from perfkit.report.text import names


def page_of(folder, **changes):
    measurement = stored(folder, **changes)
    write_measurement(measurement)
    return measurement.page_file.read_text()


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    measurement = stored(tmp_path_factory.mktemp("outputs") / "m")
    report.publish(measurement)
    return measurement


def test_the_page_loads_nothing_external_and_forbids_it(published):
    text = published.page_file.read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text.replace("www.w3.org", ""))
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")


def test_the_page_has_every_notebook_section_and_no_dead_link(published):
    text = published.page_file.read_text()
    cells = nbformat.read(ROOT / "notebooks" / "resnet50.ipynb", 4).cells
    headings = [cell.source[3:] for cell in cells if cell.source.startswith("## ")]
    assert re.findall("<h2[^>]*>([^<]+)<", text) == headings
    assert len(headings) == 10
    assert text.count("<figure") == 2
    assert "image/png" not in text
    links = set(re.findall(r'href="([^"#]+)"', text))
    assert {"repeats/1/rank0.jsonl", "notebook.ipynb"} < links
    assert [link for link in links if not (published.folder / link).exists()] == []


def many_steps(ranks):
    """Return the steps of two repeats of 5 steps, the first 2 of which are warm-up."""
    places = pd.MultiIndex.from_product(
        [(1, 2), range(ranks), range(1, 6)], names=["repeat", "rank", "step"]
    )
    steps = places.to_frame(index=False)
    return steps.assign(
        seconds=steps["repeat"] + steps["rank"] + steps["step"],
        measured=steps["step"] > 2,
        data_wait_seconds=0.1,
        samples=4,
        loss=None,
    )


def test_the_overlaid_chart_has_each_repeats_slowest_rank_and_their_median():
    (axes,) = overlaid(many_steps(ranks=2), "blue").axes
    assert [line.get_ydata()[0] for line in axes.lines] == [3.0, 4.0, 3.5]
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert named == ["a repeat", "median of the repeats", "data wait", "warm-up"]
    assert axes.get_ylim()[0] == 0
    assert axes.get_xlim() == (0.5, 5.5)


@pytest.mark.parametrize(("ranks", "drawn"), [(2, [2.0, 3.0]), (9, [2.0, 10.0])])
def test_each_repeat_has_a_row_on_the_same_scale_and_few_lines(ranks, drawn):
    rows = each_repeat(many_steps(ranks), "blue").axes
    assert [axes.get_ylabel() for axes in rows] == ["1", "2"]
    assert [line.get_ydata()[0] for line in rows[0].lines] == drawn
    (scale,) = {axes.get_ylim() for axes in rows}
    assert scale == (0, pytest.approx(1.1 * (2 + ranks - 1 + 5)))


def test_the_stored_notebook_displays_in_any_viewer(published):
    notebook = nbformat.read(published.folder / "notebook.ipynb", 4)
    nbformat.validate(notebook)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    figures = [output.data for output in outputs if "image/png" in output.data]
    assert len(figures) == 2
    for data in figures:
        assert "image/svg+xml" not in data
    assert "var(--" not in str(outputs)
    for output in outputs:
        assert output.data["text/plain"]


def test_writing_the_page_is_reproducible(published):
    text = published.page_file.read_text()
    write_measurement(published)
    assert published.page_file.read_text() == text


def test_a_minimal_result_has_a_page(tmp_path):
    config = made_result().config.model_copy(update={"processes": 2})
    ranks = [
        Rank(rank=n, samples=20, window_seconds=10.0, data_wait_seconds=0.0) for n in range(2)
    ]
    bare = Repeat(index=1, status="complete", throughput=4.0, steps_per_second=0.5, ranks=ranks)
    text = page_of(tmp_path / "m", config=config, repeats=[bare], environment={})
    assert "4.000" in text


def test_publishing_an_incomplete_measurement_writes_the_page_and_raises(tmp_path):
    failure = Timeout(repeat=2, seconds=9)
    measurement = stored(tmp_path / "m", status="partial", failure=failure)
    with pytest.raises(MeasurementError, match="timeout: repeat 2 took over 9 s"):
        report.publish(measurement)
    assert measurement.page_file.exists()
    assert (tmp_path / "index.html").exists()


def test_the_command_on_the_page_reproduces_the_request(tmp_path):
    odd = tmp_path / "a folder with 'quotes'"
    odd.mkdir()
    (odd / "train_list.txt").write_text("a.jpeg 0\n")
    given = {"input": "dali", "data_dir": str(odd), "label": "it-s", "device": "cpu"}
    given |= {"batch_size": 3, "measured_steps": 9, "protocol": "published"}
    planned = plan("resnet50", given)
    asked = {"config": planned.config, "protocol": planned.protocol}
    words = shlex.split(names.command(made_result(repeats=[], status="partial", **asked)))
    assert words[:3] == ["perfkit", "run", "resnet50"]
    assert replanned(words) == planned


def replanned(words):
    """Return the plan of a command, on a machine without GPUs."""
    pairs = zip(words[4::3], words[5::3], strict=True)
    given = {name: typed(name, value) for name, value in pairs}
    return plan("resnet50", {"device": "cpu"} | given, skip_checks={"data", "machine"})


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, ""),
        ({"batch_size": 3, "repeats": 9}, " -p batch_size 3 -p repeats 9"),
        (
            {"framework": "torch", "input": "dataloader"},
            " -p framework torch -p input dataloader",
        ),
        ({"protocol": "published"}, " -p protocol published"),
        ({"input": "synthetic"}, None),
    ],
)
def test_the_command_for_a_diagnosis_has_only_what_differs(given, options):
    planned = plan("resnet50", given | {"device": "cpu"}, skip_checks={"data", "machine"})
    asked = {"config": planned.config, "protocol": planned.protocol}
    result = made_result(repeats=[], status="partial", **asked)
    command = diagnose_command(result)
    assert command == ("" if options is None else f"perfkit diagnose resnet50{options}")
    assert not command or replanned(shlex.split(command)) == planned
    with_gpus = result.environment | {"gpus": Reading(value=["A100, 80 GiB"])}
    on_cpu = result.model_copy(update={"environment": with_gpus})
    assert not command or "-p device cpu" in diagnose_command(on_cpu)


def test_the_command_for_a_diagnosis_leaves_out_what_interleaved_repeats_do_not_take():
    """Six repeats are the fewest that can decide."""
    given = {"device": "cpu", "input": "dali", "repeats": 2, "label": "mine"}
    planned = plan("resnet50", given, skip_checks={"data", "machine"})
    asked = {"config": planned.config, "protocol": planned.protocol}
    result = made_result(repeats=[], status="partial", **asked)
    assert diagnose_command(result) == "perfkit diagnose resnet50"


def test_a_changed_protocol_is_marked_as_changed():
    assert names.protocol_name(Protocol.named("published")) == "published"
    changed = Protocol.named("published", repeats=1)
    assert names.protocol_name(changed) == "published, changed"


def test_the_title_shows_the_effective_precision():
    asked = measured([1.0], precision="amp", used="fp32")
    assert names.title(asked).startswith(
        "ResNet-50 · Paddle · fp32 (requested: amp) · batch 32"
    )
    assert "requested" not in names.title(measured([1.0], precision="amp"))


def test_page_titles_are_unique(tmp_path):
    environments = [{}, {"driver": Reading(value="525.60")}]
    titles = {
        re.search("<title>(.*?)</title>", page_of(tmp_path / "m", environment=facts))[1]
        for facts in environments
    }
    assert len(titles) == 2
    known = r"ResNet-50 · Paddle · fp32 · batch 4 · synthetic · [0-9a-f]{8}"
    for title in titles:
        assert re.fullmatch(known, title)


def tiles(measurement):
    html = report.headline(measurement).html
    return [re.sub(r"<.*?>|\s+", " ", tile) for tile in html.split('class="tile"')[1:]]


def test_the_tiles_show_throughput_limit_and_trust(tmp_path):
    events = [[rank_events([1.0] * 7, measured_steps=5)]] * 2
    measurement = with_raw_files(tmp_path / "m", measured([8.0] * 2, protocol="quick"), events)
    throughput, limit, trust = tiles(measurement)
    assert "8.000 images/s" in throughput
    assert "8.000 – 8.000 (50 %, n=2)" in throughput
    assert "Data wait: up to 10 % of a window" in limit
    assert "perfkit diagnose resnet50 -p batch_size 8 " in limit
    assert "No warnings" in trust
    assert "Not checked: step times" in trust


def test_the_trust_tile_names_the_worst_warning(tmp_path):
    repeats = [
        Repeat(index=k, status="complete", throughput=4.0, steps_per_second=1.0, **losses)
        for k, losses in enumerate([{"loss_first": 7.0, "loss_last": 7.0}, {}], 1)
    ]
    changed = stored(tmp_path / "m", repeats=repeats)
    trust = tiles(changed)[-1]
    assert "2 warnings" in trust
    assert "the loss did not change" in trust
    changed.rank_file(1, 0).unlink()
    trust = tiles(changed)[-1]
    assert "3 warnings" in trust
    assert "The raw files do not agree with the result" in trust
    assert "the loss did not change" not in trust


def with_peak(folder, result, **peak):
    repeats = [r.model_copy(update={"peak": Peak(**peak)}) for r in result.repeats]
    return keep(folder, result.model_copy(update={"repeats": repeats}))


def test_a_share_above_100_percent_of_the_peak_is_unreliable(tmp_path):
    low = {"matmul_flops_per_second": 1e9, "copy_bytes_per_second": 1e9}
    measurement = with_peak(tmp_path / "m", measured([4.0]), **low)
    assert "Share of measured peak: unreliable" in tiles(measurement)[1]
    assert "is unreliable: convolutions may need" in report.limits(measurement).html


def test_language_model_utilization_is_shown_with_its_formula(tmp_path):
    wanted = {"model": "gpt", "input": "synthetic", "sequence_length": 1024, "gpus": 8}
    wanted |= {"image_size": None, "layout": None, "optimizer": "adamw", "precision": "bf16"}
    result = measured([1e6], device="gpu", used="bf16", **wanted)
    peak = {"matmul_flops_per_second": 8e12, "copy_bytes_per_second": 1e9}
    measurement = with_peak(tmp_path / "m", result, **peak)
    throughput, _limit, _trust = tiles(measurement)
    assert "tokens/s" in throughput
    assert "125,000 tokens/s per device" in throughput
    text = report.limits(measurement).html
    assert "throughput × FLOPs per token / peak" in text
    # V100s do not support bf16: no datasheet peak is shown.
    assert "1,000,000 tokens/s × 0.8547 GFLOP / 8.00 TFLOP/s" in text
    assert "N = 123,568,128 weights of matrix products" in text
    assert "T = 1024 tokens" in text


def test_the_method_on_a_gpu_is_told_in_separate_sentences(tmp_path):
    text = report.method(keep(tmp_path / "m", measured([1.0], device="gpu", gpus=1))).html
    assert "<li>" in text
    assert not re.search(r"\w\.[A-Z]", text)


def test_cells_added_by_users_stay_on_the_page_without_scripts(tmp_path):
    measurement = stored(tmp_path / "outputs" / "m")
    executed = nbformat.read(ROOT / "notebooks" / "resnet50.ipynb", 4)
    evil = "<script>alert(1)</script><meta http-equiv=refresh content=0><b onload='x()'>b</b>"
    evil += "<a href=' DA&#9;TA:text/html,x'>c</a><img src='data:image/png;base64,aa'>"
    html = {"text/html": f"<p>my finding</p>{evil}"}
    added = nbformat.v4.new_code_cell(
        "1", outputs=[nbformat.v4.new_output("display_data", html)]
    )
    script = {"text/html": "<script>draw()</script>", "text/plain": "Figure()"}
    odd = nbformat.v4.new_output("display_data", script, metadata={"perfkit": "x"})
    picture = {"image/png": "iVBORw0KGgo="}
    odd_figure = nbformat.v4.new_output("display_data", picture, metadata={"perfkit": {}})
    latex = nbformat.v4.new_output("display_data", {"text/latex": "$x$"})
    added.outputs += [odd, odd_figure, latex]
    foreign = nbformat.v4.new_code_cell("report.no_such_thing()", metadata={"tags": ["show"]})
    raw = nbformat.v4.new_raw_cell("report.no_such_thing()", metadata={"tags": ["show"]})
    executed.cells += [nbformat.v4.new_markdown_cell("I *added* this."), added, foreign, raw]
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
    "## Speed & memory <1 GB": ">Speed &amp; memory &lt;1 GB</h2>",
    "First `a < b && c`.": "<p>First <code>a &lt; b &amp;&amp; c</code>.</p>",
    "> quoted": "<blockquote>\n<p>quoted</p>\n</blockquote>",
    "See [raw](repeats/1/rank0.jsonl).": 'See <a href="repeats/1/rank0.jsonl">raw</a>.',
    "## Part\n[there](#Part)": '<h2 id="Part">Part<',
    "A <b onclick=x>bold</b> word<script>x</script>.": "<p>A <b>bold</b> word.</p>",
    "[a](java&#115;cript:x) <a href=' JavaScript:x'>b</a>": "<p><a>a</a> <a>b</a></p>",
    "[c](data:text/html,x) <a href='\x01Data:x'>d</a>": "<p><a>c</a> <a>d</a></p>",
    "An <img src=x onerror=alert(1) alt=x>.": '<p>An <img src="x" alt="x">.</p>',
    "So<scr<script></script>ipt>alert(1)</script>": "<p>So&lt;script&gt;alert(1)</p>",
    "## <script>alert(1)</script>": ">&lt;script&gt;alert(1)&lt;/script&gt;</h2>",
}
"""Markdown of a user's cells -> part of the page."""


def test_markdown_of_users_is_shown_as_written_without_scripts(tmp_path):
    measurement = stored(tmp_path / "m")
    executed = tmp_path / "executed.ipynb"
    cells = [*map(nbformat.v4.new_markdown_cell, MARKDOWN)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), executed)
    write_measurement(measurement, executed=executed)
    text = measurement.page_file.read_text()
    assert [shown for shown in MARKDOWN.values() if shown not in text] == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"),
        (9999.9, "10,000"),
        (999.96, "1000"),
        (4.1, "4.100"),
        (1234.5, "1234"),
        (123456.7, "123,457"),
        (0.01234567, "0.01235"),
        (None, "–"),
    ],
)
def test_numbers_show_four_digits(value, shown):
    assert number(value) == shown


def test_chosen_parameters_precede_defaults(published):
    chosen, folded = report.parameters(published).html.split("<details>")
    assert ">batch_size<" in chosen
    assert ">batch_size<" not in folded
    assert ">seed<" in folded
    assert ">seed<" not in chosen


def test_missing_facts_are_grouped_by_reason_and_empty_facts_shown_as_none(tmp_path):
    missing = Reading(value=None, missing="no driver")
    empty = Reading(value=[])
    environment = {"driver": missing, "cpu": Reading(value="X"), "nccl": missing}
    measurement = stored(tmp_path / "m", environment=environment | {"variables": empty})
    text = " ".join(re.sub("<.*?>", " ", report.environment(measurement).html).split())
    assert text.endswith("CPU X variables none driver, NCCL not read (no driver)")
