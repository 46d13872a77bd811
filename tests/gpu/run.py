"""Checks this machine's GPU and perfkit on it: `make gpu`, within eight minutes.

Prints a line per check and writes facts and verdicts to outputs/gpu-check/report.html and
report.json. Each probe runs in a separate process, so that a crash affects only its own checks.
Needs neither network nor papermill. Exit status: 0 all checks passed or there is no GPU; 1 a
check failed.

`--device cpu` runs the same probes on a CPU, which tests this program only.
"""

import argparse
import html
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

try:
    import psutil
    import pynvml
    from checks import CHECKS, SECONDS_TO_END, Facts, NotCheckedError

    import perfkit
    from perfkit.analysis.utilization import datasheet, datasheet_of, share_of_datasheet
    from perfkit.driver.workers import with_dali_settings, worker_environment
    from perfkit.frameworks import FRAMEWORKS
    from perfkit.frameworks.base import NodeRank
    from perfkit.request.resolve import resolve
    from perfkit.results.store import write_atomically
    from perfkit.system import gpus
    from perfkit.system.environment import usable_cores
    from perfkit.system.software import find_version
except ModuleNotFoundError as error:
    sys.exit(f"{error}: docs/backends.md lists what the GPU check needs")

PROBE_SECONDS, LONG_SECONDS, START_SECONDS = 120, 240, 120
"""Limits for a probe; a probe that compiles or a batch of 10 GB; a measurement's start."""
TOO_LARGE = 16384
"""Images in a batch too large for any GPU."""
DRIVER = """
import json, sys
import perfkit
plan = perfkit.plan("resnet50", json.loads(sys.argv[1]))
perfkit.measure(plan.config, plan.protocol)
"""
SIZES: dict[str, dict[str, Any]] = {
    "gpu": {"device": "gpu", "gpus": 1, "batch_size": 64},
    "cpu": {"device": "cpu", "processes": 1, "batch_size": 8, "image_size": 64},
}
LARGE: dict[str, dict[str, Any]] = {"gpu": {}, "cpu": {"size": 512, "seconds": 0.2}}
BERT: dict[str, dict[str, Any]] = {"gpu": {"batch_size": 32}, "cpu": {"sequence_length": 16}}
PROBES: dict[str, tuple[str, dict[str, Any]]] = {
    "device": ("device_facts", {"precision": "bf16"}),
    "peak bf16": ("peaks", {"precision": "bf16"}),
    "peak fp32": ("peaks", {}),
    "peak tf32": ("peaks", {"tf32": True}),
    "fp32": ("training", {}),
    "amp": ("training", {"precision": "amp"}),
    "bf16": ("training", {"precision": "bf16"}),
    "static": ("training", {"precision": "bf16", "execution": "static"}),
    "overflow": ("overflow", {"precision": "amp"}),
    "profile": ("profiled", {"precision": "bf16"}),
    "bert": ("training", {"model": "bert", "precision": "bf16"}),
    "dali": ("dali", {"input": "dali"}),
}
"""Probe -> task of probes.py and changes of its configuration."""


class ProbeError(Exception):
    """A probe's process ended without facts; the message says why."""


class Machine:
    """A framework on `gpu` or `cpu`, and the folder for the checks' files."""

    def __init__(self, framework: str, device: str, folder: Path) -> None:
        self.framework, self.device, self.folder = framework, device, folder

    def values(self, **changes: Any) -> dict[str, Any]:
        values = {"framework": self.framework, "input": "synthetic", **SIZES[self.device]}
        if changes.get("model") == "bert":
            values = {k: v for k, v in values.items() if k != "image_size"} | BERT[self.device]
        return values | changes

    def probe(self, name: str) -> Facts:
        """Return a probe's facts. Raises ProbeError, or NotCheckedError if it cannot run."""
        task, changes = PROBES[name]
        if why := self.lacks(name):
            raise NotCheckedError(why)
        config = resolve({"model": "resnet50"} | self.values(**changes))
        config = with_dali_settings(config, usable_cores())
        given: dict[str, Any] = {"name": task}
        if task == "device_facts":
            given |= LARGE[self.device]
        if task == "dali":
            given["data"] = str(self.folder / "images")
        file, log = self.folder / f"{name}.json", self.folder / f"{name}.log"
        file.unlink(missing_ok=True)
        command = [sys.executable, str(HERE / "probes.py"), json.dumps(given)]
        environment = worker_environment(config, NodeRank())
        with log.open("w") as stream:
            process = subprocess.Popen(
                [*command, config.model_dump_json(), str(file)],
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            try:
                process.wait(LONG_SECONDS if name == "static" else PROBE_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise ProbeError(f"took over {error.timeout:.0f} s; see {log.name}") from error
            finally:
                end_session(process)
        if process.returncode or not file.exists():
            last = (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
            raise ProbeError(f"ended with status {process.returncode}: {last[:300]}")
        return json.loads(file.read_text())

    def lacks(self, name: str) -> str:
        """Return why a probe cannot run here; empty if it can."""
        if name == "dali" and not find_spec("nvidia.dali"):
            return "DALI is not installed"
        if name == "overflow" and (self.framework, self.device) == ("paddle", "cpu"):
            return "Paddle computes in float32 on a CPU"
        if name == "static" and not (shutil.which("g++") or shutil.which("gcc")):
            return "torch.compile needs a C++ compiler"
        return ""

    def measured(self, **changes: Any) -> perfkit.Measurement:
        folder = self.folder / "measurements"
        values = self.values(outputs_dir=str(folder), **changes)
        plan = perfkit.plan("resnet50", values)
        return perfkit.measure(plan.config, plan.protocol)

    def whole(self) -> Facts:
        """Return the facts of a measurement under `published`."""
        measurement = self.measured(precision="amp", batch_size=128, protocol="published")
        result = measurement.result
        sheet = datasheet(result)
        return {
            "status": result.status,
            "failure": result.failure and result.failure.code,
            "throughputs": result.throughputs,
            "share_of_datasheet": sheet and share_of_datasheet(result, sheet),
            "id": result.id,
        }

    def exhausted(self) -> Facts:
        """Run a batch too large for the GPU; return the failure and what is left over."""
        before = self.used_bytes()
        measurement = self.measured(
            batch_size=TOO_LARGE, protocol="quick", repeats=1, timeout=LONG_SECONDS
        )
        failure = measurement.result.repeats[-1].failure
        left = self.left_over(before, psutil.Process().children(recursive=True))
        return {"failure": failure and failure.code} | left

    def killed(self) -> Facts:
        """Kill the driver of a training measurement; return what is left over."""
        before, folder = self.used_bytes(), self.folder / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        values = self.values(
            outputs_dir=str(folder), protocol="quick", repeats=1, measured_steps=100_000
        )
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, json.dumps(values)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not any(
                '"event":"step"' in file.read_text()
                for file in folder.glob("*/repeats/1/rank0.jsonl")
            ):
                if driver.poll() is not None or time.monotonic() > deadline:
                    raise ProbeError("the measurement that was to be killed did not begin")
                time.sleep(0.2)
            started = psutil.Process(driver.pid).children(recursive=True)
        finally:
            driver.send_signal(signal.SIGKILL)
            driver.wait()
        return self.left_over(before, started)

    def left_over(self, before: int, processes: list[psutil.Process]) -> Facts:
        """Wait until these processes have ended and no more GPU bytes than `before` are in use,
        for SECONDS_TO_END at most; return what remains."""
        began = time.monotonic()
        while True:
            running = [process for process in processes if alive(process)]
            kept, seconds = self.used_bytes() - before, time.monotonic() - began
            if (not running and kept <= 0) or seconds > SECONDS_TO_END:
                return {"processes": len(running), "kept_bytes": kept, "seconds": seconds}
            time.sleep(0.2)

    def used_bytes(self) -> int:
        """Return the memory in use on the visible GPUs, by all processes; 0 on a CPU."""
        if self.device == "cpu":
            return 0

        with gpus.session():
            handles = gpus._visible().values()
            return sum(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)

    def facts(self, name: str) -> Facts:
        own: dict[str, Callable[[], Facts]] = {
            "out of memory": self.exhausted,
            "killed": self.killed,
            "measurement": self.whole,
        }
        found = own[name]() if name in own else self.probe(name)
        if name == "peak bf16" and self.device == "gpu":
            sheet = datasheet_of(gpus.visible_names()[0].split(",")[0], "bf16")
            found["sheet"] = sheet and sheet._asdict()
        return found


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill the remaining processes of a probe, which share its session."""
    for member in psutil.process_iter():
        try:
            if os.getsid(member.pid) == process.pid:
                member.kill()
        except (OSError, psutil.Error):
            continue
    process.wait()


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def run(machine: Machine, only: str = "") -> list[dict[str, Any]]:
    """Run the checks whose names contain `only`; print each as soon as it is judged."""
    known: dict[str, Facts | Exception] = {}
    rows = []
    for check in CHECKS:
        if only not in check.name:
            continue
        began = time.monotonic()
        state, wrong, seen = "passed", "", ""
        try:
            if machine.device == "cpu" and not check.on_cpu:
                raise NotCheckedError("needs a GPU")
            for name in check.needs:
                if name not in known:
                    known[name] = attempted(machine, name)
            missing = [e for n in check.needs if isinstance(e := known[n], Exception)]
            if missing:
                raise missing[0]
            wrong, seen = check.judge(*(known[name] for name in check.needs))
            state = "failed" if wrong else "passed"
        except NotCheckedError as error:
            state, wrong = "skipped", str(error)
        except Exception as error:
            state, wrong = "failed", f"{type(error).__name__}: {error}"
        row = {"check": check.name, "state": state, "wrong": wrong, "seen": seen}
        row["seconds"] = round(time.monotonic() - began, 1)
        rows.append(row)
        print(f"{state:8}{check.name}: {'; '.join(filter(None, (wrong, seen)))}", flush=True)
    machine.folder.mkdir(parents=True, exist_ok=True)
    write(machine, rows, {n: f for n, f in known.items() if not isinstance(f, Exception)})
    return rows


def attempted(machine: Machine, name: str) -> Facts | Exception:
    try:
        return machine.facts(name)
    except Exception as error:
        return error


def write(machine: Machine, rows: list[dict[str, Any]], facts: dict[str, Facts]) -> None:
    framework = FRAMEWORKS[machine.framework]
    about = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": machine.device,
        "gpus": gpus.visible_names() if machine.device == "gpu" else [],
        "framework": f"{framework.name} {framework.version}",
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
    content = {"about": about, "checks": rows, "facts": facts}
    write_atomically(machine.folder / "report.json", json.dumps(content, indent=1))
    write_atomically(machine.folder / "report.html", page(about, rows))


def page(about: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return a self-contained page; every value is escaped."""

    def table(head: tuple[str, ...], lines: list[tuple[Any, ...]]) -> str:
        cells = "".join(f"<th>{html.escape(word)}" for word in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(value))}" for value in line)
            for line in lines
        )
        return f"<table><tr>{cells}{body}</table>"

    title = (
        "GPU check" if about["device"] == "gpu" else "GPU check: dry run on a CPU, no GPU seen"
    )
    lines = [
        (row["state"], row["check"], row["wrong"], row["seen"], row["seconds"]) for row in rows
    ]
    style = "body{font:15px sans-serif;margin:2em}td,th{text-align:left;padding:.3em .8em}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{style}tr:nth-child(even){{background:#f2f2f2}}</style><h1>{title}</h1>"
        + table(("Fact", "Value"), [*about.items()])
        + table(("State", "Check", "Problem", "Seen", "Seconds"), lines)
    )


def chosen_framework() -> str:
    """Return Paddle if it is a GPU build, else PyTorch; empty if neither is."""
    for name in ("paddle", "torch"):
        if find_version(*FRAMEWORKS[name].versions["cuda"]):
            return name
    return ""


def main() -> int:
    about = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    about.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    about.add_argument("--framework", choices=("paddle", "torch"))
    about.add_argument("--only", default="", help="checks whose names contain this")
    about.add_argument("--out", type=Path, default=ROOT / "outputs" / "gpu-check")
    asked = about.parse_args()
    framework = asked.framework or ("torch" if asked.device == "cpu" else chosen_framework())
    try:
        if asked.device == "gpu" and not gpus.visible_gpus():
            print("skipped: NVML shows no GPU here")
            return 0
    except OSError as error:
        print(f"failed: {error}")
        return 1
    if not framework:
        print("skipped: neither Paddle nor PyTorch is installed as a build for GPUs")
        return 0
    if not FRAMEWORKS[framework].version:
        print(f"skipped: {FRAMEWORKS[framework].name} is not installed")
        return 0
    folder = asked.out.resolve()
    shutil.rmtree(folder / "measurements", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    rows = run(Machine(framework, asked.device, folder), asked.only)
    count = {state: sum(r["state"] == state for r in rows) for state in ("passed", "failed")}
    print(f"{count['passed']} passed, {count['failed']} failed; {folder / 'report.html'}")
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
