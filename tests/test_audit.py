"""Audits: the command and its pages."""

import json
import re
import shutil
from functools import partial
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from conftest import cli
from log_writers import BATCH, paddleclas

from perfkit import report
from perfkit.audit.audit import Audit, read_audit, write_audit
from perfkit.audit.claims import Waterfall, WaterfallStage
from perfkit.audit.statements import DIGITS
from perfkit.core.format import changes, number
from perfkit.core.results.store import ResultError
from perfkit.report.audit import waterfall_chart
from perfkit.report.audit_text import difference_text
from perfkit.report.site import write_site
from perfkit.report.text.language import file_name

run = partial(cli, "audit")
COSTS = 0.65 + 0.05 * np.exp(-np.arange(140) / 5)
"""Seconds of the steps of a training with a warm-up."""


def written(folder, name="PaddleClas_ResNet50_bs256_fp32_DP_N1C8_log", every=10):
    """Write a log whose steps took COSTS seconds and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(paddleclas(COSTS, every))
    return path


def on_one_line(text):
    return " ".join(text.split())


# The command.


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The relative path of a log on 8 devices."""
    monkeypatch.chdir(tmp_path)
    return written(Path("logs"))


@pytest.fixture
def mean_after_skipping():
    """The mean of its printed rates without the first 5, as it may be published."""
    rates = []
    for step in range(10, 141, 10):
        # The printed rates are running means since step 5.
        rates.append(BATCH / COSTS[4:step].mean())
    return f"{8 * np.mean(rates[5:]):.3f}"


def test_audit_exits_with_0_for_a_reproduced_claim(log, mean_after_skipping):
    done = run(log, "--claim", mean_after_skipping)
    assert done.exit_code == 0
    assert f"{mean_after_skipping}  reproduced" in done.stdout
    assert "without the first 5" in on_one_line(done.stdout)


def test_audit_exits_with_1_for_a_claim_that_is_not_reproduced(log):
    done = run(log, "--claim", "3500.5")
    assert done.exit_code == 1
    assert "not reproduced" in done.stdout


def test_audit_exits_with_0_for_a_claim_within_the_tolerance(log):
    assert run(log, "--claim", "395.5", "--tolerance", "5").exit_code == 0


def test_audit_prints_samples_over_time_in_80_columns(log):
    lines = run(log, "--all").stdout
    exact = re.search(r"samples / time +steps 21–120, 10 lines +([\d.]+)", lines)
    assert float(exact[1]) == pytest.approx(8 * BATCH * 100 / COSTS[20:120].sum(), rel=1e-4)
    assert max(map(len, lines.splitlines())) <= 80


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (-4e-07, "< 0.0001 %"),
        (4e-07, "< 0.0001 %"),
        (-1e-05, "-0.001 %"),
        (2e-06, "+0.0002 %"),
        (0.1, "+10 %"),
    ],
)
def test_tiny_differences_are_shown_without_an_exponent(share, text):
    assert difference_text(share) == text
    assert changes([share, share]) == f"{text}, {text}"


def test_a_published_table_is_compared_cell_by_cell(log, tmp_path):
    written(Path("V100"))
    written(Path("V100"), "PaddleClas_ResNet50_bs256_fp32_DP_N1C1_log")
    file = tmp_path / "out.json"
    done = run("V100", "--published", "paddle-resnet50-report", "--json", file)
    audit = Audit.model_validate_json(file.read_text())
    assert done.exit_code == 1
    assert audit.failed
    states = {claim.text: claim.state for claim in audit.claims if claim.log}
    assert states == {"393.561": "not reproduced", "3019.361": "not reproduced"}
    assert sum(claim.state == "no log" for claim in audit.claims) == 34
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_on_stdout_leaves_the_text_to_stderr(log):
    written(Path("logs"), "another_log")
    done = run("logs", "--json", "-")
    assert json.loads(done.stdout)["logs"][0]["figures"]
    assert "another_log" in done.stderr


@pytest.fixture
def unreadable(tmp_path):
    """An empty file, and one without a known format."""
    empty, other = tmp_path / "logs" / "empty", tmp_path / "logs" / "other"
    empty.parent.mkdir(exist_ok=True)
    empty.touch()
    other.write_bytes(b"nothing\x1b[2J that is known\n" * 3)
    return empty, other


def test_unreadable_files_are_named_and_the_others_audited(log, unreadable):
    done = run("logs")
    left_out = on_one_line(done.stdout.partition("left out")[2])
    assert done.exit_code == 0
    assert log.name in done.stdout
    assert "empty" in left_out
    assert "other" in left_out


def test_audit_exits_with_1_if_no_file_can_be_read(unreadable):
    done = run(*unreadable)
    assert done.exit_code == 1
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["logs", "--published", "paddle-resnet50-reprot"], "paddle-resnet50-report"),
        (["logs", "--tolerance", "nan"], "nan"),
        (["logs", "--label", "../x"], "letters, digits"),
        (["logs", "nowhere"], "no file or folder nowhere"),
        (["empty"], "no file in"),
    ],
)
def test_an_invalid_request_is_explained(words, why, log):
    Path("empty").mkdir()
    done = run(*words)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert why in on_one_line(done.stderr)


def test_a_claim_about_several_logs_is_refused(log):
    done = run(log, written(Path("logs"), "b_log"), "--claim", "300")
    assert done.exit_code == 2
    assert "b_log are logs; give one alone" in on_one_line(done.stderr)


def test_a_claim_about_no_log_is_refused(unreadable):
    done = run(*unreadable, "--claim", "300")
    assert done.exit_code == 2
    assert "but no file is one" in on_one_line(done.stderr)


def test_a_claim_may_have_other_files_beside_its_log(log, unreadable):
    done = run(log, *unreadable, "--claim", "300")
    assert "The claim:\n  300  " in done.stdout


def test_control_characters_in_a_name_are_escaped(tmp_path):
    done = run(written(tmp_path, "log\x1b[31m[bold]\x07_bs256"))
    assert not re.search(r"\x1b|\x07", done.stdout)
    assert "[bold]" in done.stdout


@pytest.fixture
def two_folders(log, tmp_path):
    """A relative and an absolute path of logs with the same name."""
    written(tmp_path / "b", "x.log")
    return written(Path("a"), "x.log"), tmp_path / "b" / "x.log"


def test_relative_and_absolute_paths_get_short_names(two_folders, tmp_path):
    output = run(*two_folders).stdout
    assert "a/x.log" in output
    assert "b/x.log" in output
    assert str(tmp_path) not in output


def test_a_stored_audit_with_contradicting_facts_is_read_back(log, tmp_path):
    log.write_text(f"batch_size_per_gpu : 128 \n{log.read_text()}")
    done = run(log, "--label", "two", "--outputs", tmp_path)
    assert done.exit_code == 0
    findings = read_audit(tmp_path / "audits" / "two").logs[0].findings
    texts = [located.finding.text() for located in findings]
    assert "batch_size is 128 by line 1, but 256 by the file name: 128 is used." in texts


# The page.


@pytest.fixture(scope="module")
def stored_once(tmp_path_factory):
    """A stored audit with claims, a log without a claim, an unreadable file and findings."""
    folder = tmp_path_factory.mktemp("stored")
    logs, outputs = folder / "logs", folder / "outputs"
    written(logs / "V100")
    written(logs, "PaddleClas_VGG16_bs32_fp32_DP_N1C8_log", 1)
    (logs / "empty").touch()
    options = ["--published", "paddle-resnet50-report", "--label", "paddle"]
    assert run(logs, *options, "--outputs", outputs).exit_code == 1
    return outputs


@pytest.fixture
def stored(stored_once, tmp_path):
    """The folder of a copy of that audit."""
    return shutil.copytree(stored_once, tmp_path / "outputs") / "audits" / "paddle"


def page(folder, language="en"):
    return unescape((folder / file_name("report", language)).read_text())


def test_an_audit_is_stored_with_its_command(stored):
    command = read_audit(stored).command
    assert command.startswith("perfkit audit ")
    assert "--label paddle" in command


@pytest.mark.parametrize(
    ("language", "texts"),
    [
        ("en", ["3019.361", "not reproduced", "steps 21–120", "empty", 'href="audit.json"']),
        ("zh", ["3019.361", "未能重现", "第 21–120 步", "从公布值到答案"]),
    ],
)
def test_an_audit_has_pages_in_both_languages(stored, language, texts):
    text = page(stored, language)
    assert [expected for expected in texts if expected not in text] == []


def test_a_page_shows_the_way_from_published_to_the_answer(stored):
    waterfall = report.audit_waterfall(str(stored)).html
    assert "the log's answer" in waterfall
    assert "PaddleClas_VGG16" in waterfall
    assert "<svg" in waterfall


def test_a_page_compares_a_claim_of_one_device_with_the_throughput_of_one(
    log, mean_after_skipping
):
    of_one = f"{float(mean_after_skipping) / 8:.3f}"
    run(log, "--claim", of_one, "--outputs", "outputs", "--label", "one")
    folder = Path("outputs/audits/one").resolve()
    (claim,) = read_audit(folder).claims
    value = f"{number(claim.reference, DIGITS)} images/s/device"
    assert value in report.audit_claims(str(folder)).html
    assert ">images/s/device</td>" in report.audit_waterfall(str(folder)).html


def waterfalls(*differences):
    """Return a waterfall of two stages for each difference between them, by its label."""
    made = {}
    for index, difference in enumerate(differences):
        first = WaterfallStage("claimed", 100.0)
        last = WaterfallStage("answer", 100.0 * (1 + difference))
        made[f"log {index}"] = Waterfall([first, last], "images/s", of_all=True)
    return made


def test_a_chart_of_equal_numbers_does_not_magnify_their_rounding():
    (axes,) = waterfall_chart(waterfalls(2e-6, -1e-6)).axes
    left, right = axes.get_xlim()
    assert (left, right) == (-0.5, 0.5)
    (wide,) = waterfall_chart(waterfalls(0.1, -0.2)).axes
    left, right = wide.get_xlim()
    assert left < -20
    assert right > 10


def test_a_chart_draws_up_to_40_numbers_and_the_page_says_if_there_are_more(stored):
    differences = [0.001 * number for number in range(41)]
    (axes,) = waterfall_chart(waterfalls(*differences[:40])).axes
    assert len(axes.get_yticks()) == 40
    (axes,) = waterfall_chart(waterfalls(*differences)).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert len(names) == 40
    assert "log 0" not in names
    assert "Drawn:" not in page(stored)
    audit = read_audit(stored)
    (claim,) = (claim for claim in audit.claims if claim.log)
    claims = [claim.model_copy(update={"text": f"{number}"}) for number in range(41)]
    logs = [log for log in audit.logs if log.name == claim.log]
    write_audit(stored, audit.model_copy(update={"claims": claims, "logs": logs}))
    shown = report.audit_waterfall(str(stored)).html
    assert "Drawn: the 40 of 41 numbers with the largest differences." in shown


def test_the_page_of_a_claim_names_no_option(log, tmp_path):
    options = ["--claim", "2999.5", "--label", "mine", "--outputs", tmp_path]
    done = run(log, *options)
    assert done.exit_code == 1
    assert "2999.5  not reproduced\n" in done.stdout
    text = page(tmp_path / "audits" / "mine")
    before, _command, after = text.rpartition('<pre class="command">')
    assert "2999.5" in before
    assert "--claim" not in before
    assert "--claim 2999.5" in after


@pytest.mark.parametrize("name", ["index.html", "index.zh.html"])
def test_the_index_links_to_audits(stored, name):
    index = (stored.parent.parent / name).read_text()
    assert 'href="audits/paddle/report' in index


def test_the_site_is_rebuilt_from_stored_audits(stored, without_summary):
    before = page(stored).partition("<main")[2]
    (stored / "report.html").unlink()
    hostile = "<script>alert(1)</script>"
    audit = read_audit(stored)
    log = audit.logs[0].model_copy(update={"name": hostile, "format": hostile})
    changes = {"logs": [log], "claims": [], "command": hostile, "label": "other"}
    other = stored.parent / "other"
    write_audit(other, audit.model_copy(update=changes))
    _pages, left_out = write_site(stored.parent.parent, lambda _done: None)
    assert left_out == []
    assert page(stored).partition("<main")[2] == before
    assert "<script>alert" not in (other / "report.html").read_text()


def test_an_audit_of_another_version_is_refused_by_name(stored, without_summary):
    content = json.loads((stored / "audit.json").read_text())
    (stored / "audit.json").write_text(json.dumps(content | {"schema_version": 9}))
    with pytest.raises(ResultError, match="schema_version is 9"):
        read_audit(stored)
    _pages, left_out = write_site(stored.parent.parent, lambda _done: None)
    assert len(left_out) == 1
    assert "schema_version is 9" in page(stored)


def test_the_audit_notebook_runs_with_papermill(stored, run_notebook):
    done, out = run_notebook("audit", "folder", stored)
    assert done.returncode == 0, done.stderr
    assert "3019.361" in out.read_text()
