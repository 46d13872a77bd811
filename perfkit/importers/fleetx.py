"""FleetX's trainer: `epoch id: 0, step11, train_loss: …, step per second: …, speed: …`.

Its rates are steps per second: `speed` of the last step alone, `step per second` since step 10.
"""

import numpy as np

from perfkit.importers.form import Form
from perfkit.importers.log import Meaning, Step
from perfkit.importers.patterns import expression


def _mended(rows: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        rows["seconds"] = 1 / rows["seconds"]
    return rows


FORM = Form(
    name="FleetX trainer",
    framework="paddle",
    meaning=Meaning(
        rate_of="device",
        covers=Step(),
        counts_from=0,
        reader=None,
        source="FleetX, python/fleetx/applications/trainer.py: speed = 1 / (end_time - "
        "start_time) of one step; in some versions start_time is before the batch is read",
    ),
    key=b"step per second: ",
    print=expression(
        rb"(?:epoch id: <epoch>|worker_index: <rank>), step<step>,? (?:train_loss:|cost =) "
        rb"<loss>, total time cost = [0-9.]{1,32}, step per second: [0-9.]{1,32}, "
        rb"speed: <seconds>(?=\s)"
    ),
    mended=_mended,
)
