"""PaddleNLP's BERT, static graph: `total step: 20, epoch: 0, batch: 19, loss: …, ips: …`.

Older versions spell it `tobal step`. Two formulas were used for ips, B / (reader + batch) and
B / batch; the spelling does not tell which, but the figures do.
"""

import re
from dataclasses import replace

import numpy as np

from perfkit.importers.form import Form
from perfkit.importers.log import Meaning, SincePrint
from perfkit.importers.patterns import expression, floats

SAMPLES = re.compile(rb"avg_samples: ([0-9.]{1,32}), ips: ")


def _mended(rows: np.ndarray) -> np.ndarray:
    rows["since"] += 1  # batches count from 0, in each file of the data set, where means begin
    return rows


def _judged(meaning: Meaning, rows: np.ndarray, text: bytes) -> Meaning:
    """Which formula gives the samples of a step that are printed beside it."""
    samples = floats(SAMPLES.findall(text)).max()  # fewer where a file of the data set ended
    alone = np.nanmedian(np.abs(rows["rate"] * rows["seconds"] - samples))
    both = np.nanmedian(np.abs(rows["rate"] * (rows["seconds"] + rows["reader"]) - samples))
    return replace(meaning, reader="in") if alone < both else meaning


FORM = Form(
    name="PaddleNLP BERT, static graph",
    framework="paddle",
    unit="sequences/s",
    meaning=Meaning(
        rate_of="device",
        covers=SincePrint(),
        counts_from=1,
        reader=None,
        step="batch",
        source="PaddleNLP, examples/language_model/bert/static/run_pretrain.py: averages are "
        "reset after each print and with each file; where ips = B / batch, the batch is timed "
        "with its reader; where ips = B / (reader + batch), public versions time it with its "
        "reader, too, and so count that twice, but others may not",
    ),
    key=b"avg_batch_cost: ",
    print=expression(
        rb"to[tb]al step: <step>, epoch: [0-9]{1,9}, batch: <since>, loss: <loss>, "
        rb"avg_reader_cost: <reader> sec, avg_batch_cost: <seconds> sec, "
        rb"avg_samples: [0-9.]{1,32}, ips: <rate> sequences/sec"
    ),
    mended=_mended,
    judged=_judged,
)
