"""A script of the user's from the command line, in papermill and in a sweep: the same
measurement, with relative paths from the working directory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.measuring.paths import ROOT
from perfkit.measuring.results.store import Measurement

pytestmark = pytest.mark.slow
SCRIPT = """
import sys
from pathlib import Path

import torch
import perfkit
from net import WIDTH

print("arguments:", sys.argv[1:], "in", Path.cwd().name)
torch.set_num_threads(1)
weights = torch.zeros(WIDTH, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.01)
timer = perfkit.StepTimer(samples_per_step=4, unit="images")
while True:
    loss = (weights - 1).pow(2).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    timer.step(loss)
"""
REQUEST = {"device": "cpu", "warmup_steps": 1, "measured_steps": 2}
REQUEST |= {"measured_seconds": 0, "repeats": 1}
OPTIONS = [word for name, value in REQUEST.items() for word in ("-p", name, str(value))]
PERFKIT = str(Path(sys.executable).parent / "perfkit")
ARGUMENTS = ["--name", "a b", "-p", "x=1", "$HOME"]
QUOTED = "--name 'a b' -p x=1 '$HOME'"


@pytest.fixture(scope="module")
def folder(processes, tmp_path_factory):
    """A working directory of the user's, whose folder `project` has the script."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "project").mkdir()
    (folder / "project/train.py").write_text(SCRIPT)
    (folder / "project/net.py").write_text("WIDTH = 8\n")
    return folder


def run(folder, *words):
    pipes = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run([*map(str, words)], cwd=folder, check=False, **pipes)


@pytest.fixture(scope="module")
def ran(folder):
    """`perfkit run` of the script: what it printed, and the measurement."""
    done = run(folder, PERFKIT, "run", "project/train.py", *OPTIONS, "--", *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    return done, Measurement.read(Path(done.stdout.strip()).parent)


def measurements(folder):
    return sorted(path.parent.name for path in (folder / "outputs").glob("*/result.json"))


def test_perfkit_run_measures_a_script_with_its_arguments(folder, ran):
    done, measurement = ran
    assert measurement.folder.parent == folder / "outputs"
    assert measurement.folder.name.startswith("train-torch-1x1-cpu-quick-")
    result = measurement.result
    assert result.status == "complete"
    assert result.config.work.arguments == QUOTED
    assert result.config.work.modules == ["net"]
    assert result.throughput.unit == "images/s"
    assert "images/s, median of n=1" in done.stderr
    logs = "".join(path.read_text() for path in measurement.log_files())
    assert f"arguments: {ARGUMENTS} in {folder.name}" in logs


def test_papermill_finds_the_same_measurement(folder, ran):
    notebook = ROOT / "notebooks/script.ipynb"
    papermill = [sys.executable, "-m", "papermill", notebook, "executed.ipynb", *OPTIONS]
    script = ["-p", "script", "project/train.py", "-p", "arguments", QUOTED]
    done = run(folder, *papermill, *script)
    assert done.returncode == 0, done.stderr
    assert measurements(folder) == [ran[1].folder.name]


def test_a_sweep_keeps_what_is_measured_and_measures_the_other_arguments(folder, ran):
    content = {"notebook": "script", "parameters": {"script": "project/train.py", **REQUEST}}
    content["matrix"] = {"arguments": [QUOTED, ""]}
    (folder / "sweep.yaml").write_text(json.dumps(content))
    done = run(folder, PERFKIT, "sweep", "sweep.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(folder / "outputs/index.html")
    first, second = measurements(folder)
    assert ran[1].folder.name in (first, second)
    (other,) = {first, second} - {ran[1].folder.name}
    logs = Measurement.read(folder / "outputs" / other).log_files()
    assert f"arguments: [] in {folder.name}" in "".join(log.read_text() for log in logs)
    rows = json.loads((folder / "outputs/results.json").read_text())
    assert sorted(row["arguments"] for row in rows) == ["", QUOTED]
