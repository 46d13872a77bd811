"""Faults of the machine around a measurement: what was measured stays, nothing else counts."""

import errno
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from conftest import as_options
from fake_trainer import launcher_command, planted

import perfkit
from perfkit.numbers import disagreements
from perfkit.report import publish
from perfkit.results import Measurement

REPEATS = 2


@pytest.fixture
def fake_measure(measure, monkeypatch):
    """Measure two repeats of a fake trainer; perfkit's own worker writes them."""
    monkeypatch.setattr("perfkit.launch.launcher_command", launcher_command(0.1))

    def run(outputs, **changes):
        return measure(
            input="synthetic",
            repeats=REPEATS,
            measured_steps=60,
            outputs_dir=str(outputs),
            **changes,
        )

    return run


def perfkit_run(model, request):
    """`perfkit run`, to its end."""
    command = [Path(sys.executable).with_name("perfkit"), "run", model, *as_options(request)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def contents(folder):
    """Path below `folder` -> bytes, of all files."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def outcome(measure, outputs):
    """How a measurement ended that may have come to the end of the disk: refused, with an
    OSError raised, or its status."""
    try:
        measured = measure(outputs)
    except perfkit.RequestError as refused:
        assert "No space left on device" in str(refused)
        return "refused"
    except OSError as error:
        assert error.errno == errno.ENOSPC
        return "raised"
    result = measured.result
    if result.status == "complete":
        assert result.failure is None
        assert len(result.complete_repeats) == REPEATS
        assert disagreements(measured) == []
        logs = {path.name for path in (measured.folder / "logs").iterdir()}
        assert logs == {f"{k}-launcher.log" for k in range(1, REPEATS + 1)}
    else:
        assert result.failure.code == "disk_full"
    return result.status


@pytest.mark.parametrize("what", ["pages", "files"])
def test_a_disk_full_at_any_write_of_a_measurement_is_told_and_costs_nothing_else(
    fake_measure, disk, what
):
    outputs = disk.path / "outputs"
    earlier = fake_measure(outputs, label="earlier").folder
    kept = contents(earlier)
    seen = []
    while "complete" not in seen:
        disk.leave(**{what: len(seen)})
        seen.append(outcome(fake_measure, outputs))
        assert contents(earlier) == kept
        assert not list(outputs.rglob("*.partial"))
        frame = perfkit.load(outputs)
        assert frame.attrs["unreadable"] == []
        statuses = dict(zip(frame["label"], frame["status"], strict=True))
        assert statuses in ({"earlier": "complete"}, {"earlier": "complete", "": seen[-1]})
        if seen[-1] == "partial":
            disk.leave()
            assert outcome(fake_measure, outputs) == "complete"
        for folder in {*outputs.iterdir()} - {earlier}:
            shutil.rmtree(folder)
    print(seen)
    assert {"raised", "failed", "partial"} < {*seen}


def test_a_disk_full_at_any_write_of_a_page_leaves_the_old_one_or_the_new(fake_measure, disk):
    measurement = fake_measure(disk.path / "outputs")
    outputs = measurement.folder.parent
    before, written = contents(outputs), []
    for pages in count():
        disk.leave(pages=pages)
        try:
            publish(measurement)
            break
        except OSError as error:
            assert error.errno == errno.ENOSPC
        now = contents(outputs)
        assert now.items() >= before.items()
        new = now.keys() - before.keys()
        assert all(now[name].endswith(b"</html>") for name in new if name.endswith("html"))
        assert not list(outputs.rglob("*.partial"))
        written.append(len(new))
        for name in new:
            (outputs / name).unlink()
    assert {*written} == {*range(7)}
    assert len(contents(outputs)) == len(before) + 7


@pytest.mark.parametrize("pages", [0, 30])
def test_perfkit_run_on_a_full_disk_ends_with_1_and_says_so(small, plant, disk, pages):
    plant(planted(0.1))
    outputs = disk.path / "outputs"
    outputs.mkdir()
    disk.leave(pages=pages)
    request = small(input="synthetic", outputs_dir=str(outputs))
    done = perfkit_run("resnet50", request)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    disk.leave()
    done = perfkit_run("resnet50", request)
    assert done.returncode == 0, done.stderr
    (path,) = outputs.glob("*/result.json")
    assert Measurement.read(path.parent).result.status == "complete"
