"""The checks of `make gpu` on made-up facts, and the probes that run without a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pynvml
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "gpu"))
import checks  # noqa: E402
import probes  # noqa: E402
import run  # noqa: E402

from perfkit.frameworks.base import CpuDevice  # noqa: E402
from perfkit.worker.loop import train  # noqa: E402

GIB = 2**30
PEAK = {"matmul_flops_per_second": 7.9e14, "copy_bytes_per_second": 3.0e12}
H100 = {"flops_per_second": 9.895e14, "bytes_per_second": 3.35e12}


def card(name="NVIDIA H100 80GB HBM3", gib=80.0):
    return {"name": name, "bytes": int(gib * GIB)}


def rates(matmul=1.0, copy=1.0):
    flops, size = PEAK.values()
    return {"peaks": [PEAK, dict(zip(PEAK, (flops * matmul, size * copy), strict=True))]}


def training(precision="fp32", **changes):
    return {
        "effective": {"precision": precision, "tf32": False},
        "places": [["cuda:0", 4096]] * 4,
        "synchronized": "",
        "losses": [7.0 - step / 10 for step in range(13)],
        "device_seconds": 1.0,
        "host_seconds": 1.001,
        "step_seconds": 0.1,
    } | changes


def lost(at, share):
    losses = training()["losses"]
    losses[at] *= 1 + share
    return losses


def identity(**framework):
    return {"identity": {"nvml": card(), "framework": card(**framework)}}


def parts(forward, backward=0.6, optimizer=0.1):
    step = {"step": 1.0, "forward": forward}
    return {"parts": step | {"backward": backward, "optimizer": optimizer}}


def overflow(steps=12, skipped=1, finite=161, of=161):
    return {"steps": steps, "skipped_steps": skipped, "finite": finite, "of": of}


def whole(*throughputs, status="complete", share=0.07):
    found = {"status": status, "failure": None if throughputs else "out_of_memory"}
    return found | {"throughputs": [*throughputs], "share_of_datasheet": share}


def after(failure="out_of_memory", processes=0, kept_bytes=0):
    return {"failure": failure, "processes": processes, "kept_bytes": kept_bytes}


def events(passed_at_once=False, device_seconds=0.99):
    seen = {"passed_at_once": passed_at_once, "device_seconds": device_seconds}
    return {"events": seen | {"host_seconds": 1.0}}


def energy(joules):
    return {"energy": {"joules": joules, "seconds": 1.0}}


TF32 = {"peaks": [{**PEAK, "matmul_flops_per_second": 2.5e15}]}
WITH_TF32 = {"effective": {"precision": "fp32", "tf32": True}}
PASSING = [
    (checks.identity, identity(gib=79.1)),
    (checks.energy, energy(650.0)),
    (checks.not_passed, events()),
    (checks.events, events()),
    (checks.window, training(), training()),
    (checks.no_synchronization, training(), training()),
    (checks.batches_stay, training()),
    (checks.precisions, training(), training("amp"), training("bf16")),
    (checks.tf32, rates(), TF32),
    (checks.overflow, overflow()),
    (checks.losses, training(), training(losses=lost(10, 0.04))),
    (checks.repeatable, rates(1.02, 0.98)),
    (checks.plausible, rates() | {"sheet": H100}),
    (checks.plausible, rates() | {"sheet": None}),
    (checks.static, training(), training(step_seconds=0.08)),
    (checks.parts, parts(0.3)),
    (checks.trained, training()),
    (checks.dali, {"difference": 0.03, "held_batch_changed": False}),
    (checks.measurement, whole(2600.0, 2610.0, 2620.0)),
    (checks.out_of_memory, after()),
    (checks.killed, after(kept_bytes=-5) | {"seconds": 2.0}),
]
FAILING = [
    ("different", checks.identity, identity(name="A100")),
    ("memory", checks.identity, identity(gib=40)),
    ("W", checks.energy, energy(0.0)),
    ("still queued", checks.not_passed, events(passed_at_once=True)),
    ("2%", checks.events, events(device_seconds=0.9)),
    ("2%", checks.window, training(), training(device_seconds=0.5)),
    ("sync", checks.no_synchronization, training(), training(synchronized="called a sync")),
    ("not on the GPU", checks.batches_stay, training(places=[["cpu", 1]] * 4)),
    ("copied again", checks.batches_stay, training(places=[["cuda:0", 1], ["cuda:0", 2]])),
    ("expected fp32", checks.precisions, training(), training("fp32"), training("bf16")),
    ("without TF32", checks.precisions, training(**WITH_TF32), training("amp")),
    ("over 3 times", checks.tf32, rates(), rates()),
    ("not finite", checks.overflow, overflow(finite=160)),
    ("skipped step", checks.overflow, overflow(skipped=0)),
    ("skipped step", checks.overflow, overflow(skipped=12)),
    ("5%", checks.losses, training(), training(losses=lost(10, 0.06))),
    ("5%", checks.losses, training(), training(losses=lost(10, float("nan")))),
    ("fewer than 10", checks.losses, training(), training(losses=[7.0] * 9)),
    ("3%", checks.repeatable, rates(0.9)),
    ("3%", checks.repeatable, rates(1, 1.1)),
    ("matmul", checks.plausible, rates(1.5) | {"sheet": H100}),
    ("copy", checks.plausible, rates(1, 2) | {"sheet": H100}),
    ("5%", checks.static, training(), training(losses=lost(10, 0.2))),
    ("1.1 steps", checks.parts, parts(0.6, 1.2, 0.2)),
    ("no such part", checks.parts, parts(None)),
    ("did not fall", checks.trained, training(losses=[7.0, 7.1])),
    ("0.15", checks.dali, {"difference": 1.1, "held_batch_changed": False}),
    ("changed", checks.dali, {"difference": 0.01, "held_batch_changed": True}),
    ("failed", checks.measurement, whole(status="failed")),
    ("3%", checks.measurement, whole(1.0, 2.0, 3.0, share=None)),
    ("out_of_memory", checks.out_of_memory, after("worker_error")),
    ("processes are left", checks.out_of_memory, after(processes=1)),
    ("memory is in use", checks.killed, after(kept_bytes=GIB) | {"seconds": 15.1}),
]


@pytest.mark.parametrize(("judge", "facts"), [(judge, facts) for judge, *facts in PASSING])
def test_facts_of_a_working_gpu_pass(judge, facts):
    wrong, seen = judge(*facts)
    assert (wrong, bool(seen)) == ("", True)


@pytest.mark.parametrize(("why", "judge", "facts"), [(w, j, facts) for w, j, *facts in FAILING])
def test_facts_of_a_faulty_gpu_are_reported(why, judge, facts):
    wrong, seen = judge(*facts)
    assert why in wrong
    assert seen


def test_every_check_is_tested_both_ways_and_every_probe_used():
    judges = {check.judge for check in checks.CHECKS}
    assert judges == {judge for judge, *_ in PASSING} == {judge for _, judge, *_ in FAILING}
    needed = {name for check in checks.CHECKS for name in check.needs}
    assert {*run.PROBES} <= needed
    assert needed - {*run.PROBES} == {"out of memory", "killed", "measurement"}


def test_an_unreported_fact_is_no_success():
    with pytest.raises(checks.NotCheckedError, match="PyTorch alone"):
        checks.no_synchronization(training(synchronized=None))


class FakeMachine:
    """Has probes that succeed, fail and crash."""

    framework, device = "torch", "gpu"

    def __init__(self, folder):
        self.folder, self.requested = folder, []

    def facts(self, name):
        self.requested.append(name)
        if name == "dali":
            raise checks.NotCheckedError("DALI is not installed")
        if name == "bert":
            raise run.ProbeError("ended with status -11: <b>Segmentation fault</b>")
        return {"fp32": training(), "amp": training("amp"), "bf16": training("bf16")}[name]


def test_each_check_has_a_line_and_a_row_even_if_its_probe_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run.gpus, "visible_names", lambda: ["H100 & co, 80 GiB"])
    wanted = ("precision and TF32 are as asked", "BERT trains", "DALI gives its CPU")
    chosen = tuple(c for c in run.CHECKS if c.name.startswith(wanted))
    monkeypatch.setattr(run, "CHECKS", (*chosen, chosen[0]))
    machine = FakeMachine(tmp_path)
    rows = run.run(machine)
    assert [row["state"] for row in rows] == ["passed", "failed", "skipped", "passed"]
    # A probe needed by several checks runs once.
    assert machine.requested == ["fp32", "amp", "bf16", "bert", "dali"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("failed  BERT trains: ProbeError: ended with status -11")
    stored = json.loads((tmp_path / "report.json").read_text())
    assert stored["checks"] == rows
    assert {*stored["facts"]} == {"fp32", "amp", "bf16"}
    page = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;Segmentation" in page and "<b>" not in page and "H100 &amp; co" in page
    assert "dry run" not in page


def command(*words, **named):
    words = [sys.executable, str(HERE / "gpu" / "run.py"), *words]
    return subprocess.run(words, capture_output=True, text=True, check=False, **named)


@pytest.mark.usefixtures("processes")
def test_without_a_gpu_the_checks_are_skipped_with_a_reason():
    done = command(timeout=60, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    assert (done.returncode, done.stdout) == (0, "skipped: NVML shows no GPU here\n")


IMPORTED = "annotated_types filelock h5py numpy PIL psutil pydantic pydantic_core pynvml rich"
IMPORTED += " typing_extensions typing_inspection"
"""Packages that a GPU machine has with PyTorch and torchvision, or that are copied to it."""


@pytest.mark.usefixtures("processes")
def test_the_checks_import_only_a_few_installed_packages():
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import run, perfkit
values = {"device": "cpu", "framework": "torch", "input": "synthetic"}
perfkit.plan("resnet50", values), perfkit.measure
import perfkit.worker.rank, perfkit.driver.supervisor
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
found = {name.partition(".")[0] for name, file in files.items() if "site-packages" in str(file)}
print(*sorted(found))
"""
    found = subprocess.check_output(
        [sys.executable, "-c", code, str(HERE / "gpu")], text=True, timeout=120
    ).split()
    own = {name for name in found if "perfkit" in name or name == "_distutils_hack"}
    assert {*found} - own == {*IMPORTED.split()}


@pytest.fixture
def machine(tmp_path):
    return run.Machine("torch", "cpu", tmp_path)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("name", ["fp32", "overflow", "device"])
def test_a_cpu_probe_has_the_facts_of_its_checks(machine, name):
    pytest.importorskip("torch")
    facts = machine.facts(name)
    for check in checks.CHECKS:
        if check.needs == (name,) and check.on_cpu:
            assert check.judge(facts)[0] == "", check.name
    if name == "fp32":
        assert checks.trained(facts)[0] == ""
        assert facts["places"] == [facts["places"][0]] * 4
        assert facts["places"][0][0] == "cpu"
        assert "not on the GPU" in checks.batches_stay(facts)[0]


@pytest.mark.usefixtures("processes")
def test_a_failed_probe_is_reported_with_its_last_line(machine, monkeypatch):
    monkeypatch.setitem(run.PROBES, "fp32", ("no such task", {}))
    with pytest.raises(run.ProbeError, match="ended with status 1: KeyError: 'no such task'"):
        machine.facts("fp32")


@pytest.mark.usefixtures("processes")
def test_remaining_processes_are_detected(machine, monkeypatch):
    monkeypatch.setattr(run, "SECONDS_TO_END", 0.5)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as staying:
        found = machine.left_over(0, [psutil.Process(staying.pid)])
        assert found["processes"] == 1
        assert "processes are left" in checks.killed(found)[0]
        staying.kill()
    assert machine.left_over(0, [])["processes"] == 0


@pytest.mark.usefixtures("processes")
@pytest.mark.slow
def test_a_killed_driver_leaves_no_process(machine):
    pytest.importorskip("torch")
    found = machine.killed()
    assert checks.killed(found)[0] == ""


def test_freeing_memory_is_waited_for(machine, monkeypatch):
    used = iter([9 * GIB, 5 * GIB, 0])
    monkeypatch.setattr(run.Machine, "used_bytes", lambda _self: next(used))
    assert machine.left_over(0, [])["kept_bytes"] == 0


def test_losses_are_read_while_synchronizations_are_allowed():
    """Runs the training loop itself, because the watching relies on its order of calls."""
    mode = ["default"]
    torch = SimpleNamespace(cuda=SimpleNamespace(set_sync_debug_mode=mode.append))
    seen = {"loss": set(), "update": []}

    class Loss(float):
        def __float__(self):
            seen["loss"].add(mode[-1])
            return 1.0

    trainer = SimpleNamespace(
        backward=lambda _batch, *, sync_gradients: Loss(1),
        update=lambda: seen["update"].append(mode[-1]),
    )
    train(
        trainer,
        iter([()] * 9),
        probes.Watched(CpuDevice(), torch),
        lambda *_events: None,
        samples_per_step=1,
        accumulate=1,
        warmup_steps=3,
        measured_steps=4,
        read_losses_at_once=False,
    )
    assert seen["loss"] == {"default"}
    assert seen["update"] == ["default"] * 3 + ["error"] * 4
    assert mode[-1] == "default"


def test_the_energy_is_nvmls_figure_of_the_first_gpu(monkeypatch):
    nvml = {"Init": None, "Shutdown": None, "DeviceGetCount": 1, "DeviceGetUUID": "GPU-0"}
    nvml |= {"DeviceGetHandleByIndex": 7, "DeviceGetTotalEnergyConsumption": 5500}
    for name, value in nvml.items():
        monkeypatch.setattr(pynvml, f"nvml{name}", lambda *_, value=value: value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert probes.joules() == 5.5
