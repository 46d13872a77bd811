"""tf_cnn_benchmarks: `10\timages/sec: 250.1 +/- 1.2 (jitter = 3.4)\t7.123`."""

from perfkit.importers.form import Form, figures
from perfkit.importers.log import Meaning, Running
from perfkit.importers.patterns import expression
from perfkit.importers.sayings import LAUNCHERS, TF_CNN

FORM = Form(
    name="tf_cnn_benchmarks",
    framework="tensorflow",
    unit="images/s",
    meaning=Meaning(
        rate_of="all",
        covers=Running(),
        counts_from=1,
        reader="in",
        source="tensorflow/benchmarks, benchmark_cnn.py: get_perf_timing divides the batch of "
        "all of a process's devices by the mean of all step times since the warm-up, which has "
        "steps of its own",
    ),
    key=b"images/sec: ",
    print=expression(
        rb"<step>\timages/sec: <rate> \+/- [0-9.]{1,32} \(jitter = [^)\n]{1,32}\)"
        rb"(?:\t<loss>(?=\s))?"
    ),
    figures=figures(("samples/s", expression(rb"(?P<name>total images/sec): <value>(?=\s)"))),
    sayings=LAUNCHERS + TF_CNN,
)
