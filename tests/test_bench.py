"""The suite's own figures: made one by one, stored as they come, shown as a page."""

import json
import os
import re
import subprocess
import sys
from html import unescape

import nbformat
import pytest
from made import made_figure, stored

from perfkit.config import ROOT
from perfkit.report.bench import bench_figures, run_plot
from perfkit.report.index import write_index
from perfkit.report.site import FACTS, parts, publish_bench, write_site
from perfkit.results.figures import Number, figures_file, read_figures, store_figure
from perfkit.results.files import ResultError
from perfkit.statistics import share_interval
from perfkit.text.language import LANGUAGES, file_name

sys.path.insert(0, str(ROOT / "tests" / "bench"))
import runner

SCRIPT = ROOT / "tests" / "bench" / "figures.py"
HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">&"\''


def timer():
    """What a step costs,
    said in two lines."""
    return [Number.of_values("each step", [1.0, 2.0, 4.0], "µs")]


def ratio():
    """One thing / another."""
    pairs = [(2.0, 1.0), (3.0, 2.0), (4.0, 4.0)]
    return [
        Number.of_pairs("one / other", pairs, "images/s"),
        Number.of_trials("it was named", 5, 6),
    ]


def falls():
    """One that fails."""
    raise RuntimeError("the disk is gone")


@pytest.fixture
def made(tmp_path):
    """Two figures and one that failed, in a folder of outputs."""
    assert [runner.run(figure, tmp_path) for figure in (timer, ratio, falls)] == [1, 1, 0]
    return tmp_path


def command_line(monkeypatch, outputs, *names):
    """Run the figures of this file as the script does; the exit status."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *names, "--outputs", str(outputs)])
    with pytest.raises(SystemExit) as ended:
        runner.main({falls: 1, timer: 1, ratio: 1})
    return ended.value.code


def page(outputs, language="en"):
    return unescape((outputs / "bench" / file_name("report", language)).read_text())


def spoil(outputs, change):
    """Change what is stored by `change`, a function on the parsed file."""
    path = figures_file(outputs)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.usefixtures("processes")
def test_a_real_figure_through_the_real_script_is_stored_and_shown(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT, "timer", "--outputs", tmp_path],
        env=os.environ | {"PAIRS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (figure,) = read_figures(tmp_path).values()
    (number,) = figure.numbers
    assert number.n == 2 and number.unit == "µs" and 0 < number.value < 10_000
    assert figure.command == "PAIRS=2 .venv/bin/python tests/bench/figures.py timer"
    assert figure.fact("python") and figure.seconds > 0
    assert done.stdout.splitlines()[-1] == str(tmp_path / "bench" / "report.html")
    assert f"{number.value:#.4g}" in page(tmp_path)
    assert "bench/report.html" in (tmp_path / "index.html").read_text()


def test_make_bench_makes_the_figures_that_are_wanted_and_each_says_what_it_tells():
    import figures

    made = {figure.__name__ for figure in figures.FIGURES}
    assert {"timer", "transparency", "driver_overhead", "merging", "site"} <= made
    assert all(figure.__doc__ for figure in figures.FIGURES)


def test_what_a_number_follows_from_is_stored_beside_it(made):
    figures = read_figures(made)
    (step,) = figures["timer"].numbers
    assert (step.value, step.interval, step.interval_level, step.n) == (2, (1, 4), 0.75, 3)
    both, share = figures["ratio"].numbers
    assert both.runs == [2.0, 1.5, 1.0] and both.value == 1.5 and both.interval == (1.0, 2.0)
    assert share.value == 5 / 6 and share.n == 6
    assert figures["timer"].about == "What a step costs, said in two lines."


def test_the_interval_of_a_share_is_the_exact_one():
    # Of 0 hits: 1 - (alpha / 2) ** (1 / n); of as many as trials: mirrored.
    low, high, level = share_interval(0, 10)
    assert (low, level) == (0, 0.95) and high == pytest.approx(1 - 0.025**0.1)
    low, high, _level = share_interval(10, 10)
    assert high == 1 and low == pytest.approx(0.025**0.1)


def test_a_figure_that_fails_is_stored_with_the_reason_and_the_others_are_made(
    tmp_path, monkeypatch, capsys
):
    assert command_line(monkeypatch, tmp_path) == "Failed: falls"
    figures = read_figures(tmp_path)
    assert [*figures] == ["falls", "timer", "ratio"]
    assert figures["falls"].failure == "RuntimeError: the disk is gone"
    assert figures["falls"].numbers == [] and figures["timer"].failure is None
    assert "RuntimeError: the disk is gone" in page(tmp_path)
    assert "the disk is gone" in capsys.readouterr().err


def test_one_figure_alone_replaces_its_own_entry_only(made, monkeypatch):
    before = json.loads(figures_file(made).read_text())["figures"]
    assert command_line(monkeypatch, made, "timer") == 0
    after = json.loads(figures_file(made).read_text())["figures"]
    assert [*after] == [*before]
    assert after["timer"].pop("created") > before["timer"].pop("created")
    assert {name for name in after if after[name] != before[name]} <= {"timer"}
    assert after["timer"]["command"] == ".venv/bin/python tests/bench/figures.py timer"


def test_a_figure_that_was_made_before_an_interruption_is_kept(tmp_path, monkeypatch):
    def interrupts():
        """The person at the keyboard stops it."""
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--outputs", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        runner.main({timer: 1, interrupts: 1, ratio: 1})
    assert ended.value.code == "Failed: interrupts (interrupted)"
    assert [*read_figures(tmp_path)] == ["timer"]
    assert "each step" in page(tmp_path)


def test_an_unknown_figure_is_refused_with_those_there_are(tmp_path, monkeypatch, capsys):
    assert command_line(monkeypatch, tmp_path, "timr") == 2
    assert "no such figure: timr; there are: falls, timer, ratio" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_a_variable_that_is_no_number_is_refused_with_what_it_may_be(monkeypatch):
    monkeypatch.setenv("SIZES", "100 0")
    with pytest.raises(
        SystemExit, match="SIZES='100 0': numbers from 1 on, as SIZES='100 1000"
    ):
        runner.counts("SIZES")
    monkeypatch.setenv("SIZES", "100 20")
    assert runner.counts("SIZES") == [100, 20]


def test_figures_that_can_not_be_read_are_told_before_any_is_made_and_left_as_they_are(
    made, monkeypatch, capsys
):
    figures_file(made).write_text("{")
    assert command_line(monkeypatch, made, "timer") == 2
    told = capsys.readouterr().err
    assert "figures.json: not JSON, perhaps cut off" in told and "move it away" in told
    with pytest.raises(ResultError, match="not JSON"):
        store_figure(made, "timer", made_figure())
    assert figures_file(made).read_text() == "{"


@pytest.mark.usefixtures("processes")
def test_what_a_failed_command_said_last_is_the_reason():
    failing = [sys.executable, "-c", "import sys; sys.exit('line one\\nno such device')"]
    with pytest.raises(subprocess.CalledProcessError) as caught:
        subprocess.run(failing, check=True, capture_output=True)
    assert runner.reason(caught.value) == "a command ended with 1: no such device"


def set_in(*path, value):
    def change(content):
        *parents, last = path
        for key in parents:
            content = content[key]
        content[last] = value

    return change


STEP = ("figures", "timer", "numbers", 0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (set_in("schema_version", value=2), "schema_version is 2, this perfkit reads 1"),
        (set_in("schema_version", value=0), "written by an older one"),
        (set_in("figures", value={}), "figures: Dictionary should have at least 1 item"),
        (set_in(*STEP, "value", value=1.0), "do not follow from the runs"),
        (set_in(*STEP, "n", value=30), "do not follow from the runs"),
        (set_in(*STEP, "values", value=[]), "either values, or pairs, or hits"),
        (set_in(*STEP, "values", 0, value="1"), "values.0: Input should be a valid number"),
        (set_in(*STEP, "value", value=float("nan")), "finite number"),
        (set_in("figures", "ratio", "numbers", 0, "pairs", 0, value=[1, 0]), "greater than 0"),
        (set_in("figures", "ratio", "numbers", 1, "hits", value=7), "more hits than trials"),
        (set_in("figures", "ratio", "numbers", 1, "n", value=10**400), "less than or equal"),
        (set_in(*STEP, "values", value=[1.0] * 401), "at most 400 items"),
        (set_in("figures", "timer", "failure", value="x"), "either numbers or a failure"),
        (set_in("figures", "timer", "created", value="2026-01-01T00:00:00"), "timezone"),
        (set_in("figures", "timer", "more", value=1), "Extra inputs are not permitted"),
    ],
)
def test_figures_that_are_not_as_they_should_be_are_refused_by_name(made, change, told):
    spoil(made, change)
    with pytest.raises(ResultError, match=re.escape(told)) as error:
        read_figures(made)
    assert "figures.json: " in str(error.value)


@pytest.mark.usefixtures("without_summary")
def test_the_site_has_a_page_of_the_figures_in_every_language_and_the_index_links_it(made):
    told = []
    _index, left_out = write_site(made, told.append)
    assert left_out == [] and sum(told) == parts(made)
    for language in LANGUAGES:
        name = file_name("report", language)
        index = (made / file_name("index", language)).read_text()
        assert f'<a href="bench/{name}">' in index
        text = page(made, language)
        for shown in ("2.000", "1.500", "RuntimeError: the disk is gone", "2.000 / 1.000"):
            assert shown in text, shown
        for link in re.findall(r'href="([^"#]+)"', text):
            assert (made / "bench" / link).exists(), link
    assert "perfkit 自身的指标" in page(made, "zh")
    publish_bench(made)
    assert nbformat.read(made / "bench" / "notebook.ipynb", 4).cells


def test_without_figures_the_index_links_none(tmp_path):
    assert "bench/" not in write_index(tmp_path).read_text()


@pytest.mark.usefixtures("without_summary")
def test_figures_that_can_not_be_read_are_named_on_the_index_and_the_rest_is_there(made):
    stored(made / "good")
    publish_bench(made)
    figures_file(made).write_text('{"schema_version": 1, "figures"')
    _index, left_out = write_site(made, print)
    assert [line.partition(", ")[0] for line in left_out] == ["bench/figures.json: not JSON"]
    index = unescape((made / "index.html").read_text())
    assert index.count("bench/figures.json: not JSON, perhaps cut off") == 1
    assert "good/report.html" in index
    for language in LANGUAGES:
        assert "bench/figures.json: not JSON" in page(made, language)


@pytest.mark.usefixtures("without_summary")
def test_a_page_of_figures_that_can_not_be_written_is_named(made, monkeypatch):
    def stumble(_outputs):
        raise TypeError("nobody thought of this")

    monkeypatch.setitem(FACTS, "bench", stumble)
    _index, left_out = write_site(made, print)
    assert left_out == [
        "bench: its page could not be written (TypeError: nobody thought of this)"
    ]


def test_foreign_text_in_figures_is_escaped(made):
    def hostile(content):
        figures = content["figures"]
        for name in [*figures]:
            figure = figures[HOSTILE + name] = figures.pop(name)
            figure |= {"about": HOSTILE, "command": HOSTILE}
            if figure["failure"]:
                figure["failure"] = HOSTILE
            for number in figure["numbers"]:
                number |= {"name": HOSTILE, "unit": HOSTILE}
            for fact in figure["environment"]:
                figure["environment"][fact] = {"value": HOSTILE + name, "missing": None}
            figure["environment"][HOSTILE] = {"value": None, "missing": HOSTILE}

    spoil(made, hostile)
    publish_bench(made)
    for language in LANGUAGES:
        text = (made / "bench" / file_name("report", language)).read_text()
        assert text.count("<script") == 1 and "<img" not in text
        assert "&lt;script&gt;" in text


def test_a_figure_of_another_environment_names_what_differs(made):
    assert "Other than below" not in page_of(made)
    fact = ("figures", "timer", "environment", "paddle", "value")
    spoil(made, set_in(*fact, value="2.6.2"))
    assert "Other than below: paddle 2.6.2" in " ".join(page_of(made).split())


def page_of(outputs):
    publish_bench(outputs)
    return page(outputs)


def test_a_dot_plot_has_a_dot_for_each_run_and_a_line_where_both_sides_are_equal():
    pairs = [(0.9, 1.0), (1.2, 1.0), (1.0, 1.0)]
    (axes,) = run_plot([Number.of_pairs("one / other", pairs, "images/s")]).axes
    ratios = [[*line.get_xdata()] for line in axes.lines]
    assert [0.9, 1.2, 1.0] in ratios and [1, 1] in ratios
    values = Number.of_values("far", [4.0, 4.0, 8.0], "s")
    (axes,) = run_plot([values]).axes
    assert [1.0, 1.0, 2.0] in [[*line.get_xdata()] for line in axes.lines]
    assert (
        run_plot([Number.of_trials("named", 5, 6), Number.of_values("x", [1.0], "s")]) is None
    )


@pytest.mark.usefixtures("processes")
def test_the_bench_notebook_runs_as_papermill_runs_it(made, tmp_path):
    source = ROOT / "notebooks" / "bench.ipynb"
    out = tmp_path / "out.ipynb"
    command = [sys.executable, "-m", "papermill", source, out, "-p", "outputs_dir", made]
    done = subprocess.run(
        [*map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = out.read_text()
    assert "one / other" in shown and (made / "bench" / "report.zh.html").exists()


def test_without_figures_the_notebooks_error_says_what_makes_them(tmp_path):
    with pytest.raises(ResultError, match="make them: make bench"):
        bench_figures(tmp_path)
