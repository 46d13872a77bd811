"""Which rank or cause is named for a failed repeat, given the state of all ranks."""

import errno
import os

import pytest
from pydantic import ValidationError

from perfkit.core.driver.exit_info import ExitInfo
from perfkit.core.driver.failures import cause, timed_out
from perfkit.core.results.failures import Failure, NodeLost

NODES = ["node 0 (a)", "node 1 (b)"]
RANKS = ["rank 0 on node 0 (a)", "rank 1 on node 1 (b)"]
DIED = "exited without reporting an error after step"


def reports(detail, code="worker_error"):
    return {"event": "failure", "code": code, "params": {"detail": detail}}


CONNECTION_LOST = reports("connection closed")
PLANTED = reports("KeyError: 'planted'")


def came_to(done, begun=None, *further):
    """Return the events of a rank that finished step `done` and got the batch of `begun`."""
    events = [{"event": "start"}]
    for step in range(1, (begun or done) + 1):
        events.append({"event": "batch", "step": step})
    for step in range(1, done + 1):
        events.append({"event": "step", "step": step})
    return [*events, *further]


EXIT = ExitInfo(
    exited_first=[],
    idle_seconds={0: 0.0, 1: 0.0},
    status=250,
    killed_for_memory=False,
    logs={},
)
"""An exit of the launcher that says nothing about the ranks."""


def cause_of(*events, **changes):
    """Return code and sentence of the failure of two ranks with these events."""
    exit_info = EXIT.model_copy(update=changes)
    failure = cause([*events], NODES, exit_info)
    return failure.code, failure.text()


def test_a_specific_error_outranks_a_peers_lost_connection():
    out_of_memory = reports("too big", "out_of_memory")
    complains = came_to(3, 4, CONNECTION_LOST)
    code, text = cause_of(complains, came_to(3, 4, out_of_memory))
    assert code == "out_of_memory"
    assert text == f"{RANKS[1]}: too big"


def test_of_two_dead_ranks_the_one_without_a_trace_in_its_log_is_named():
    logs = {"rank0": "FatalError: `Process abort signal` is detected"}
    code, text = cause_of(came_to(3, 4), came_to(3, 4), exited_first=[0, 1], logs=logs)
    assert code == "worker_died"
    assert text.startswith(f"{RANKS[1]} {DIED} 3")


def test_of_two_killed_ranks_the_one_with_less_progress_is_named():
    _code, text = cause_of(came_to(2, 4), came_to(2, 3), exited_first=[0, 1])
    assert text.startswith(f"{RANKS[1]} {DIED} 2")


def test_two_killed_ranks_with_the_same_progress_are_both_named():
    code, text = cause_of(came_to(3, 4), came_to(3, 4), exited_first=[0, 1])
    who = f"one of the ranks 0, 1 on {', '.join(NODES)}"
    died, _semicolon, _launcher = text.partition("; ")
    assert code == "worker_died"
    assert died == f"{who} {DIED} 3, with the batch of step 4"


def test_a_killed_rank_outranks_its_complaining_peer():
    complains = came_to(3, 4, CONNECTION_LOST)
    code, text = cause_of(complains, came_to(3, 4), exited_first=[0, 1])
    died = f"{RANKS[1]} {DIED} 3, with the batch of step 4"
    assert code == "worker_died"
    assert text == f"{died}; {RANKS[0]}: connection closed"


def test_two_raising_ranks_with_the_same_progress_are_both_named():
    raised = came_to(3, 4, PLANTED)
    complains = came_to(3, 4, CONNECTION_LOST)
    code, text = cause_of(complains, raised, exited_first=[0, 1])
    assert code == "worker_error"
    assert text == f"{RANKS[0]}: connection closed; {RANKS[1]}: KeyError: 'planted'"


@pytest.mark.parametrize(
    ("further", "gave_up"),
    [
        ([CONNECTION_LOST], f"{RANKS[0]}: connection closed"),
        ([], f"{RANKS[0]} exited without reporting an error"),
    ],
)
def test_the_stalled_rank_is_named_not_the_one_that_gave_up(further, gave_up):
    idle_seconds = {0: 30.0, 1: 31.0}
    gives_up = came_to(3, 4, *further)
    stalled = came_to(3, 3)
    code, text = cause_of(gives_up, stalled, exited_first=[0], idle_seconds=idle_seconds)
    assert code == "worker_stalled"
    assert text == f"{RANKS[1]} stalled after step 3; then {gave_up}"


def test_a_lost_node_outranks_rank_errors():
    lost = NodeLost(nodes=["node 1 (b)"], launcher="ssh", status=255)
    complains = came_to(3, 4, CONNECTION_LOST)
    code, text = cause_of(complains, came_to(3, 4), error=lost)
    assert code == "node_lost"
    assert text == "node 1 (b): ssh ended with status 255"


def test_a_lack_of_memory_outranks_dead_ranks():
    code, text = cause_of(came_to(3), came_to(3), exited_first=[1], killed_for_memory=True)
    assert code == "out_of_memory"
    assert text == "the kernel killed a worker because memory ran out"


def test_workers_without_events_are_reported_with_their_last_lines():
    code, text = cause_of([], [], logs={"launcher": "the first\nthe\nlast\nlines"})
    assert code == "worker_died"
    assert text == (
        "one of 2 workers exited without reporting an error; "
        "the launcher's exit status was 250; last lines: the last lines"
    )


@pytest.mark.parametrize(
    ("code", "params"),
    [
        ("worker_error", {}),
        ("timeout", {"repeat": 1, "seconds": 9}),
        ("unheard_of", {"detail": "a"}),
    ],
)
def test_an_event_that_is_no_failure_of_a_rank_is_refused(code, params):
    event = {"event": "failure", "code": code, "params": params}
    with pytest.raises(ValidationError):
        cause_of(came_to(3, 4, event), came_to(3, 4))


FURTHEST = came_to(3, 4)
BEHIND = came_to(3)


@pytest.mark.parametrize(
    ("events", "nodes", "behind"),
    [
        ([FURTHEST, BEHIND], NODES, f"; furthest behind: {RANKS[1]} after step 3"),
        (
            [FURTHEST, BEHIND, BEHIND],
            [*NODES, NODES[1]],
            "; furthest behind: ranks 1, 2 on node 1 (b) after step 3",
        ),
        (
            [FURTHEST, FURTHEST],
            NODES,
            "; all 2 ranks stopped after step 3, with the batch of step 4; "
            "the logs show where each rank was",
        ),
    ],
)
def test_a_timeout_names_the_ranks_furthest_behind(events, nodes, behind):
    failure = timed_out(1, 20, events, nodes)
    assert failure.text() == f"repeat 1 took over 20 s{behind}"


def test_an_unwritten_worker_failure_is_read_from_its_log():
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "rank0.jsonl")
    logs = {"launcher": "ended", "rank0": f"Traceback:\n  …\nOSError: {error}\n"}
    named, text = cause_of([], came_to(1), exited_first=[0], logs=logs)
    assert named == "io_error"
    assert text == f"OSError: {error}"


B = "node 1 (b)"


@pytest.mark.parametrize(
    ("code", "params", "text"),
    [
        ("loss_not_finite", {"rank": 0, "detail": "it is nan"}, "rank 0: it is nan"),
        ("io_error", {"refused_by": B, "detail": "EIO"}, f"{B}: EIO"),
        (
            "worker_died",
            {"workers": 4, "node": B, "status": -9},
            f"one of 4 workers on {B} exited without reporting an error; the launcher's exit "
            "status was -9",
        ),
        ("interrupted", {"repeat": 2}, "interrupted during repeat 2"),
        (
            "node_lost",
            {"nodes": [B], "launcher": "srun", "status": 1, "lines_lost": True, "output": "%"},
            f"{B}: srun ended with status 1; the raw steps there are lost; output: %",
        ),
        (
            "not_shared",
            {"nodes": [B], "folder": "~/out", "output": "none"},
            f"{B} did not find ~/out: outputs_dir must be a folder that all nodes share; "
            "output: none",
        ),
        (
            "nodes_differ",
            {"parameter": "gpus", "here": 2, "there": 1, "node": B},
            f"gpus: 2 requested here, 1 on {B}",
        ),
        (
            "nodes_differ",
            {"earlier_nodes": ["a", "b"]},
            "earlier repeats ran on a, b, which differ from the current nodes; set a new "
            "label: -p label NAME",
        ),
    ],
)
def test_a_stored_failure_is_read_and_has_a_sentence(code, params, text):
    stored = {"code": code, "params": params}
    failure = Failure.model_validate(stored)
    assert failure.text() == text
    assert failure.model_dump() == stored
