"""The summary and explore notebooks through papermill."""

from collections import defaultdict
from html import unescape

import nbformat
import pytest
from made.results import stored

from perfkit.measuring.paths import ROOT


@pytest.fixture
def executed(run_notebook, tmp_path):
    """Return a function that runs a notebook on tmp_path/outputs by papermill and returns its
    displayed data by MIME type, its printed text and the finished process."""

    def run(notebook, *options):
        done, out = run_notebook(notebook, "outputs_dir", tmp_path / "outputs", *options)
        displayed = defaultdict(list)
        printed = ""
        for cell in nbformat.read(out, 4).cells:
            for output in cell.get("outputs", []):
                printed += output.get("text", "")
                for kind, value in output.get("data", {}).items():
                    displayed[kind].append(value)
        return displayed, printed, done

    return run


@pytest.mark.slow
def test_the_summary_notebook_shows_one_language_and_writes_pages_in_all(executed, tmp_path):
    stored(tmp_path / "outputs" / "one")
    displayed, _printed, done = executed("summary", "-p", "lang", "zh")
    assert done.returncode == 0, done.stderr
    text = "".join(displayed["text/html"])
    assert "重复的中位数" in text
    assert "4.150" in text
    assert "perfkit compare --live" in text
    for page in ("index.html", "summary/report.html", "summary/report.zh.html", "results.csv"):
        assert (tmp_path / "outputs" / page).exists()
    english = (tmp_path / "outputs" / "summary" / "report.html").read_text()
    assert 'lang="en"' in english
    main = english.split("<main")[1]
    assert "重复" not in main


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.slow
def test_the_explore_notebook_falls_back_to_the_examples(executed, tmp_path, count):
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    for number in range(count):
        created = f"2026-01-0{number + 1}T00:00:00+00:00"
        stored(outputs / str(number), created=created)
    displayed, printed, done = executed("explore")
    assert done.returncode == 0, done.stderr
    assert len(displayed["image/png"]) == 3
    text = "".join(displayed["text/html"])
    assert "<table" in text
    if count == 0:
        assert "outputs/examples\n" in printed
    else:
        assert str(outputs) in printed
    if count == 2:
        assert "B 1.00 × A, can't tell: n=2, 4 are enough" in unescape(text)


@pytest.mark.parametrize("name", ["summary", "explore"])
def test_the_notebooks_contain_no_logic(name):
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4)
    lines = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            lines += cell.source.splitlines()
    for line in lines:
        assert "def " not in line
        assert "class " not in line
    filled = [line for line in lines if line]
    assert len(filled) <= 30
