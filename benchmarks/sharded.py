"""Losses of Llama tiny with sharding: 1 process, and 2 processes of each.

python benchmarks/sharded.py torch|jax trains 10 steps in float32 on the CPU, without dropout,
on the same batch of 2 x 64 tokens, of which each of two processes has a half. Prints the mean
loss of the first and the last step, and the largest difference from one process over all steps.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from typing import Any, get_args

import numpy as np

from perfkit.inputs import synthetic
from perfkit.measuring.config import Config
from perfkit.measuring.paths import ROOT
from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.work import Sharding
from perfkit.training.frameworks import FRAMEWORKS, MEETING_VARIABLE
from perfkit.training.options import Options

sys.path.insert(0, str(ROOT / "tests"))
from narrow import replace_sizes
from trained import train_here

SAMPLES, STEPS = 2, 10
Arrays = tuple[np.ndarray, ...]


def train(request: dict[str, Any], *, is_narrow: bool) -> None:
    """Train as one of the ranks, and print the losses as JSON."""
    if is_narrow:
        replace_sizes(setattr)
    print(json.dumps(losses_of(resolve(request))))


def losses_of(config: Config) -> list[float]:
    original = synthetic.batches

    def shared(options: Options, rank: int) -> Iterator[Arrays]:
        arrays = next(original(replace(options, batch_size=SAMPLES), 0))
        return repeat(share(arrays, options, rank))

    synthetic.batches = shared
    words = config.work.training_arguments(config)
    job = {"ranks": config.ranks, "warmup_steps": 1, "measured_steps": STEPS - 1}
    return train_here(config.framework, *words, **job).losses


def share(arrays: Arrays, options: Options, rank: int) -> Arrays:
    """Return a rank's share of the batch of all ranks."""
    first = rank * options.batch_size
    return tuple(array[first : first + options.batch_size] for array in arrays)


def trained(
    framework: str,
    sharding: Sharding,
    ranks: int,
    *,
    is_narrow: bool = False,
    **parameters: Any,
) -> np.ndarray:
    """Return the mean losses of all steps. `is_narrow`: of a narrower network, which compiles
    faster. Ends this program if a rank fails."""
    request = {
        "model": "llama",
        "framework": framework,
        "device": "cpu",
        "input": "synthetic",
        "processes": ranks,
        "sharding": sharding,
        "batch_size": SAMPLES // ranks,
        "sequence_length": 64,
        **parameters,
    }
    port = free_port()
    meeting = {
        MEETING_VARIABLE: f"127.0.0.1:{port}",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    variables = {
        name: variable for name, (variable, _) in FRAMEWORKS[framework].rank_variables.items()
    }
    processes = []
    for rank in range(ranks):
        numbers = {"rank": rank, "ranks": ranks, "local_rank": rank, "devices": ranks}
        place = {variables[name]: str(number) for name, number in numbers.items()}
        command = [sys.executable, __file__, framework, "--request", json.dumps(request)]
        if is_narrow:
            command.append("--narrow")
        process = subprocess.Popen(
            command, env=os.environ | meeting | place, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
    losses = []
    try:
        for process in processes:
            output, _errors = process.communicate()
            if process.returncode:
                sys.exit(f"a rank of {framework} exited with status {process.returncode}")
            losses.append(json.loads(output.splitlines()[-1]))
    finally:
        # The others would wait for a rank that has failed.
        for process in processes:
            process.kill()
    return np.mean(losses, axis=0)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main(framework: str) -> None:
    alone = trained(framework, "none", 1)
    show("1 process", alone, alone)
    for sharding in get_args(Sharding):
        losses = trained(framework, sharding, 2)
        show(f"2 processes, {sharding}", losses, alone)


def show(name: str, losses: np.ndarray, alone: np.ndarray) -> None:
    difference = np.abs(losses - alone).max()
    print(f"{name}: loss {losses[0]:.6f} to {losses[-1]:.6f}, differs by {difference:.1g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=("torch", "jax"))
    parser.add_argument("--request", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--narrow", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.request:
        train(arguments.request, is_narrow=arguments.narrow)
    else:
        main(arguments.framework)
