"""The fake accelerator: built once, and given to processes of a test by their environment.

It shows what the code for an accelerator does (synchronisations, copies, kernels, collectives),
not how fast: nothing that it yields is a measurement, and all of it is named 'fake'.
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
from filelock import FileLock

from perfkit.config import ROOT
from perfkit.results.store import read_result

FOLDER = Path(__file__).parent
SOURCES = ("device.cc", "kernels.cc", "half.cc")
LIBRARIES = ("phi_core", "phi", "common")
NAMES = (
    *("device_syncs", "stream_syncs", "event_syncs", "to_device", "to_host", "on_device"),
    *("to_device_bytes", "to_host_bytes", "on_device_bytes", "events", "queries"),
    *("stream_waits", "allocated_bytes", "kernels", "collectives", "collective_bytes"),
)
"""What the plugin counts, in the order of its `Counter`."""
SECONDS = 280
RUN = "from perfkit.cli import main; main()"


def unavailable():
    """Why the plugin can't be built here; None if it can."""
    if platform.machine() != "x86_64":
        return f"the fake accelerator is for x86-64, and this is {platform.machine()}"
    if not find_spec("paddle"):
        return "Paddle is not installed"
    if not version("paddlepaddle").startswith("3.3."):
        return f"the fake accelerator is for Paddle 3.3, and this is {version('paddlepaddle')}"
    return None if shutil.which("g++") else "g++ is not installed"


def build(cache):
    """The folder of the plugin, built there unless it has been: a quarter of a minute."""
    paddle = Path(find_spec("paddle").origin).parent
    files = [FOLDER / name for name in (*SOURCES, "kernels.h", "collectives.h")]
    contents = b"".join(file.read_bytes() for file in files)
    digest = hashlib.sha256(contents + version("paddlepaddle").encode()).hexdigest()[:16]
    folder = cache / digest
    with FileLock(cache / "lock"):
        if not folder.exists():
            shutil.rmtree(cache / "new", ignore_errors=True)
            (cache / "new").mkdir()
            command = ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-pthread"]
            # Its threads outlive main.
            command += ["-Wl,-z,nodelete", "-DPADDLE_WITH_CUSTOM_DEVICE"]
            command += ["-isystem", f"{paddle}/include", f"-I{paddle}/include/third_party"]
            command += [*SOURCES, "-o", str(cache / "new/libfake.so"), f"-L{paddle}/libs"]
            command += [*(f"-l:lib{name}.so" for name in LIBRARIES), "-lrt"]
            subprocess.run(command, cwd=FOLDER, check=True)
            (cache / "new").rename(folder)
    return folder


@pytest.fixture(scope="session")
def plugin(processes, request):
    """The folder of the built plugin."""
    if reason := unavailable():
        pytest.skip(reason)
    return build(request.config.cache.mkdir("fake-accelerator"))


def environment(plugin, name):
    """The variables by which a process has the accelerator as the device type `name`; as `gpu`,
    Paddle and NVML answer as on a machine with two GPUs."""
    paths = [FOLDER / "site", *([FOLDER / "as_gpu"] if name == "gpu" else [])]
    paths += [ROOT, FOLDER.parent]
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    return {
        "CUSTOM_DEVICE_ROOT": str(plugin),
        "FAKE_NAME": name,
        "GLOG_minloglevel": "2",
        "PYTHONPATH": ":".join(map(str, paths)),
    }


def measured(plugin, name, parameters, outputs, **variables):
    """The `perfkit run` of ResNet-50 with these parameters, and the result that it stored."""
    options = [word for key, value in parameters.items() for word in ("-p", key, str(value))]
    done = subprocess.run(
        [sys.executable, "-c", RUN, "run", "resnet50", *options, "-p", "outputs_dir", outputs],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=outputs.parent,
        env=os.environ | environment(plugin, name) | variables,
    )
    stored = [read_result(file) for file in outputs.glob("*/result.json")]
    return done, stored[0] if stored else None


def trained(plugin, name, folder, configurations, launcher=(), **variables):
    """What train.py prints of each configuration; under a launcher, that of all ranks."""
    asked = folder / "asked.json"
    asked.write_text(json.dumps(configurations))
    worker = [str(FOLDER / "train.py"), str(asked)]
    done = subprocess.run(
        [sys.executable, *launcher, *worker],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=folder,
        env=os.environ | environment(plugin, name) | variables,
    )
    # A launcher prints rank 0's log too.
    logs = "\n".join(log.read_text() for log in folder.glob("log/workerlog.*"))
    output = logs if launcher else done.stdout
    printed = [json.loads(line) for line in output.splitlines() if line.startswith('{"')]
    assert len(printed) >= len(configurations), (output + done.stderr)[-4000:]
    return printed
