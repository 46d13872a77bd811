"""perfkit's own benchmarks: every figure runs and is stored; kills and corrupted files."""

import importlib
import json
import os
import subprocess
import sys

import fuzz
import pytest
import runner

from perfkit.core.inputs.samples import make_images
from perfkit.core.paths import ROOT

SCRIPT = ROOT / "benchmarks" / "figures.py"
SMALLEST = {"PAIRS": "1", "SIZES": "5", "COUNTS": "1", "MEASUREMENTS": "2", "PIXELS": "32"}


def ratio():
    pairs = runner.of_pairs("a / b", [(2.0, 1.0), (3.0, 2.0), (4.0, 4.0)], "images/s")
    return [pairs, runner.of_trials("it was named", [True] * 5 + [False])]


def falls():
    raise RuntimeError("the disk is gone")


SLOW = ["script", "watcher", "driver", "driver_overhead", "overhead", "inputs", "merging"]
"""The other figures take half a minute and more at their smallest size: PAIRS=1 make bench."""


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    "name", ["timer", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_benchmark_runs_at_its_smallest_size(name, tmp_path):
    list(make_images(tmp_path / "samples", 64))
    command = [sys.executable, SCRIPT, name, "--outputs", tmp_path]
    variables = os.environ | SMALLEST | {"SAMPLES": str(tmp_path / "samples")}
    streams = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(command, env=variables, check=False, timeout=200, **streams)
    assert done.returncode == 0, done.stdout + done.stderr
    figure = json.loads((tmp_path / "bench.json").read_text())[name]
    assert figure["environment"]["python"]
    assert figure["variables"]["PAIRS"] == "1"
    for number in figure["numbers"]:
        assert f"{number['name']}: {number['value']:.4g}" in done.stdout
        assert number["runs"]


def test_a_failure_is_reported_and_the_other_benchmarks_are_stored(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--outputs", str(tmp_path)])
    (tmp_path / "bench.json").write_text('{"earlier": 1}')
    with pytest.raises(SystemExit, match="Failed: falls"):
        runner.main({falls: 1, ratio: 1})
    stored = json.loads((tmp_path / "bench.json").read_text())
    assert [*stored] == ["earlier", "ratio"]
    pairs, share = stored["ratio"]["numbers"]
    assert pairs["value"] == 1.5
    assert pairs["interval"] == [1.0, 2.0, 0.75]
    assert pairs["runs"] == [[2.0, 1.0], [3.0, 2.0], [4.0, 4.0]]
    assert share["value"] == 5 / 6
    written = capsys.readouterr()
    assert "the disk is gone" in written.err
    assert "a / b: 1.5 (medians 3 and 2 images/s), n=3; 75.0% interval 1 to 2" in written.out


def test_unknown_names_unreadable_files_and_invalid_variables_are_rejected(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "timr", "--outputs", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        runner.main({falls: 1, ratio: 1})
    assert "no such figure: timr; there are: falls, ratio" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
    (tmp_path / "bench.json").write_text('{"earlier"')
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "falls", "--outputs", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        runner.main({falls: 1, ratio: 1})
    assert "bench.json: Expecting ':' delimiter" in capsys.readouterr().err
    monkeypatch.setenv("SIZES", "100 0")
    with pytest.raises(SystemExit, match="SIZES='100 0': must be integers"):
        runner.counts("SIZES")


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_a_kill_of_each_kind_of_process_leaves_nothing():
    """benchmarks/soak.py makes 200 kills by default."""
    mount = 'mount -t tmpfs none /dev/shm && exec "$0" "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount]
    each_kind_once = "0"
    command += [sys.executable, "benchmarks/soak.py", "4", each_kind_once]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 kills in" in done.stdout
    for process in ("driver", "supervisor", "launcher", "worker"):
        assert f"'{process}': 1" in done.stdout


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("name", ["bare_decoders", "faults", "kills"])
def test_the_other_scripts_import(name):
    importlib.import_module(name)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "most"), [("result", 60), ("raw", 40), ("parameters", 300)])
def test_corrupted_files_cause_no_crash_without_a_message_and_no_hang(target, most):
    tried, findings, _count = fuzz.fuzz(target, 120, 7, most)
    assert tried
    assert findings == []
