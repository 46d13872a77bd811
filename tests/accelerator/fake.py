"""The fake accelerator: built once and enabled in a process by environment variables.

It counts synchronizations, copies, kernels and collectives. Its times are no measurements, and
everything it reports is named 'fake'.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from fake_nvml import compile_nvml
from filelock import FileLock

from perfkit.measuring.paths import ROOT
from perfkit.measuring.results.store import read_result

FOLDER = Path(__file__).parent
SOURCES = ("device.cc", "kernels.cc", "half.cc")
LIBRARIES = ("phi_core", "phi", "common")
NAMES = (
    *("device_syncs", "stream_syncs", "event_syncs", "to_device", "to_host", "on_device"),
    *("to_device_bytes", "to_host_bytes", "on_device_bytes", "events", "queries"),
    *("stream_waits", "allocated_bytes", "kernels", "collectives", "collective_bytes"),
)
"""The plugin's counters, in the order of its `Counter`."""
SECONDS = 280
RUN = "from perfkit.cli import main; main()"
MEASURE = """
import json, sys
import perfkit
plan = perfkit.plan("resnet50", json.loads(sys.argv[1]))
failure = perfkit.measure(plan.config, plan.protocol).result.failure
sys.exit(failure and failure.line())
"""
"""As RUN, without the notebook and the page, which take longer than the measurement."""


def unavailable():
    """Return why the plugin cannot be built here; None if it can."""
    if platform.machine() != "x86_64":
        return f"the fake accelerator is for x86-64, and this is {platform.machine()}"
    if not find_spec("paddle"):
        return "Paddle is not installed"
    if not version("paddlepaddle").startswith("3.3."):
        return f"the fake accelerator is for Paddle 3.3, and this is {version('paddlepaddle')}"
    if not shutil.which("g++"):
        return "g++ is not installed"
    return None


def build(cache):
    """Build the plugin unless the cache has it, which takes 15 s, and return its folder."""
    paddle = Path(find_spec("paddle").origin).parent
    digest = hashlib.sha256(version("paddlepaddle").encode())
    for name in (*SOURCES, "kernels.h", "collectives.h", "../nvml.c"):
        digest.update((FOLDER / name).read_bytes())
    folder = cache / digest.hexdigest()[:16]
    unfinished = cache / "new"
    with FileLock(cache / "lock"):
        if not folder.exists():
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            compile_plugin(paddle, unfinished / "libfake.so")
            compile_nvml(unfinished)
            unfinished.rename(folder)
    return folder


def compile_plugin(paddle, library):
    command = ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-pthread"]
    # The plugin's threads outlive main.
    command += ["-Wl,-z,nodelete", "-DPADDLE_WITH_CUSTOM_DEVICE"]
    command += ["-isystem", f"{paddle}/include", f"-I{paddle}/include/third_party"]
    command += [*SOURCES, "-o", str(library), f"-L{paddle}/libs"]
    for name in LIBRARIES:
        command.append(f"-l:lib{name}.so")
    subprocess.run([*command, "-lrt"], cwd=FOLDER, check=True)


@pytest.fixture(scope="session")
def plugin(processes, request):
    if reason := unavailable():
        pytest.skip(reason)
    return build(request.config.cache.mkdir("fake-accelerator"))


def environment(plugin, name):
    """Return the variables that give a process the accelerator as device type `name`. As `gpu`,
    Paddle and NVML answer as on a machine with two GPUs."""
    paths = [FOLDER / "site", ROOT, FOLDER.parent]
    if os.environ.get("PYTHONPATH"):
        paths.append(os.environ["PYTHONPATH"])
    variables = {
        "CUSTOM_DEVICE_ROOT": str(plugin),
        "FAKE_NAME": name,
        # Otherwise Paddle keeps most freed memory, and its values.
        "FLAGS_free_idle_chunk": "1",
        "GLOG_minloglevel": "2",
        "PYTHONPATH": ":".join(map(str, paths)),
    }
    if name == "gpu":
        variables["LD_LIBRARY_PATH"] = str(plugin)
    return variables


def run_python(words, folder, plugin, name, variables):
    """Run Python with these words in a folder; return the finished process."""
    env = os.environ | environment(plugin, name) | variables
    command = [sys.executable, *words]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=folder,
        env=env,
    )


def measured(plugin, name, parameters, outputs, **variables):
    """Measure ResNet-50; return the finished process and the stored result."""
    request = json.dumps(parameters | {"outputs_dir": str(outputs)})
    done = run_python(["-c", MEASURE, request], outputs.parent, plugin, name, variables)
    files = [*outputs.glob("*/result.json")]
    assert files, done.stderr
    return done, read_result(files[0])


def perfkit_run(plugin, name, parameters, outputs, **variables):
    """Return the finished process of `perfkit run resnet50`."""
    words = ["-c", RUN, "run", "resnet50"]
    for key, value in parameters.items():
        words += ["-p", key, str(value)]
    words += ["-p", "outputs_dir", str(outputs)]
    return run_python(words, outputs.parent, plugin, name, variables)


def trained(plugin, name, folder, configurations, launcher=(), **variables):
    """Return what train.py prints for each configuration; with a launcher, on all ranks."""
    file = folder / "configurations.json"
    file.write_text(json.dumps(configurations))
    words = [*launcher, str(FOLDER / "train.py"), str(file)]
    done = run_python(words, folder, plugin, name, variables)
    output = done.stdout
    if launcher:
        # The launcher also prints rank 0's log.
        output = ""
        for log in folder.glob("log/workerlog.*"):
            output += log.read_text() + "\n"
    answers = []
    for line in output.splitlines():
        if line.startswith('{"'):
            answers.append(json.loads(line))
    assert len(answers) >= len(configurations), (output + done.stderr)[-4000:]
    return answers
