"""PaddleClas, dynamic graph: `[Train][Epoch 1/8][Iter: 10/625]lr(…): …, ips: …`.

Some versions begin their means anew after each print, others only at iteration 5 of an epoch.
The clock in front of the prints tells which: the time between two prints is either
(q - p) c_q or (q - 4) c_q - (p - 4) c_p.
"""

from dataclasses import replace

import numpy as np

from perfkit.importers.form import Form
from perfkit.importers.log import Meaning, Running, SincePrint
from perfkit.importers.patterns import expression

RESET = 5


def _judged(meaning: Meaning, rows: np.ndarray, text: bytes) -> Meaning:
    follows = (np.diff(rows["epoch"]) == 0) & (rows["step"][:-1] >= RESET)
    follows &= np.diff(rows["step"]) > 0
    earlier, later = rows[:-1][follows], rows[1:][follows]
    passed = later["at"] - earlier["at"]
    if not np.isfinite(passed).any():
        told = "; nothing in this log does: its means are taken to begin anew after each print"
        return replace(meaning, source=meaning.source + told)
    sums = [(part["step"] - RESET + 1) * part["seconds"] for part in (earlier, later)]
    if_window = np.nansum((later["step"] - earlier["step"]) * later["seconds"] - passed)
    if_running = np.nansum(sums[1] - sums[0] - passed)
    # The clock counts whole seconds, so that it is off by up to one in each epoch.
    if abs(if_window) > abs(if_running) + len(np.unique(rows["epoch"])):
        return replace(meaning, covers=Running(since=RESET + 1, anew=False))
    return meaning


FORM = Form(
    name="PaddleClas, dynamic graph",
    framework="paddle",
    unit="images/s",
    meaning=Meaning(
        rate_of="device",
        covers=SincePrint(since=RESET + 1),
        counts_from=0,
        reader="in",
        source="PaddleClas, ppcls/engine/train/train.py: iter_id counts from 0, time_info is "
        "reset at iter_id 5, tic is before the batch is read; utils.py: ips = batch_size / "
        "batch_cost.avg. Whether it is reset after a print, too, differs; the clock tells",
    ),
    key=b"][Iter: ",
    print=expression(
        rb"\[(?:<at>\] ppcls INFO: \[)?Train\]\[Epoch <epoch>/[0-9]{1,9}\]"
        rb"\[Iter: <step>/[0-9]{1,9}\][^\n]{0,300}?\bloss: <loss>[^\n]{0,200}?, "
        rb"batch_cost: (?P<seconds>[^s\n]{1,32})s, reader_cost: (?P<reader>[^s,\n]{1,32})s?, "
        rb"ips: <rate> "
    ),
    judged=_judged,
)
