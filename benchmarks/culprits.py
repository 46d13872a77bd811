"""Whether `perfkit history` blames the right one: planted changes, measured for real.

python benchmarks/culprits.py [CASES] measures CASES planted cases of each kind (default 15) and
prints a confusion matrix. A round has a baseline and one case of each kind:

none      nothing is planted
machine   the workers are stopped for a third of the time, or held to one of several cores, from
          their start
software  each update waits for 40 % of a step
both      a machine's and the software's change

A machine's changes are imposed on running workers, since what is set before they start is a
fact of the environment, and starts another series.
"""

import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Literal
from unittest.mock import patch

from measuring import planted
from slowing import hold_to_one_core, own_workers, slowed, stop_and_go

import perfkit
from perfkit.analysis.culprit import attributed
from perfkit.core.driver.measure import resume
from perfkit.core.driver.supervised import WORKER
from perfkit.core.request.requirements import read_environment
from perfkit.core.results.schema import Result
from perfkit.core.statistics import ratio_interval

Kind = Literal["none", "machine", "software", "both"]
KINDS: tuple[Kind, ...] = ("none", "machine", "software", "both")
THRESHOLD = 0.02
SLOWER_UPDATE = """
import sys
if "{worker}" in " ".join(sys.orig_argv):
    import time
    from perfkit.core.frameworks.torch.backend import Trainer

    update = Trainer.update

    def slower(self):
        update(self)
        time.sleep({seconds})

    Trainer.update = slower
"""
REPEATS = 5
REQUEST = {
    "framework": "torch",
    "device": "cpu",
    "batch_size": 4,
    "image_size": 96,
    "input": "synthetic",
    "warmup_steps": 2,
    "measured_steps": 6,
    "repeats": REPEATS,
}


def imposed(machine: bool, number: int) -> AbstractContextManager[None]:
    """Impose a machine's change on the workers that start within the block."""
    if not machine:
        return nullcontext()
    has_cores = len(os.sched_getaffinity(0)) > 1
    return slowed(hold_to_one_core if has_cores and number % 2 else stop_and_go, own_workers)


class Case:
    """One measurement of a round, whose repeats alternate with those of the others."""

    def __init__(self, kind: Kind, number: int, folder: str) -> None:
        self.kind = kind
        self.number = number
        self.folder = folder
        request = REQUEST | {"outputs_dir": f"{folder}/outputs"}
        self.plan = perfkit.plan("resnet50", request)
        config = self.plan.config
        self.environment = read_environment(config.framework, config.data_folder)

    def measure(self, repeat: int, step_seconds: float) -> Result:
        """Make one more repeat; an update of slower software waits for 40 % of a step."""
        variables = {}
        if self.kind in ("software", "both"):
            code = SLOWER_UPDATE.format(worker=WORKER, seconds=0.4 * step_seconds)
            variables = planted(self.folder, code)
        is_slow = self.kind in ("machine", "both")
        with patch.dict(os.environ, variables), imposed(is_slow, self.number):
            result = resume(
                self.plan.config, self.plan.protocol, self.environment, until=repeat
            ).result
        assert not result.failure, result.failure
        return result


def measured_round(number: int, kinds: Sequence[Kind]) -> tuple[Result, dict[Kind, Result]]:
    """Measure a baseline and one case of each kind, a repeat of each in turn, since a machine's
    own speed drifts."""
    results: dict[Kind, Result] = {}
    with ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(5)]
        baseline = Case("none", number, folders.pop())
        cases = [Case(kind, number, folders.pop()) for kind in kinds]
        for repeat in range(1, REPEATS + 1):
            before = baseline.measure(repeat, 0.0)
            step_seconds = 1 / before.complete_repeats[0].steps_per_second
            for case in cases:
                results[case.kind] = case.measure(repeat, step_seconds)
    return before, results


def judged(before: Result, after: Result) -> tuple[str, str]:
    """Return what the change is attributed to, and the changes of the rates as text."""
    ratio = ratio_interval(after.throughputs, before.throughputs)
    attribution = attributed([before], [after], ratio, THRESHOLD)
    if not attribution:
        return "none", ""
    rates = [
        f"{rate.name} {rate.ratio:.3f} ({rate.low:.3f} to {rate.high:.3f})"
        for rate in attribution.rates
    ]
    return attribution.culprit, "; ".join(rates)


def main(cases: int) -> None:
    confusion: Counter[tuple[str, str]] = Counter()
    order = random.Random(1)
    for number in range(cases):
        before, results = measured_round(number, order.sample(KINDS, len(KINDS)))
        for kind, after in results.items():
            verdict, rates = judged(before, after)
            confusion[kind, verdict] += 1
            ratio = after.throughput.value / before.throughput.value
            print(f"{number} {kind}: x {ratio:.3f}, {verdict}; {rates}", flush=True)
    verdicts = ("none", "machine", "software", "both", "undecided")
    print(f"{'planted':10}" + "".join(f"{verdict:>11}" for verdict in verdicts))
    for kind in KINDS:
        counts = [confusion[kind, verdict] for verdict in verdicts]
        print(f"{kind:10}" + "".join(f"{count:11}" for count in counts))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
