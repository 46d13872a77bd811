"""Which rank or cause is named for a failed repeat, given the state of all ranks."""

import errno
import os
from textwrap import dedent

import pytest
from made.results import event

from perfkit.measuring.driver.exit_info import ExitInfo
from perfkit.measuring.driver.failures import EndedRun, cause, timed_out
from perfkit.measuring.results.failures import Failure

NODES = ["node 0 (a)", "node 1 (b)"]
RANKS = ["rank 0 on node 0 (a)", "rank 1 on node 1 (b)"]
STATUS = "the launcher's exit status was 250"
EXIT = ExitInfo(status=250, killed_for_memory=False, logs={})
"""An exit of the launcher that says nothing about the ranks."""


def reports(message, code="worker_error", at=0.0):
    return event("failure", code=code, message=message, at=at)


CONNECTION_LOST = reports("connection closed")
PLANTED = reports("KeyError: 'planted'", at=1.0)
LATER = reports("connection closed", at=2.0)
TOO_BIG = reports("too big", "out_of_memory")


def came_to(done, begun=None, *further):
    """Return the events of a rank that finished step `done` and got the batch of `begun`."""
    batches = [event("batch", step=step) for step in range(1, (begun or done) + 1)]
    steps = [event("step", step=step) for step in range(1, done + 1)]
    return [event("start"), *batches, *steps, *further]


def ended(*events, nodes=NODES, **changes):
    return EndedRun(events, nodes, EXIT.model_copy(update=changes))


ABORTED = {"rank0": "FatalError: `Process abort signal` is detected"}
NO_SPACE = f"OSError: [Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}: 'rank0.jsonl'"
LOST = Failure(code="node_lost", reason="node 1 (b): ssh ended with status 255")


@pytest.mark.parametrize(
    ("run", "code", "rank", "reason"),
    [
        pytest.param(
            ended(came_to(3, 4, CONNECTION_LOST), came_to(3, 4, TOO_BIG)),
            *("out_of_memory", 1, f"{RANKS[1]}: too big"),
            id="a specific error outranks a peer's lost connection",
        ),
        pytest.param(
            ended(came_to(3, 4), came_to(3, 4), exited_first=[0, 1], logs=ABORTED),
            *("worker_died", 1),
            f"{RANKS[1]} exited without reporting an error after step 3; {STATUS}",
            id="of two dead ranks, the one without a trace in its log",
        ),
        pytest.param(
            ended(came_to(2, 4), came_to(2, 3), exited_first=[0, 1]),
            *("worker_died", 1),
            f"{RANKS[1]} exited without reporting an error after step 2; {STATUS}",
            id="of two killed ranks, the one with less progress",
        ),
        pytest.param(
            ended(came_to(3, 4), came_to(3, 4), exited_first=[0, 1]),
            *("worker_died", None),
            f"one of the ranks 0, 1 exited without reporting an error after step 3; {STATUS}",
            id="of two killed ranks with the same progress, none alone",
        ),
        pytest.param(
            ended(came_to(3, 4, CONNECTION_LOST), came_to(3, 4), exited_first=[0, 1]),
            *("worker_died", 1),
            f"{RANKS[1]} exited without reporting an error after step 3; {STATUS}",
            id="a killed rank outranks its complaining peer",
        ),
        pytest.param(
            ended(came_to(3, 4, LATER), came_to(3, 4, PLANTED)),
            *("worker_error", 1, f"{RANKS[1]}: KeyError: 'planted'"),
            id="of two raising ranks, the first",
        ),
        pytest.param(
            ended(came_to(3, 4, CONNECTION_LOST), came_to(3, 3), exited_first=[0], idle=[1]),
            *("worker_stalled", 1),
            f"{RANKS[1]} stalled after step 3",
            id="the stalled rank, not the one that gave up",
        ),
        pytest.param(
            ended(came_to(3, 4), came_to(3, 3), exited_first=[0], idle=[0, 1]),
            *("worker_stalled", 1, f"{RANKS[1]} stalled after step 3"),
            id="the stalled rank, not the one that was killed waiting for it",
        ),
        pytest.param(
            ended(came_to(3, 4, CONNECTION_LOST), came_to(3, 4), error=LOST),
            *("node_lost", None, LOST.reason),
            id="a lost node outranks errors of ranks",
        ),
        pytest.param(
            ended(came_to(3), came_to(3), exited_first=[1], killed_for_memory=True),
            *("out_of_memory", None),
            "the kernel killed a worker because memory ran out",
            id="a lack of memory outranks dead ranks",
        ),
        pytest.param(
            ended([], came_to(1), exited_first=[0], logs={"rank0": f"Trace:\n{NO_SPACE}\n"}),
            *("io_error", None, NO_SPACE),
            id="a failure that a rank could not write, from its log",
        ),
        pytest.param(
            ended([], []),
            *("worker_died", None),
            f"one of 2 workers exited without reporting an error; {STATUS}",
            id="workers without events",
        ),
    ],
)
def test_the_cause_is_named_not_what_followed_from_it(run, code, rank, reason):
    failure = cause(run)
    assert (failure.code, failure.rank, failure.reason) == (code, rank, reason)
    assert failure.node == (None if rank is None else NODES[rank])


def test_a_failure_ends_with_the_last_lines_of_its_ranks_log():
    lines = [f"line {number}" for number in range(20)]
    logs = {"launcher": "of all\n", "rank0": "of 0\n", "rank1": "\n\n".join(lines)}
    run = ended(came_to(3), came_to(3), logs=logs, exited_first=[1])
    assert cause(run).log == "\n".join(lines[-8:])
    unknown = ended([], [], logs={"launcher": "cut" * 100, "rank0": ""})
    assert cause(unknown).log == ("cut" * 100)[:200]


FURTHEST = came_to(3, 4)
BEHIND = came_to(3)


@pytest.mark.parametrize(
    ("events", "rank", "behind"),
    [
        ([FURTHEST], 0, ""),
        ([FURTHEST, BEHIND], 1, f"; furthest behind: {RANKS[1]} after step 3"),
        ([FURTHEST, BEHIND, BEHIND], None, "; furthest behind: ranks 1, 2 after step 3"),
        (
            [FURTHEST, FURTHEST],
            None,
            "; all 2 ranks stopped after step 3; the logs show where",
        ),
    ],
)
def test_a_timeout_names_the_ranks_furthest_behind(events, rank, behind):
    run = ended(*events, nodes=[*NODES, NODES[1]])
    failure = timed_out(run, 1, 20, "a call of timer.step")
    assert failure.reason == f"repeat 1 took over 20 s{behind}"
    assert failure.rank == rank


def test_the_stack_of_a_hanging_rank_ends_with_its_script():
    stack = """
    Current thread 0x1 (most recent call first):
      File "train.py", line 9 in step
      File "train.py", line 20 in <module>
      File "<frozen runpy>", line 88 in _run_code
      File "perfkit/timing/rank.py", line 202 in <module>
    """
    run = ended(came_to(3), nodes=[None], logs={"launcher": dedent(stack)})
    assert timed_out(run, 1, 20, "a call of timer.step").log.endswith(
        'train.py", line 20 in <module>'
    )
