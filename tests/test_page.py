"""The page: self-contained, escaped, readable in a real browser, wide and narrow."""

import re
import shlex

import nbformat
import pytest
from made import made_result, measured, rank_events, stored, with_raw_files, write_all

from perfkit import report
from perfkit.config import ROOT, Protocol
from perfkit.report.index import write_index
from perfkit.report.measurement import write_measurement
from perfkit.report.outcome import MeasurementError
from perfkit.report.section import table
from perfkit.report.site import publish
from perfkit.results.schema import Failure, Peak, Rank, Reading, Repeat
from perfkit.results.store import Measurement
from perfkit.text import format

HOSTILE = '<script>alert(1)</script><img src="http://evil.example/x">&"\''


def page_of(folder, **changes):
    write_measurement(stored(folder, **changes))
    return (folder / "report.html").read_text()


def test_foreign_text_is_escaped_wherever_it_comes_from(tmp_path):
    text = page_of(
        tmp_path / "m",
        status="partial",
        failure=Failure("worker_error", {"detail": HOSTILE}),
        environment={
            "gpus": Reading(value=[HOSTILE]),
            "suite_commit": Reading(value=HOSTILE),
            "suite_modified": Reading(value=False),
            "cpu": Reading(value=None, missing=HOSTILE),
        },
    )
    assert "<script>alert" not in text
    assert "<img src=" not in text
    assert text.count("&lt;script&gt;") >= 3


def test_the_page_asks_for_nothing_and_forbids_it_too(tmp_path):
    text = page_of(tmp_path / "m")
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text.replace("www.w3.org", ""))
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")


def test_every_section_of_the_notebook_is_on_the_page(tmp_path):
    text = page_of(tmp_path / "m")
    for heading in ("Parameters", "Effective settings", "Repeats", "Limits", "Environment"):
        assert f">{heading}</h2>" in text
    assert text.count("<figure") == 2


def test_a_notebook_that_is_kept_shows_its_outputs_in_any_viewer(tmp_path):
    write_measurement(stored(tmp_path / "m"), notebook=True)
    notebook = nbformat.read(tmp_path / "m" / "notebook.ipynb", 4)
    nbformat.validate(notebook)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    figures = [output.data for output in outputs if "image/png" in output.data]
    assert len(figures) == 2 and not any("image/svg+xml" in data for data in figures)
    assert "var(--" not in str(outputs)
    assert all(output.data["text/plain"] for output in outputs)


def test_number_and_interval_stand_in_columns_of_their_own():
    html = table([["6.923", "5.858 – 7.989", "<b>"]], ["throughput", "interval", "of"]).html
    assert re.findall(r"<td[^>]*>(.*?)</td>", html) == ["6.923", "5.858 – 7.989", "&lt;b&gt;"]


def test_the_page_is_the_same_bytes_each_time(tmp_path):
    measurement = stored(tmp_path / "m")
    texts = set()
    for _ in range(2):
        write_measurement(measurement)
        texts.add((tmp_path / "m" / "report.html").read_text())
    assert len(texts) == 1


def test_a_measurement_without_any_repeat_still_has_a_page(tmp_path):
    failure = Failure("bad_input", {"detail": "train_list.txt:3: no such file: a.jpeg"})
    text = page_of(
        tmp_path / "m", repeats=[], throughput=None, status="failed", failure=failure
    )
    assert "no number" in text
    assert "train_list.txt:3: no such file" in text


def test_a_result_with_no_more_than_its_schema_demands_has_a_page(tmp_path):
    config = made_result().config.model_copy(update={"processes": 2})
    ranks = [
        Rank(rank=n, samples=2, window_seconds=1.0, data_wait_seconds=0.0) for n in range(2)
    ]
    bare = Repeat(index=1, status="complete", throughput=4.0, steps_per_second=1.0, ranks=ranks)
    text = page_of(tmp_path / "m", config=config, repeats=[bare], environment={})
    assert "4.000" in text


def test_publishing_what_is_not_complete_raises_after_the_page_is_written(tmp_path):
    failure = Failure("timeout", {"detail": "repeat 2 took over 9 s"})
    measurement = stored(tmp_path / "m", status="partial", failure=failure)
    with pytest.raises(MeasurementError, match="timeout: repeat 2 took over 9 s"):
        publish(measurement)
    assert (tmp_path / "m" / "report.html").exists()
    assert (tmp_path / "index.html").exists()


def test_the_command_on_the_page_makes_the_same_request(tmp_path):
    from perfkit.request.plan import plan, typed

    odd = tmp_path / "a folder with 'quotes'"
    odd.mkdir()
    (odd / "train_list.txt").write_text("a.jpeg 0\n")
    given = {
        "input": "dali",
        "data_dir": str(odd),
        "label": "it-s",
        "batch_size": 3,
        "measured_steps": 9,
    }
    planned = plan("resnet50", given | {"device": "cpu", "protocol": "published"})
    result = made_result(config=planned.config, protocol=planned.protocol)
    words = shlex.split(format.command(result))
    assert words[:3] == ["perfkit", "run", "resnet50"]
    pairs = zip(words[4::3], words[5::3], strict=True)
    again = plan("resnet50", {name: typed(name, value) for name, value in pairs})
    assert again == planned


def test_a_protocol_is_named_with_whether_it_was_followed_to_the_letter():
    assert format.protocol_name(Protocol.named("published")) == "published"
    changed = Protocol.named("published", repeats=1)
    assert format.protocol_name(changed) == "published, changed"


def test_a_title_has_the_precision_that_was_really_used():
    asked = measured([1.0], precision="amp", used="fp32")
    assert format.title(asked).startswith(
        "ResNet-50 · Paddle · fp32 (requested: amp) · batch 32"
    )
    assert "requested" not in format.title(measured([1.0], precision="amp"))


def test_no_two_pages_have_the_same_title(tmp_path):
    titles = {
        re.search("<title>(.*?)</title>", page_of(tmp_path / name))[1]
        for name in ("resnet50-paddle-0e37df14", "resnet50-paddle-4d639555")
    }
    assert titles == {
        "ResNet-50 · Paddle · fp32 · batch 4 · synthetic · 0e37df14",
        "ResNet-50 · Paddle · fp32 · batch 4 · synthetic · 4d639555",
    }


def tiles(measurement):
    html = report.headline(measurement).html
    return [re.sub(r"<.*?>|\s+", " ", tile) for tile in html.split('class="tile"')[1:]]


def test_the_tiles_answer_how_fast_what_limits_it_and_whether_to_trust_it(tmp_path):
    events = [[rank_events([1.0] * 7, measured_steps=5)]] * 2
    measurement = with_raw_files(tmp_path / "m", measured([8.0] * 2, protocol="quick"), events)
    throughput, limit, trust = tiles(measurement)
    assert "8.000 images/s" in throughput and "8.000 – 8.000 (50 %, n=2)" in throughput
    assert "Data wait: up to 10 % of a window" in limit
    assert "No warnings" in trust and "Not checked: step times" in trust


def test_the_worst_warning_is_the_one_that_the_trust_tile_names(tmp_path):
    repeats = [
        Repeat(index=k, status="complete", throughput=4.0, steps_per_second=1.0, **losses)
        for k, losses in enumerate([{"loss_first": 7.0, "loss_last": 7.0}, {}], 1)
    ]
    *_others, trust = tiles(stored(tmp_path / "m", repeats=repeats))
    assert "3 warnings" in trust and "The raw files do not agree with the result" in trust
    assert "the loss did not change" not in trust


def test_a_share_of_over_100_percent_of_the_peak_is_no_fact(tmp_path):
    low = Peak(matmul_flops_per_second=1e9, copy_bytes_per_second=1e9)
    result = measured([4.0])
    repeats = [repeat.model_copy(update={"peak": low}) for repeat in result.repeats]
    write_all(tmp_path, result.model_copy(update={"repeats": repeats, "id": "m"}))
    measurement = Measurement.read(tmp_path / "m-0")
    _throughput, limit, _trust = tiles(measurement)
    assert "Share of measured peak: unreliable" in limit
    assert "is unreliable: convolutions may need" in report.limits(measurement).html


def test_cells_that_a_user_added_to_a_notebook_stay_on_the_page_without_their_scripts(tmp_path):
    measurement = stored(tmp_path / "outputs" / "m")
    executed = nbformat.read(ROOT / "notebooks" / "resnet50.ipynb", 4)
    html = {"text/html": "<p>my finding</p><script>alert(1)</script>"}
    added = nbformat.v4.new_code_cell(
        "1", outputs=[nbformat.v4.new_output("display_data", html)]
    )
    foreign = nbformat.v4.new_code_cell("report.no_such_thing()", metadata={"tags": ["show"]})
    executed.cells += [nbformat.v4.new_markdown_cell("I *added* this."), added, foreign]
    nbformat.write(executed, tmp_path / "executed.ipynb")
    write_measurement(measurement, executed=tmp_path / "executed.ipynb")
    for _again in range(2):
        text = (measurement.folder / "report.html").read_text()
        assert "<em>added</em>" in text and "<p>my finding</p>" in text
        assert not re.search("<script>alert|<meta http-equiv=refresh|onload", text)
        assert "4.150 images/s" in text
        write_measurement(measurement)


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
    assert format.number(value) == shown


def test_links_on_the_page_lead_to_files_that_exist(tmp_path):
    text = page_of(tmp_path / "m")
    write_index(tmp_path)
    links = set(re.findall(r'href="([^"#]+)"', text))
    assert "repeats/1/rank0.jsonl" in links
    for link in links:
        assert (tmp_path / "m" / link).exists(), link


def test_parameters_that_were_chosen_stand_before_those_left_to_their_defaults(tmp_path):
    chosen, folded = report.parameters(stored(tmp_path / "m")).html.split("<details>")
    assert ">batch_size<" in chosen and ">batch_size<" not in folded
    assert ">seed<" in folded and ">seed<" not in chosen


def test_facts_that_were_not_read_stand_with_their_reason_once(tmp_path):
    missing = Reading(value=None, missing="no driver")
    environment = {"driver": missing, "cpu": Reading(value="X"), "nccl": missing}
    measurement = stored(tmp_path / "m", environment=environment)
    text = " ".join(re.sub("<.*?>", " ", report.environment(measurement).html).split())
    assert text.endswith("CPU X driver, NCCL not read (no driver)")


def test_a_fact_that_is_empty_is_none(tmp_path):
    measurement = stored(tmp_path / "m", environment={"variables": Reading(value=[])})
    assert ">none</td>" in report.environment(measurement).html
