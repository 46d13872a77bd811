"""The scripts in examples/, as a user runs them."""

import os
import subprocess
import sys

import pytest
from conftest import as_options, cli

import perfkit
from perfkit.measuring.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("processes")]

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SMALL = {
    "gpt_torch": "--steps 5 --batch-size 2 --width 32 --evaluate-every 2",
    "huggingface": "--max_steps 5 --per_device_train_batch_size 2",
    "resnet_paddle": "--steps 20 --batch-size 2",
}
"""Arguments with which an example trains for a few steps."""


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_trains_without_perfkit_run_and_tells_its_throughput(script, tmp_path):
    command = [sys.executable, str(script), *SMALL[script.stem].split()]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout
    assert "/s of this process in the last" in done.stderr
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("name", "processes", "unit"),
    [("gpt_torch", 1, "tokens"), ("huggingface", 2, "tokens"), ("resnet_paddle", 2, "images")],
)
def test_an_example_is_measured(name, processes, unit, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    options = {"outputs_dir": tmp_path, "processes": processes, "repeats": 1}
    options |= {"device": "cpu", "warmup_steps": 1, "measured_steps": 2, "measured_seconds": 0}
    script = ROOT / "examples" / f"{name}.py"
    printed = cli("run", script, *as_options(options), "--", *SMALL[name].split())
    assert printed.exit_code == 0, printed.output
    (row,) = perfkit.load(tmp_path).to_dict("records")
    assert row["status"] == "complete"
    assert row["unit"] == f"{unit}/s"
    assert row["throughput"] > 0
