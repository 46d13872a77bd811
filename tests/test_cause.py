"""Which rank is named for the end of a repeat, from what is known of all of them."""

import errno
import os

import pytest

from perfkit.driver.failures import cause, failure, furthest_behind, unwritten
from perfkit.driver.workers import ExitInfo
from perfkit.text.messages import sentence
from perfkit.worker import rank as worker

NODES = ["node 0 (a)", "node 1 (b)"]
NAMES = ["rank 0 on node 0 (a)", "rank 1 on node 1 (b)"]
CONNECTION_LOST = {
    "event": "failure",
    "code": "worker_error",
    "params": {"detail": "connection closed"},
}


def came_to(done, begun=None, *further):
    """Events of a rank that finished step `done` and had the batch of step `begun`."""
    batches = [{"event": "batch", "step": n} for n in range(1, (begun or done) + 1)]
    steps = [{"event": "step", "step": n} for n in range(1, done + 1)]
    return [{"event": "start"}, *batches, *steps, *further]


def found(events, exited_at=None, idle_seconds=(0, 0), **changes):
    exit_info = {"status": 250, "exited_at": exited_at or {}, "killed_for_memory": False}
    exit_info |= {"free_bytes": 2**30, "logs": {}} | changes
    return cause(events, NODES, ExitInfo(**exit_info), list(idle_seconds))


def test_a_named_cause_comes_before_a_peers_lost_connection():
    memory = {"event": "failure", "code": "out_of_memory", "params": {"detail": "too big"}}
    told = found([came_to(3, 4, CONNECTION_LOST), came_to(3, 4, memory)])
    assert (told.code, sentence(told)) == ("out_of_memory", f"{NAMES[1]}: too big")


def test_a_rank_killed_at_the_same_look_as_its_aborted_peer_is_the_one_that_left_no_words():
    events = [came_to(3, 4), came_to(3, 4)]
    for killed in (0, 1):
        logs = {f"rank{1 - killed}": "FatalError: `Process abort signal` is detected"}
        told = found(events, exited_at={0: 5.0, 1: 5.0}, logs=logs)
        assert told.code == "worker_died"
        assert sentence(told).startswith(
            f"{NAMES[killed]} exited without reporting an error after step 3"
        )


def test_a_rank_that_was_gone_first_comes_before_a_peer_that_complains():
    told = found([came_to(3, 4, CONNECTION_LOST), came_to(3, 4)], exited_at={1: 5.0, 0: 5.4})
    assert told.code == "worker_died"
    assert sentence(told) == (
        f"{NAMES[1]} exited without reporting an error after step 3, with the batch of step 4; "
        f"{NAMES[0]}: connection closed"
    )


def test_a_rank_that_raises_is_named_though_its_peer_is_aborted():
    raised = {
        "event": "failure",
        "code": "worker_error",
        "params": {"detail": "KeyError: 'planted'"},
    }
    logs = {"rank0": "FatalError: `Process abort signal`"}
    told = found([came_to(3, 4), came_to(3, 3, raised)], exited_at={0: 5.0, 1: 5.0}, logs=logs)
    assert sentence(told) == f"{NAMES[1]}: KeyError: 'planted'"


@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("ended_by_launcher_at", [5.1, 6.5])
def test_a_rank_that_the_others_gave_up_on_is_named_not_the_one_that_gave_up(
    reports, ended_by_launcher_at
):
    patient = came_to(3, 4, *([CONNECTION_LOST] if reports else []))
    exited_at = {0: 5.0, 1: ended_by_launcher_at}
    told = found([patient, came_to(3, 3)], exited_at, idle_seconds=(30, 31))
    assert told.code == "worker_stalled"
    assert sentence(told).startswith(f"{NAMES[1]} stalled after step 3; then {NAMES[0]}")


def test_a_rank_that_is_behind_for_a_moment_has_not_stalled():
    told = found(
        [came_to(3, 4), came_to(3, 3)], exited_at={0: 5.0, 1: 6.5}, idle_seconds=(0.3, 0.3)
    )
    assert sentence(told).startswith(
        f"{NAMES[0]} exited without reporting an error after step 3"
    )


def test_an_error_of_a_node_comes_before_what_its_peers_make_of_it():
    lost = failure("node_lost", node="node 1 (b)", detail="it closed the connection")
    assert found([came_to(3, 4, CONNECTION_LOST), came_to(3, 4)], error=lost) == lost


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"free_bytes": 0}, "disk_full"), ({"killed_for_memory": True}, "out_of_memory")],
)
def test_what_the_machine_lacked_is_told_where_no_rank_could(changes, code):
    assert found([came_to(3), came_to(3)], exited_at={1: 5.0}, **changes).code == code


def test_ranks_that_ended_well_are_not_blamed():
    well = came_to(9, 9, {"event": "end"})
    told = found([well, came_to(9, 9)], exited_at={0: 5.0, 1: 5.2})
    assert sentence(told).startswith(
        f"{NAMES[1]} exited without reporting an error after step 9"
    )


def test_workers_that_never_came_to_a_first_word_are_told_with_their_last_lines():
    told = found([[], []], logs={"launcher": "the first\nthe\nlast\nlines"})
    assert told.code == "worker_died"
    assert sentence(told) == (
        "one of 2 workers exited without reporting an error; "
        "the launcher's exit status was 250; last lines: the last lines"
    )


def at_a_time_out(events, nodes):
    return sentence(
        failure("timeout", repeat=1, seconds=20, **furthest_behind(events, nodes))
    ).removeprefix("repeat 1 took over 20 s; ")


def test_at_a_time_out_the_rank_that_is_waited_for_is_named_as_far_as_that_can_be_seen():
    assert at_a_time_out([came_to(3, 4), came_to(3, 3)], NODES) == (
        f"furthest behind: {NAMES[1]} after step 3"
    )
    assert at_a_time_out([came_to(3, 4), []], NODES) == f"furthest behind: {NAMES[1]}"
    assert at_a_time_out([came_to(3, 4), came_to(3), came_to(3)], [*NODES, NODES[1]]) == (
        "furthest behind: ranks 1, 2 on node 1 (b) after step 3"
    )
    assert at_a_time_out([came_to(3, 4), came_to(3), came_to(3)], [None] * 3) == (
        "furthest behind: ranks 1, 2 after step 3"
    )
    assert at_a_time_out([came_to(3, 4), came_to(3, 4)], NODES) == (
        "all 2 ranks stopped after step 3, with the batch of step 4; "
        "the logs show where each rank was"
    )


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_worker_that_had_no_room_to_say_so_is_heard_by_its_log(number):
    """For another file, or in its user's share: there may be free bytes on the disk."""
    error = OSError(number, os.strerror(number), "rank0.jsonl")
    logs = {"launcher": "ended", "rank0": f"Traceback:\n  …\nOSError: {error}\n"}
    told = found([[], came_to(1)], exited_at={0: 5.0}, logs=logs)
    assert (told.code, sentence(told)) == ("disk_full", f"OSError: {error}")
    assert worker.classify(error)[0] == unwritten(error).code == "disk_full"


def test_a_driver_that_cannot_write_for_another_reason_says_which():
    assert unwritten(OSError(errno.EACCES, "Permission denied", "x")).code == "worker_error"
