"""The summary and explore notebooks through papermill."""

import nbformat
import pytest
from made import stored

from perfkit.core.paths import ROOT


@pytest.fixture
def executed(run_notebook, tmp_path):
    """Return a function that runs a notebook on tmp_path/outputs by papermill and returns its
    displayed data by MIME type, its printed text and the finished process."""

    def run(notebook, *options):
        done, out = run_notebook(notebook, "outputs_dir", tmp_path / "outputs", *options)
        cells = nbformat.read(out, 4).cells
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        data = [output.get("data", {}) for output in outputs]
        shown = {
            kind: [bundle[kind] for bundle in data if kind in bundle]
            for kind in ("text/html", "image/png")
        }
        return shown, "".join(output.get("text", "") for output in outputs), done

    return run


@pytest.mark.slow
def test_the_summary_notebook_shows_one_language_and_writes_pages_in_all(executed, tmp_path):
    stored(tmp_path / "outputs" / "one")
    shown, _printed, done = executed("summary", "-p", "lang", "zh")
    assert done.returncode == 0, done.stderr
    text = "".join(shown["text/html"])
    assert "重复的中位数" in text
    assert "4.150" in text
    assert "perfkit compare --live" in text
    for page in ("index.html", "summary/report.html", "summary/report.zh.html", "results.csv"):
        assert (tmp_path / "outputs" / page).exists()
    page = (tmp_path / "outputs" / "summary" / "report.html").read_text()
    assert 'lang="en"' in page
    assert "重复" not in page.split("<main")[1]


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.slow
def test_the_explore_notebook_falls_back_to_the_examples(executed, tmp_path, count):
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    for number in range(count):
        stored(outputs / str(number), created=f"2026-01-0{number + 1}T00:00:00+00:00")
    shown, printed, done = executed("explore")
    assert done.returncode == 0, done.stderr
    assert len(shown["image/png"]) == 3
    assert any("<table" in html for html in shown["text/html"])
    assert (str(outputs) if count else "outputs/examples\n") in printed
    compared = "No second measurement" if count == 1 else " / Paddle · fp32 · 4 · 1x1"
    assert compared in printed or count == 0


@pytest.mark.parametrize("name", ["summary", "explore"])
def test_the_notebooks_contain_no_logic(name):
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4)
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert "def " not in code
    assert "class " not in code
    assert len([line for line in code.splitlines() if line]) <= 30
