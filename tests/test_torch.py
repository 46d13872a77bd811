"""PyTorch's ranks exchange gradients while a compiled model still computes others."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sides import config

from perfkit.measuring.driver.workers import launcher_command
from perfkit.measuring.paths import ROOT
from perfkit.training.frameworks import NodeRank

pytest.importorskip("torch")
OVERLAP = """
from functools import partial

import perfkit
from narrow import replace_sizes
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from perfkit.training.torch import train

recorder = profile(activities=[ProfilerActivity.CPU])


class Timer:
    # Records the third step: buckets are final after the first one.

    steps = 0

    def __init__(self, **_told):
        pass

    def note(self, **_values):
        pass

    def batches(self, batches):
        return batches

    def step(self, _loss):
        self.steps += 1
        if self.steps == 2:
            recorder.start()
        if self.steps == 3:
            recorder.stop()


replace_sizes(setattr)
perfkit.StepTimer = Timer
# Small buckets, so that a narrow model has several.
train.DistributedDataParallel = partial(DistributedDataParallel, bucket_cap_mb=1)
train.main()
parts = [e for e in recorder.events() if e.name == "CompiledFunctionBackward"]
end = max(part.time_range.end for part in parts)
sent = [e.time_range.start for e in recorder.events() if e.name.startswith("gloo:")]
print(f"early: {sum(at < end for at in sent)} of {len(sent)}", flush=True)
"""
WORDS = "--model vgg16 --device cpu --batch-size 4 --image-size 64 --execution static --steps 3"


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_compiled_models_overlap_communication_with_the_backward_pass(tmp_path):
    """torch.compile splits its graph at the buckets of DistributedDataParallel."""
    script = tmp_path / "overlap.py"
    script.write_text(OVERLAP)
    run = [sys.executable, str(script), *WORDS.split()]
    two = config(framework="torch", processes=2)
    command = launcher_command(two, NodeRank(), tmp_path, "job", run)
    path = f"{ROOT}:{Path(__file__).parent}"
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(command, env=env, check=False, timeout=200)
    output = ""
    for log in tmp_path.glob("*/attempt_0/0/std*.log"):
        output += log.read_text()
    assert done.returncode == 0, output
    printed = re.search(r"early: (\d+) of (\d+)", output)
    early = int(printed[1])
    buckets = int(printed[2])
    assert 0 < early < buckets
