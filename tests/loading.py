"""Batches of the real DataLoader, taken in a separate process as a trainer does.

Paddle's loaders run until their process ends, and several in one process interfere.
"""

import pickle
import subprocess
import sys

import numpy as np

from perfkit.training.options import Options

SCRIPT = """
import multiprocessing, os, pickle, sys, traceback
import numpy as np
from importlib import import_module
from perfkit.inputs import dataloader

config, rank, count = pickle.load(sys.stdin.buffer)
load = import_module(f"perfkit.training.{config.framework}.batches").loaded
try:
    batches = dataloader.batches(config, rank, load)
    taken = [[np.array(field) for field in next(batches)] for _ in range(count)]
except Exception:
    traceback.print_exc()
    sys.stderr.flush()
    # Remains of Paddle's loader may keep Python from ending.
    for process in multiprocessing.active_children():
        process.kill()
    os._exit(1)
sys.stdout.buffer.write(pickle.dumps(taken))
"""


def load(config: Options, count: int, rank: int = 0) -> subprocess.CompletedProcess[bytes]:
    """Take `count` batches in a process and return the completed process."""
    command = [sys.executable, "-c", SCRIPT]
    task = pickle.dumps((config, rank, count))
    return subprocess.run(command, input=task, capture_output=True, check=False, timeout=60)


def loaded(config: Options, count: int, rank: int = 0) -> list[list[np.ndarray]]:
    """Return `count` batches, each a list of arrays."""
    ended = load(config, count, rank)
    assert ended.returncode == 0, ended.stderr.decode()
    batches: list[list[np.ndarray]] = pickle.loads(ended.stdout)
    return batches
