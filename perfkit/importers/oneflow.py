"""OneFlow, as DLPerf ran it: `train: epoch 0, iter 20, loss: …, samples/s: 3988.8 159793394.9`.

A header names the topology; the last field is the clock in seconds.
"""

from perfkit.importers.form import Form
from perfkit.importers.log import Meaning, SincePrint
from perfkit.importers.patterns import expression
from perfkit.importers.sayings import LAUNCHERS, ONEFLOW

FORM = Form(
    name="OneFlow (DLPerf)",
    framework="oneflow",
    meaning=Meaning(
        rate_of="all",
        covers=SincePrint(),
        counts_from=1,
        reader="in",
        source="OneFlow-Benchmark, Classification/cnns/util.py: Metric prints step + 1 and the "
        "samples since the last print by the time since then",
    ),
    key=b"samples/s: ",
    print=expression(
        rb"train: epoch <epoch>, iter <step>, loss: <loss>, "
        rb"(?:(?:accuracy\()?top_?1\)?: <accuracy>, (?:accuracy\()?top_?k\)?: <accuracy2>, )?"
        rb"samples/s: <rate>(?: (?P<at>[0-9]{1,12}\.[0-9]{1,9}))?(?=\s)"
    ),
    sayings=LAUNCHERS + ONEFLOW,
)
