"""Single repeats by perfkit.measure, and code planted into Python processes."""

import os
import tempfile
from pathlib import Path
from textwrap import indent
from typing import Any

from runner import PIXELS

import perfkit
from perfkit.measuring.driver.supervised import RANK
from perfkit.measuring.results.schema import Result


def result_of(**parameters: Any) -> Result:
    """Measure one repeat of ResNet-50 on the CPU in fresh processes."""
    with tempfile.TemporaryDirectory() as outputs:
        request = {"device": "cpu", "repeats": 1, "outputs_dir": outputs}
        request |= {"image_size": PIXELS, "measured_seconds": 0}
        plan = perfkit.plan("resnet50", request | parameters)
        result = perfkit.measure(plan.config, plan.protocol).result
    assert result.status == "complete", result.failure
    return result


def as_options(request: dict[str, Any]) -> list[str]:
    """Return parameters as `-p` options of papermill and perfkit."""
    options = []
    for name, value in request.items():
        options += ["-p", name, str(value)]
    return options


def measured(**parameters: Any) -> float:
    """Measure one repeat and return its throughput."""
    return result_of(**parameters).throughput.value


def in_ranks(code: str) -> str:
    """Return `code` for `planted` that only the ranks of measurements run, not the programs
    that start them, whose last arguments are the command of a rank."""
    condition = f"{RANK!r} in sys.orig_argv[1:4]"
    return f"import sys\nif {condition}:\n{indent(code, '    ')}"


def planted(folder: str | Path, code: str) -> dict[str, str]:
    """Return environment variables under which every Python process runs `code` first."""
    (Path(folder) / "sitecustomize.py").write_text(code)
    path = str(folder)
    if "PYTHONPATH" in os.environ:
        path += os.pathsep + os.environ["PYTHONPATH"]
    return {"PYTHONPATH": path}
