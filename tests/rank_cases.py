"""Trains narrow models by their scripts on this rank's share of the same samples:
`rank_cases.py FRAMEWORK CASES FOLDER RANKS`, alone or under the framework's launcher.

CASES is a JSON object of parameters by name. The losses of each case go to
FOLDER/<name>-<rank>of<ranks>.json.
"""

import json
import os
import sys
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path

from narrow import replace_sizes
from trained import train_here

from perfkit.inputs import synthetic
from perfkit.training import models
from perfkit.training.frameworks import FRAMEWORKS

SAMPLES, STEPS = 8, 4
"""Samples of all ranks per step."""
ALL_ROWS, ROWS_OF_PARTS = 8192, 48
"""Rows of which the logits of JAX's Llama exist at the same time, usually and in cases whose
name ends with `parts`."""
FRAMEWORK, CASES, FOLDER, RANKS = sys.argv[1:]


def shared(options, rank):
    """Yield this rank's micro-batches of one batch of all ranks after the other."""
    batches = []
    for seed in count():
        of_all = replace(options, batch_size=SAMPLES, accumulate=1, seed=seed)
        arrays = next(original(of_all, 0))
        first = rank * options.samples_per_step
        for begin in range(first, first + options.samples_per_step, options.batch_size):
            batches.append(tuple(array[begin : begin + options.batch_size] for array in arrays))
        if seed == 0:
            # The first batch only shows the precision.
            yield batches[0]
        yield from batches
        batches.clear()


def without_dropout():
    models.BERT_SIZE = models.BERT_SIZE._replace(dropout=0.0)
    if FRAMEWORK == "jax":
        return
    functional = sys.modules[FRAMEWORK].nn.functional
    functional.dropout = lambda x, *_rest, **_named: x
    if FRAMEWORK == "paddle":
        sys.modules["paddle.nn.layer.common"].F.dropout = functional.dropout


replace_sizes(setattr)
original = synthetic.batches
synthetic.batches = shared
__import__(FRAMEWORK)
without_dropout()
variable = FRAMEWORKS[FRAMEWORK].rank_variable
rank = int(os.environ.get(variable, "0"))
ranks = int(RANKS)
print("this is rank", rank, flush=True)
for name, case in json.loads(CASES).items():
    given = {"accumulate": 1} | case
    if ranks == 1:
        given |= {"accumulate": 1, "sharding": "none"}
    given["batch_size"] = SAMPLES // ranks // given["accumulate"]
    is_image = models.MODELS[given["model"]].sample == "image"
    given |= {"image_size": 32} if is_image else {"sequence_length": 16}
    words = ["--device", "cpu", "--input", "synthetic"]
    for option, value in given.items():
        words += [f"--{option.replace('_', '-')}", value]
    if FRAMEWORK == "jax":
        llama = import_module("perfkit.training.jax.llama")
        llama.LOSS_ROWS = ROWS_OF_PARTS if name.endswith("parts") else ALL_ROWS
    job = {"ranks": ranks, "measured_steps": STEPS - 1}
    run = train_here(FRAMEWORK, *words, **job)
    stored = {"losses": run.losses, "notes": run.notes}
    Path(f"{FOLDER}/{name}-{rank}of{ranks}.json").write_text(json.dumps(stored))
    # The ranks meet once.
    if FRAMEWORK == "torch":
        sys.modules["torch"].distributed.init_process_group = lambda *_given, **_named: None
    if FRAMEWORK == "jax":
        sys.modules["perfkit.training.jax.parallel"].join = lambda _options: None
