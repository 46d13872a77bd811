"""Why a script's repeat failed, given the events of its ranks."""

import pytest
from made.results import event

from perfkit.measuring.driver.exit_info import ExitInfo
from perfkit.measuring.driver.failures import EndedRun, cause
from perfkit.measuring.driver.told_failures import told_failure
from perfkit.measuring.results.effective import Told

TOLD = {
    "samples_per_step": 4,
    "unit": "images",
    "framework": "torch",
    "device": "cpu",
    "device_name": "a CPU",
    "step_clock": "host",
    "counts_data_wait": False,
}
FIRST = Told.model_validate(TOLD)
END = event("end", memory_bytes=1)
PAUSE = event("pause", step=3, seconds=1.0)
UNUSED = event("failure", code="timer_unused", message="never called", at=0.0)
LOST = event("failure", code="worker_error", message="connection closed", at=0.0)
EXIT = ExitInfo(status=1, killed_for_memory=False, logs={})


def told(*further, **changes):
    """Return the events of a rank that told this to the timer."""
    return [event("start", pid=1), event("told", **TOLD | changes), *further]


def never_told(*further):
    return [event("start", pid=1), *further]


def failure_of(*ranks, first_told=None):
    """Return the failure of a second repeat with the events of these ranks."""
    return told_failure(EndedRun(ranks, [None] * len(ranks), EXIT), 2, first_told)


@pytest.mark.parametrize(
    ("ranks", "given", "code", "rank", "reason"),
    [
        pytest.param(
            [told(END), never_told()],
            {},
            *("timer_on_some_ranks", 1),
            "ranks that called timer.step: 0; that did not: 1; every rank must call it",
            id="a rank without the timer, once another has finished",
        ),
        pytest.param(
            [told(LOST), never_told(UNUSED)],
            {},
            *("timer_on_some_ranks", 1),
            "ranks that called timer.step: 0; that did not: 1; every rank must call it",
            id="a rank that ended without the timer, though no other has finished",
        ),
        pytest.param(
            [told(), told(device_name="another CPU"), told(samples_per_step=8)],
            {},
            *("told_differs", 2),
            "the script told the timer samples_per_step = 8 on rank 2, 4 on rank 0; every rank "
            "must tell the same",
            id="ranks that tell something else",
        ),
        pytest.param(
            [told(END, unit="words"), told(END, unit="words")],
            {"first_told": FIRST},
            *("told_differs", 0),
            "the training told unit = 'words' in repeat 2, 'images' in the first one; "
            "that is other work: give it another label (-p label NAME), or make it do the "
            "same in every run",
            id="a repeat that tells something else",
        ),
        pytest.param(
            [told(PAUSE, PAUSE, END), told(PAUSE, END)],
            {},
            *("paused_on_some_ranks", 1),
            "ranks 0 and 1 did not both pause the timer after step 3, so that one waited for "
            "the other within its window; every rank must call timer.pause",
            id="ranks that did not pause together",
        ),
    ],
)
def test_what_makes_a_repeat_useless_has_a_sentence(ranks, given, code, rank, reason):
    failure = failure_of(*ranks, **given)
    assert (failure.code, failure.rank, failure.reason) == (code, rank, reason)


@pytest.mark.parametrize(
    ("ranks", "given"),
    [
        ([told(END), told(END)], {"first_told": FIRST}),
        ([told(PAUSE, END), told(PAUSE, END)], {}),
        ([told(), told(device_name="another CPU")], {}),
        ([told(), never_told(LOST)], {}),
        ([never_told(UNUSED), never_told(UNUSED)], {}),
    ],
)
def test_ranks_that_agree_and_those_that_failed_otherwise_are_not_blamed(ranks, given):
    assert failure_of(*ranks, **given) is None


def test_a_scripts_own_failure_outranks_its_peers_lost_connection():
    own = event("failure", code="script_exit", message="why", at=1.0)
    failure = cause(EndedRun([told(LOST), told(own)], [None, None], EXIT))
    assert (failure.code, failure.rank, failure.reason) == ("script_exit", 1, "rank 1: why")
