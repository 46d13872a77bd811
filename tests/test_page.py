"""The page: self-contained, escaped, readable in a real browser, wide and narrow."""

import re
import shlex
from pathlib import Path

import nbformat
import pytest
from made import made_result, measured, stored

from perfkit import report
from perfkit.config import Protocol
from perfkit.report import page
from perfkit.report.index import write_index
from perfkit.report.page import write_page
from perfkit.report.site import MeasurementError, publish
from perfkit.results.schema import Failure, Rank, Reading, Repeat
from perfkit.words import wording

HOSTILE = '<script>alert(1)</script><img src="http://evil.example/x">&"\''


def page_of(folder, **changes):
    write_page(stored(folder, **changes))
    return (folder / "report.html").read_text()


def test_foreign_text_is_escaped_wherever_it_comes_from(tmp_path):
    text = page_of(
        tmp_path / "m",
        status="partial",
        failure=Failure(code="worker_error", message=HOSTILE),
        environment={
            "gpus": Reading(value=[HOSTILE]),
            "suite_commit": Reading(value=HOSTILE),
            "suite_modified": Reading(value=False),
            "cpu": Reading(value=None, missing=HOSTILE),
        },
    )
    assert "<script>alert" not in text
    assert "<img" not in text
    assert text.count("&lt;script&gt;") >= 3


def test_the_page_asks_for_nothing_and_forbids_it_too(tmp_path):
    text = page_of(tmp_path / "m")
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")


def test_every_section_of_the_notebook_is_on_the_page(tmp_path):
    text = page_of(tmp_path / "m")
    for heading in ("What was run", "What really ran", "Repeats", "Step times", "Environment"):
        assert heading in text
    assert text.count("<figure") == 2
    notebook = nbformat.read(tmp_path / "m" / "notebook.ipynb", 4)
    nbformat.validate(notebook)


def test_the_page_is_the_same_bytes_each_time(tmp_path):
    measurement = stored(tmp_path / "m")
    texts = set()
    for _ in range(2):
        write_page(measurement)
        texts.add((tmp_path / "m" / "report.html").read_text())
    assert len(texts) == 1


def test_a_measurement_without_any_repeat_still_has_a_page(tmp_path):
    failure = Failure(code="bad_input", message="train_list.txt:3: no such file: a.jpeg")
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
    failure = Failure(code="time_out", message="repeat 2 took over 9 s")
    measurement = stored(tmp_path / "m", status="partial", failure=failure)
    with pytest.raises(MeasurementError, match="time_out: repeat 2 took over 9 s"):
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
    words = shlex.split(wording.command(result))
    assert words[:3] == ["perfkit", "run", "resnet50"]
    pairs = zip(words[4::3], words[5::3], strict=True)
    again = plan("resnet50", {name: typed(name, value) for name, value in pairs})
    assert again == planned


def test_a_protocol_is_named_with_whether_it_was_followed_to_the_letter():
    assert wording.protocol_name(Protocol.named("published")) == "published"
    changed = Protocol.named("published", repeats=1)
    assert wording.protocol_name(changed) == "published, changed"


def test_a_title_has_the_precision_that_was_really_used():
    asked = measured([1.0], precision="amp", used="fp32")
    assert wording.title(asked).startswith("ResNet-50 v1.5 · Paddle · fp32 (asked for: amp) ·")
    assert "asked for" not in wording.title(measured([1.0], precision="amp"))


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
    assert wording.number(value) == shown


def test_links_on_the_page_lead_to_files_that_exist(tmp_path):
    text = page_of(tmp_path / "m")
    write_index(tmp_path)
    links = set(re.findall(r'href="([^"#]+)"', text))
    assert "repeats/1/rank0.jsonl" in links
    for link in links:
        assert (tmp_path / "m" / link).exists(), link


def test_the_template_and_styles_are_part_of_the_package():
    assert (Path(page.__file__).parent / "templates" / "style.css").exists()


def test_parameters_that_were_chosen_stand_before_those_left_to_their_defaults(tmp_path):
    measurement = stored(tmp_path / "m")
    chosen, folded = report.parameters(measurement).html.split("<details>")
    assert "<code>batch_size</code>" in chosen and "<code>batch_size</code>" not in folded
    assert "<code>seed</code>" in folded and "<code>seed</code>" not in chosen


def test_facts_that_were_not_read_stand_with_their_reason_once(tmp_path):
    missing = Reading(value=None, missing="no driver")
    environment = {"driver": missing, "cpu": Reading(value="X"), "nccl": missing}
    measurement = stored(tmp_path / "m", environment=environment)
    (told,) = re.findall("not read:.*", report.environment(measurement).html)
    assert re.sub("<.*?>", "", told) == "not read: driver, NCCL (no driver)"


def test_a_fact_that_is_empty_is_none(tmp_path):
    measurement = stored(tmp_path / "m", environment={"variables": Reading(value=[])})
    assert "<td>none</td>" in report.environment(measurement).html
