"""Which rank or cause is named for a failed repeat, given the state of all ranks."""

import errno
import os
from itertools import product

import pytest

from perfkit.core.driver.failures import cause, failure, furthest_behind, unwritten
from perfkit.core.driver.workers import ExitInfo
from perfkit.core.worker import rank as worker
from perfkit.report.text.messages import sentence

NODES = ["node 0 (a)", "node 1 (b)"]
NAMES = ["rank 0 on node 0 (a)", "rank 1 on node 1 (b)"]
DIED = "exited without reporting an error after step"


def reported(detail, code="worker_error"):
    return {"event": "failure", "code": code, "params": {"detail": detail}}


CONNECTION_LOST = reported("connection closed")


def came_to(done, begun=None, *further):
    """Return the events of a rank that finished step `done` and got the batch of `begun`."""
    batches = [{"event": "batch", "step": n} for n in range(1, (begun or done) + 1)]
    steps = [{"event": "step", "step": n} for n in range(1, done + 1)]
    return [{"event": "start"}, *batches, *steps, *further]


def found(*events, exited_first=(), idle_seconds=(0.0, 0.0), **changes):
    """Return code and sentence of the failure."""
    exit_info = {"status": 250, "exited_first": [*exited_first], "killed_for_memory": False}
    exit_info |= {"free_bytes": 2**30, "logs": {}} | changes
    idle = dict(enumerate(idle_seconds))
    named = cause([*events], NODES, ExitInfo(**exit_info, idle_seconds=idle))
    return named.code, sentence(named)


def test_a_specific_error_outranks_a_peers_lost_connection():
    memory = reported("too big", "out_of_memory")
    named = found(came_to(3, 4, CONNECTION_LOST), came_to(3, 4, memory))
    assert named == ("out_of_memory", f"{NAMES[1]}: too big")


@pytest.mark.parametrize("killed", [0, 1])
def test_of_two_dead_ranks_the_one_without_a_trace_in_its_log_is_named(killed):
    logs = {f"rank{1 - killed}": "FatalError: `Process abort signal` is detected"}
    code, text = found(came_to(3, 4), came_to(3, 4), exited_first=(0, 1), logs=logs)
    assert code == "worker_died" and text.startswith(f"{NAMES[killed]} {DIED} 3")


@pytest.mark.parametrize(("killed", "named"), [((3, 4), NAMES[0]), ((2, 3), NAMES[1])])
def test_of_two_killed_ranks_the_one_with_less_progress_is_named(killed, named):
    _code, text = found(came_to(2, 4), came_to(*killed), exited_first=(0, 1))
    assert text.startswith(f"{named} {DIED} 2")


def test_two_killed_ranks_with_the_same_progress_are_both_named():
    code, text = found(came_to(3, 4), came_to(3, 4), exited_first=(0, 1))
    who = f"one of the ranks 0, 1 on {', '.join(NODES)}"
    assert (code, text.partition("; ")[0]) == (
        "worker_died",
        f"{who} {DIED} 3, with the batch of step 4",
    )


def test_a_killed_rank_outranks_its_complaining_peer():
    complains = came_to(3, 4, CONNECTION_LOST)
    assert found(complains, came_to(3, 4), exited_first=(0, 1)) == (
        "worker_died",
        f"{NAMES[1]} {DIED} 3, with the batch of step 4; {NAMES[0]}: connection closed",
    )


def test_a_raising_rank_outranks_its_aborted_peer():
    raised = came_to(3, 3, reported("KeyError: 'planted'"))
    logs = {"rank0": "FatalError: `Process abort signal`"}
    _code, text = found(came_to(3, 4), raised, exited_first=(0, 1), logs=logs)
    assert text == f"{NAMES[1]}: KeyError: 'planted'"


def test_of_two_raising_ranks_the_one_with_less_progress_is_named():
    raised = came_to(3, 3, reported("KeyError: 'planted'"))
    complains = came_to(3, 4, CONNECTION_LOST)
    assert found(complains, raised, exited_first=(0, 1)) == (
        "worker_error",
        f"{NAMES[1]}: KeyError: 'planted'",
    )


def test_two_raising_ranks_with_the_same_progress_are_both_named():
    raised = came_to(3, 4, reported("KeyError: 'planted'"))
    complains = came_to(3, 4, CONNECTION_LOST)
    assert found(complains, raised, exited_first=(0, 1)) == (
        "worker_error",
        f"{NAMES[0]}: connection closed; {NAMES[1]}: KeyError: 'planted'",
    )


@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("exited_first", [(0,), (0, 1)])
def test_the_stalled_rank_is_named_not_the_one_that_gave_up(reports, exited_first):
    patient = came_to(3, 4, *([CONNECTION_LOST] if reports else []))
    idle_seconds = (30.0, 31.0)
    code, text = found(
        patient, came_to(3, 3), exited_first=exited_first, idle_seconds=idle_seconds
    )
    assert code == "worker_stalled"
    assert text.startswith(f"{NAMES[1]} stalled after step 3; then {NAMES[0]}")


def test_a_rank_behind_for_a_moment_has_not_stalled():
    times = {"exited_first": (0,), "idle_seconds": (0.3, 0.3)}
    _code, text = found(came_to(3, 4), came_to(3, 3), **times)
    assert text.startswith(f"{NAMES[0]} {DIED} 3")


def test_node_and_machine_errors_outrank_rank_errors():
    lost = failure("node_lost", nodes=["node 1 (b)"], launcher="ssh", status=255)
    named = found(came_to(3, 4, CONNECTION_LOST), came_to(3, 4), error=lost)
    assert named == ("node_lost", sentence(lost))
    codes = {"disk_full": {"free_bytes": 0}, "out_of_memory": {"killed_for_memory": True}}
    for code, changes in codes.items():
        assert found(came_to(3), came_to(3), exited_first=(1,), **changes)[0] == code


def test_ranks_that_ended_normally_are_not_blamed():
    ended = came_to(9, 9, {"event": "end"})
    _code, text = found(ended, came_to(9, 9), exited_first=(0, 1))
    assert text.startswith(f"{NAMES[1]} {DIED} 9")


def test_workers_without_events_are_reported_with_their_last_lines():
    assert found([], [], logs={"launcher": "the first\nthe\nlast\nlines"}) == (
        "worker_died",
        "one of 2 workers exited without reporting an error; "
        "the launcher's exit status was 250; last lines: the last lines",
    )


@pytest.mark.parametrize(
    ("events", "nodes", "detail"),
    [
        ([came_to(3, 4), came_to(3, 3)], NODES, f"furthest behind: {NAMES[1]} after step 3"),
        ([came_to(3, 4), []], NODES, f"furthest behind: {NAMES[1]}"),
        (
            [came_to(3, 4), came_to(3), came_to(3)],
            [*NODES, NODES[1]],
            "furthest behind: ranks 1, 2 on node 1 (b) after step 3",
        ),
        (
            [came_to(3, 4), came_to(3), came_to(3)],
            [None] * 3,
            "furthest behind: ranks 1, 2 after step 3",
        ),
        (
            [came_to(3, 4), came_to(3, 4)],
            NODES,
            "all 2 ranks stopped after step 3, with the batch of step 4; "
            "the logs show where each rank was",
        ),
    ],
)
def test_a_timeout_names_the_ranks_furthest_behind(events, nodes, detail):
    behind = failure("timeout", repeat=1, seconds=20, **furthest_behind(events, nodes))
    assert sentence(behind) == f"repeat 1 took over 20 s; {detail}"


@pytest.mark.parametrize(
    ("code", "number"),
    [
        *product(["disk_full"], (errno.ENOSPC, errno.EDQUOT)),
        *product(["io_error"], (errno.EIO, errno.EROFS)),
    ],
)
def test_an_unwritten_worker_failure_is_read_from_its_log(code, number):
    """The disk may still have free bytes, for example if a quota is exhausted."""
    error = OSError(number, os.strerror(number), "rank0.jsonl")
    logs = {"launcher": "ended", "rank0": f"Traceback:\n  …\nOSError: {error}\n"}
    named = found([], came_to(1), exited_first=(0,), logs=logs)
    assert named == (code, f"OSError: {error}")
    assert worker.classify(error)[0] == unwritten(error).code == code


def test_driver_write_errors_have_their_own_codes():
    assert unwritten(OSError(errno.EACCES, "Permission denied", "x")).code == "io_error"
    no_memory = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    assert unwritten(no_memory).code == worker.classify(no_memory)[0] == "out_of_memory"
