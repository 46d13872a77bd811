"""perfkit's own benchmarks: every figure runs, is stored and shown on a page."""

import importlib
import json
import os
import re
import subprocess
import sys
from html import unescape

import figures
import fuzz
import page
import pytest
import runner
from stored import Number, figures_file, read_figures

from perfkit.config import ROOT
from perfkit.inputs.samples import make_images
from perfkit.report.site import write_index
from perfkit.results.store import ResultError
from perfkit.text.language import LANGUAGES, file_name

SCRIPT = ROOT / "benchmarks" / "figures.py"
SMALLEST = {"PAIRS": "1", "SIZES": "5", "COUNTS": "1", "MEASUREMENTS": "2", "PIXELS": "32"}
CPU = '"cpu": {\n     "value": "'
HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">&"\''


def timer():
    """The cost of a step,
    described in two lines."""
    return [Number.of_values("each step", [1.0, 2.0, 4.0], "µs")]


def ratio():
    pairs = Number.of_pairs("a / b", [(2.0, 1.0), (3.0, 2.0), (4.0, 4.0)], "images/s")
    return [pairs, Number.of_trials("it was named", 5, 6)]


def falls():
    raise RuntimeError("the disk is gone")


def interrupts():
    raise KeyboardInterrupt


@pytest.fixture
def made(tmp_path):
    """An outputs folder with two figures and a failed one."""
    assert [runner.run(figure, tmp_path) for figure in (timer, ratio, falls)] == [1, 1, 0]
    return tmp_path


def start(monkeypatch, outputs, *names, known=(falls, timer, ratio)):
    """Run figures of this file as the script does and return the exit status."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *names, "--outputs", str(outputs)])
    with pytest.raises(SystemExit) as exited:
        runner.main(dict.fromkeys(known, 1))
    return exited.value.code


def shown(outputs):
    return unescape((outputs / "bench" / "report.html").read_text())


def replace_once(outputs, old, new):
    """Replace the first occurrence of `old` in the stored file."""
    figures_file(outputs).write_text(figures_file(outputs).read_text().replace(old, new, 1))


SLOW = [pytest.param(f.__name__, marks=pytest.mark.slow) for f in figures.FIGURES]


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("name", ["timer", *SLOW[1:]])
def test_every_benchmark_runs_at_its_smallest_size(name, tmp_path):
    list(make_images(tmp_path / "samples", 64))
    command = [sys.executable, SCRIPT, name, "--outputs", tmp_path]
    streams = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    variables = os.environ | SMALLEST | {"SAMPLES": str(tmp_path / "samples")}
    done = subprocess.run(command, env=variables, check=False, timeout=200, **streams)
    assert done.returncode == 0, done.stdout + done.stderr
    figure = read_figures(tmp_path)[name]
    assert figure.about and figure.numbers and figure.fact("python") and figure.seconds > 0
    assert re.fullmatch(rf"PAIRS=1 .*python benchmarks/figures.py {name}", figure.command)
    assert done.stdout.splitlines()[-1] == str(tmp_path / "bench" / "report.html")
    assert "bench/report.html" in (tmp_path / "index.html").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
@pytest.mark.timeout(300)
def test_a_kill_at_a_random_moment_leaves_nothing():
    """benchmarks/soak.py makes 200 kills by default."""
    mounted = ["unshare", "--mount", "sh", "-c"]
    mounted += ['mount -t tmpfs none /dev/shm && exec "$0" "$@"']
    command = [*mounted, sys.executable, "benchmarks/soak.py", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 kills in" in done.stdout


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("name", ["bare_gpt", "faults", "kills", "torch_variants"])
def test_the_other_scripts_import(name):
    importlib.import_module(name)


def test_numbers_are_stored_with_their_runs(made):
    stored = read_figures(made)
    (step,) = stored["timer"].numbers
    assert (step.value, step.interval, step.interval_level, step.n) == (2, (1, 4), 0.75, 3)
    ratio, share = stored["ratio"].numbers
    assert ratio.runs == [2.0, 1.5, 1.0] and ratio.value == 1.5 and ratio.interval == (1.0, 2.0)
    assert share.value == 5 / 6 and share.n == 6
    assert stored["timer"].about == "The cost of a step, described in two lines."


def test_a_failure_is_stored_and_the_other_benchmarks_run(tmp_path, monkeypatch, capsys):
    """Running a single figure replaces only its own entry."""
    assert start(monkeypatch, tmp_path) == "Failed: falls"
    before = read_figures(tmp_path)
    assert [*before] == ["falls", "timer", "ratio"] and before["timer"].failure is None
    assert before["falls"].failure == "RuntimeError: the disk is gone" in shown(tmp_path)
    assert "the disk is gone" in capsys.readouterr().err
    assert start(monkeypatch, tmp_path, "timer") == 0
    after = read_figures(tmp_path)
    assert [*after] == [*before] and after["timer"].created > before["timer"].created
    assert [after[name] == before[name] for name in after] == [True, False, True]


def test_an_interruption_keeps_finished_figures(tmp_path, monkeypatch):
    status = start(monkeypatch, tmp_path, known=(timer, interrupts, ratio))
    assert status == "Failed: interrupts (interrupted)"
    assert [*read_figures(tmp_path)] == ["timer"] and "each step" in shown(tmp_path)


def test_unknown_names_and_invalid_variables_are_rejected(tmp_path, capsys, monkeypatch):
    assert start(monkeypatch, tmp_path, "timr") == 2
    assert "no such figure: timr; there are: falls, timer, ratio" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
    monkeypatch.setenv("SIZES", "100 0")
    with pytest.raises(SystemExit, match="SIZES='100 0': must be integers of at least 1"):
        runner.counts("SIZES")


def test_an_unreadable_figures_file_is_rejected_and_kept(made, monkeypatch, capsys):
    figures_file(made).write_text("{")
    assert start(monkeypatch, made, "timer") == 2
    error = capsys.readouterr().err
    assert "figures.json: not JSON, perhaps cut off" in error and "move it away" in error
    assert not runner.run(timer, made) and "not stored: " in capsys.readouterr().out
    assert figures_file(made).read_text() == "{"


def test_the_last_line_of_a_failed_command_is_the_reason():
    error = subprocess.CalledProcessError(1, "x", stderr=b"line one\nno such device\n")
    assert runner.reason(error) == "a command ended with 1: no such device"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('_version": 1', '_version": 2', "schema_version is 2, this perfkit reads 1"),
        ("4.0\n", "NaN\n", "finite number"),
        ('"hits": null', '"hits": 1', "either n values, or n pairs, or hits"),
        ('"hits": 5', '"hits": 7', "or hits of n trials"),
        ('"n": 6', f'"n": {10**400}', "a whole number of over 16 digits"),
        ('"n": 6', f'"n": {10**12}', "less than or equal"),
        ('"failure": null', '"failure": "x"', "either numbers or a failure"),
        ('"seconds"', '"more": 1, "seconds"', "Extra inputs are not permitted"),
    ],
)
def test_malformed_figures_are_rejected_with_the_file_name(made, old, new, why):
    replace_once(made, old, new)
    with pytest.raises(ResultError, match=rf"figures\.json: .*{re.escape(why)}"):
        read_figures(made)


def test_statistics_are_recomputed_from_the_stored_runs(made):
    replace_once(made, '"value": 2.0', '"value": 1.0')
    assert read_figures(made)["timer"].numbers[0].value == 2.0


def test_index_and_page_link_only_existing_files(made):
    indexes = [made / file_name("index", language) for language in LANGUAGES]
    write_index(made)
    assert not any('href="bench/' in index.read_text() for index in indexes)
    page.write_page(made)
    write_index(made)
    assert all('<a href="bench/report.html">' in index.read_text() for index in indexes)
    for text in ("2.000", "1.500", "RuntimeError: the disk is gone", "2.000 / 1.000", "5 of 6"):
        assert text in shown(made), text
    links = [made / "bench" / link for link in re.findall(r'href="([^"#]+)"', shown(made))]
    assert figures_file(made) in links and [link for link in links if not link.exists()] == []


def test_foreign_text_is_escaped_and_another_environment_named(made):
    for text in ("The cost of", "images/s", "each step", "the disk", ".venv/bin"):
        replace_once(made, text, json.dumps(HOSTILE)[1:-1])
    replace_once(made, CPU, CPU + json.dumps(HOSTILE)[1:-1])
    page.write_page(made)
    text = (made / "bench" / "report.html").read_text()
    assert text.count("<script") == 1 and "<img" not in text and text.count("&lt;script") >= 6
    assert text.count("Environment differs") == text.count("below: CPU &lt;script") == 1


def test_the_dot_plot_has_every_run_and_a_line_at_equality():
    values = Number.of_values("far", [4.0, 4.0, 8.0], "s")
    (axes,) = page.run_plot([*ratio(), values]).axes
    runs = [[*line.get_xdata()] for line in axes.lines]
    assert [2.0, 1.5, 1.0] in runs and [1.0, 1.0, 2.0] in runs and [1, 1] in runs
    single = [Number.of_trials("named", 5, 6), Number.of_values("x", [1.0], "s")]
    assert page.run_plot(single) is None


@pytest.mark.slow
@pytest.mark.parametrize(("target", "most"), [("result", 60), ("raw", 40), ("parameters", 300)])
def test_corrupted_files_cause_no_crash_without_a_message_and_no_hang(target, most):
    tried, findings, _count = fuzz.fuzz(target, 120, 7, most)
    assert tried and findings == []
