"""MLPerf's events: `:::MLLOG {"namespace": "", "time_ms": …, "event_type": …, "key": …}`.

They tell when something began and ended, but not how many steps it took.
"""

from perfkit.importers.form import Form, figures
from perfkit.importers.log import Meaning, Step
from perfkit.importers.patterns import expression
from perfkit.importers.sayings import LAUNCHERS, MLPERF

EVENT = rb":::MLLOG \{[^\n]{0,60}?\"time_ms\": ?(?P<value>[0-9]{1,16}), [^\n]{0,60}?\"key\": ?"

FORM = Form(
    name="MLPerf training",
    has_steps=False,
    meaning=Meaning(
        rate_of="all",
        covers=Step(),
        counts_from=1,
        reader="in",
        source="mlcommons/logging, mlperf_logging/mllog/README.md",
    ),
    key=b":::MLLOG {",
    print=expression(rb":::MLLOG \{"),
    figures=figures(
        ("", expression(EVENT + rb"\"(?P<name>run_st(?:art|op))\"")),
        (
            "samples/s",
            expression(
                rb"\"key\": ?\"(?P<where>tracked_stats|throughput)\", ?\"value\": ?"
                rb"(?:\{[^{}\n]{0,200}?\"(?P<name>throughput)\": ?)?<value>"
            ),
        ),
    ),
    sayings=LAUNCHERS + MLPERF,
)
