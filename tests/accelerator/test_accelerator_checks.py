"""The checks of `make gpu` on the fake accelerator, which is no GPU: that they run and can
pass. Those of times need a GPU."""

import os
import re
import subprocess
import sys

import pytest
from accelerator.fake import environment

from perfkit.measuring.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHECKS = ("nvml_names", "is_complete_steady", "precision_is_as_asked", "an_overflow")
SECONDS = 500


def test_the_gpu_checks_run_on_the_fake_accelerator(plugin):
    # PyTorch's builds for GPUs need a real one.
    selected = f"({' or '.join(CHECKS)}) and not (torch or fp32 or bf16)"
    words = ["-c", "tests/gpu/pytest.ini", "--confcutdir", "tests/gpu", "tests/gpu", "--small"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-k", selected],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        cwd=ROOT,
        env=os.environ | environment(plugin, "gpu"),
    )
    assert done.returncode == 0, done.stdout[-4000:]
    for name in CHECKS:
        assert re.search(rf"{name}.* PASSED", done.stdout), done.stdout
