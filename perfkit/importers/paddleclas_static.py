"""PaddleClas, static graph: `ppcls INFO: epoch:0   train step:10   lr: …, ips: …`.

A print's times are means since step 5 of the epoch, of one card, so that those of two prints
p < q give that between them: ((q - 4) c_q - (p - 4) c_p) / (q - p).
"""

from perfkit.importers.form import Form, figures
from perfkit.importers.log import Meaning, Running
from perfkit.importers.patterns import expression

FORM = Form(
    name="PaddleClas, static graph",
    framework="paddle",
    unit="images/s",
    meaning=Meaning(
        rate_of="device",
        covers=Running(since=5),
        counts_from=1,
        reader="in",
        source="PaddleClas, ppcls/static/program.py: batch_time and reader_time are reset at "
        "idx 5, idx counts from 1, ips = batch_size / batch_time.avg, and tic is before next()",
    ),
    key=b"ppcls INFO: epoch:",
    print=expression(
        rb"\[<at>\] ppcls INFO: epoch:<epoch> {1,9}+train step:<step> {1,9}+lr: [^,\n]{1,32}+, "
        rb"loss: {1,9}+<loss> (?:top1: {1,9}+<accuracy> top5: {1,9}+<accuracy2> )?"
        rb"batch_cost: <seconds> s, reader_cost: <reader> s, ips: <rate> (?:samples|images)/s"
    ),
    figures=figures(
        (
            "s",
            expression(
                rb"(?P<where>END epoch:[0-9]{1,9}) [^\n]{0,400}? "
                rb"(?P<name>batch_cost_sum): <value> s"
            ),
        )
    ),
)
