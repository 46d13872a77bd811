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
from made.logs import paddleclas

from perfkit.audit.audit import Audit, read_audit, write_audit
from perfkit.measuring.results.store import ResultError
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


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["logs", "--published", "paddle-resnet50-reprot"], "paddle-resnet50-report"),
        (["logs", "--label", "../x"], "letters, digits"),
        (["logs", "nowhere"], "no file or folder nowhere"),
    ],
)
def test_an_invalid_request_is_explained(words, why, log):
    done = run(*words)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert why in on_one_line(done.stderr)


def test_a_claim_is_about_a_single_log(log, unreadable):
    done = run(log, written(Path("logs"), "b_log"), "--claim", "300")
    assert done.exit_code == 2
    assert "2 of the files are logs" in on_one_line(done.stderr)
    assert run(*unreadable, "--claim", "300").exit_code == 2
    assert run(log, *unreadable, "--claim", "300").stdout.startswith("300 not reproduced\n")


def test_control_characters_in_a_name_are_escaped(tmp_path):
    done = run(written(tmp_path, "log\x1b[31m[bold]\x07_bs256"))
    assert not re.search(r"\x1b|\x07", done.stdout)
    assert "[bold]" in done.stdout


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


def test_the_index_links_to_audits(stored):
    index = (stored.parent.parent / "index.html").read_text()
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


@pytest.mark.slow
def test_the_audit_notebook_runs_with_papermill(stored, run_notebook):
    done, out = run_notebook("audit", "folder", stored)
    assert done.returncode == 0, done.stderr
    assert "3019.361" in out.read_text()
