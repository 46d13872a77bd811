"""Paddle 1.8 image classification, as DLPerf ran it: `[Pass 0, train batch 19] \tloss …`."""

from perfkit.importers.form import Form
from perfkit.importers.log import Meaning, Step
from perfkit.importers.patterns import expression

FORM = Form(
    name="Paddle 1.8 (DLPerf)",
    framework="paddle",
    unit="images/s",
    meaning=Meaning(
        rate_of="device",
        covers=Step(),
        counts_from=0,
        reader=None,
        source="PaddlePaddle/models, PaddleCV/image_classification/utils/utility.py: "
        "print_info prints the time of the last batch; DLPerf's extract_paddle_logs_time.py "
        "takes the logger's clock instead",
    ),
    key=b", train batch ",
    print=expression(
        rb"<at>[^\n]{0,40}?\[Pass <epoch>, train batch <step>\],? \t?loss <loss>"
        rb"(?:, acc1 <accuracy>, acc[0-9] <accuracy2>)?, lr [^,\n]{1,32}, elapse <seconds> sec"
    ),
)
