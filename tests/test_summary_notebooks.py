"""The summary and explore notebooks run as papermill and JupyterLab run them."""

import subprocess
import sys

import nbformat
import pytest
from made import stored

from perfkit.config import ROOT


@pytest.fixture
def executed(processes, tmp_path):
    """Run a notebook by papermill: the notebook then, and how papermill ended."""

    def run(notebook, *options):
        out = tmp_path / "out.ipynb"
        source = ROOT / "notebooks" / f"{notebook}.ipynb"
        command = [sys.executable, "-m", "papermill", str(source), str(out), *options]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return nbformat.read(out, 4), done

    return run


@pytest.fixture
def outputs(tmp_path):
    stored(tmp_path / "outputs" / "one")
    stored(tmp_path / "outputs" / "two", created="2026-01-02T00:00:00+00:00")
    return tmp_path / "outputs"


def shown(notebook, kind):
    return [
        output["data"][kind]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if kind in output.get("data", {})
    ]


def printed(notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text", "") for output in outputs)


def test_the_summary_notebook_shows_and_writes_the_summary(executed, outputs, tmp_path):
    notebook, done = executed("summary", "-p", "outputs_dir", str(outputs))
    assert done.returncode == 0, done.stderr
    text = "".join(shown(notebook, "text/html"))
    assert "4.150" in text and "perfkit compare --live" in text
    for page in ("index.html", "summary/report.html", "summary/report.zh.html", "results.csv"):
        assert (outputs / page).exists()


def test_the_summary_notebook_speaks_the_language_asked_for(executed, outputs, tmp_path):
    options = ("-p", "outputs_dir", str(outputs), "-p", "lang", "zh")
    notebook, _done = executed("summary", *options)
    assert (
        "每次重复" in (text := "".join(shown(notebook, "text/html"))) or "重复的中位数" in text
    )
    page = (outputs / "summary" / "report.html").read_text()
    assert 'lang="en"' in page and "重复" not in page.split("<main")[1]


def test_the_summary_of_a_folder_that_is_not_there_is_an_error(executed, tmp_path):
    _notebook, done = executed("summary", "-p", "outputs_dir", str(tmp_path / "typo"))
    assert done.returncode != 0
    assert "no folder" in done.stderr and "typo" in done.stderr


@pytest.mark.parametrize("names", [["one"], ["one", "two"]])
def test_the_explore_notebook_runs_from_top_to_bottom(executed, tmp_path, names):
    for name in names:
        stored(tmp_path / "outputs" / name)
    notebook, done = executed("explore", "-p", "outputs_dir", str(tmp_path / "outputs"))
    assert done.returncode == 0, done.stderr
    assert len(shown(notebook, "image/png")) == 3
    assert any("<table" in html for html in shown(notebook, "text/html"))
    text = printed(notebook)
    assert str(tmp_path / "outputs") in text and " / Paddle · fp32 · 4 · 1x1" in text


def test_the_explore_notebook_takes_the_examples_only_without_a_measurement(executed, tmp_path):
    (tmp_path / "outputs").mkdir()
    notebook, done = executed("explore", "-p", "outputs_dir", str(tmp_path / "outputs"))
    assert done.returncode == 0, done.stderr
    assert "outputs/examples\n" in printed(notebook)


@pytest.mark.parametrize("name", ["summary", "explore"])
def test_the_notebooks_are_thin(name):
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4)
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert "def " not in code and "class " not in code
    assert len([line for line in code.splitlines() if line]) <= 40
