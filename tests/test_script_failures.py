"""Why a script's repeat failed, given the events of its ranks."""

import pytest
from made import event
from pydantic import ValidationError

from perfkit.core.driver.exit_info import ExitInfo
from perfkit.core.driver.failures import cause
from perfkit.core.driver.script_failures import (
    ScriptRun,
    different_in_repeat,
    different_on_ranks,
    paused_on_some_ranks,
    script_failure,
    timer_never_called,
    timer_on_some_ranks,
    wrong_device,
)
from perfkit.core.results.failures import Failure
from perfkit.core.results.told import Told
from perfkit.core.script_config import ScriptConfig

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
UNUSED = event("failure", code="timer_unused", params={})
LOST = event("failure", code="worker_error", params={"detail": "connection closed"})


def told(*further, **changes):
    """Return the events of a rank that told this to the timer."""
    return [event("start", pid=1), event("told", **TOLD | changes), *further]


def never_told(*further):
    return [event("start", pid=1), *further]


def ranks(*events, nodes=None):
    return ScriptRun(events, nodes or [None] * len(events))


def sentence(failure):
    """Return the text of a failure as it is read again from its stored form."""
    return Failure.model_validate_json(failure.model_dump_json()).text()


def test_another_device_than_asked_for_is_named():
    run = ranks(told(END), told(END, device="gpu"), nodes=["node 0 (a)", "node 1 (b)"])
    assert sentence(wrong_device("cpu", run)) == (
        "rank 1 on node 1 (b): device=cpu was requested, but the script trained on gpu; let it "
        "use cpu, or ask for the other: -p device gpu"
    )
    assert wrong_device("cpu", ranks(told())) is None


@pytest.mark.parametrize(
    ("others", "text"),
    [
        (
            never_told(),
            "ranks that called timer.step: 0; that did not: 1; every rank must call it",
        ),
        (
            never_told(LOST),
            "ranks that called timer.step: 0; that did not: 1 (rank 1: connection closed); "
            "every rank must call it",
        ),
    ],
)
def test_ranks_without_a_timer_are_named_once_another_has_finished(others, text):
    assert sentence(timer_on_some_ranks(ranks(told(END), others))) == text
    assert timer_on_some_ranks(ranks(told(), others)) is None


def test_a_rank_that_ended_without_a_timer_is_named_though_no_other_has_finished():
    failure = timer_on_some_ranks(ranks(told(LOST), never_told(UNUSED)))
    assert failure.ranks == [0]
    assert failure.others == [1]


def test_a_timer_on_all_ranks_or_on_none_is_not_a_timer_on_some():
    assert timer_on_some_ranks(ranks(told(END), told(END))) is None
    assert timer_on_some_ranks(ranks(never_told(UNUSED), never_told(UNUSED))) is None


def test_a_script_that_ran_into_the_time_limit_without_a_timer_is_told_what_to_do():
    text = sentence(timer_never_called(9, ranks(never_told(), never_told())))
    assert text.startswith(
        "the script ran for over 9 s and never called timer.step; call timer.step(loss)"
    )
    assert timer_never_called(9, ranks(told(), never_told())) is None


def test_ranks_must_tell_the_same_but_for_the_name_of_their_device():
    run = ranks(told(), told(device_name="another CPU"), told(samples_per_step=8))
    assert sentence(different_on_ranks(run)) == (
        "the script told the timer samples_per_step = 8 on rank 2, 4 on rank 0; every rank "
        "must tell the same"
    )
    assert different_on_ranks(ranks(told(), told(device_name="another CPU"))) is None


def test_repeats_must_tell_the_same():
    run = ranks(told(unit="words"))
    assert sentence(different_in_repeat(3, FIRST, run)) == (
        "the script told the timer unit = 'words' in repeat 3, 'images' in the first one; that "
        "is other work: give it another label (-p label NAME), or make the script do the same "
        "in every run"
    )
    assert different_in_repeat(3, FIRST, ranks(told())) is None


def test_a_fact_that_only_one_rank_told_differs():
    failure = different_on_ranks(ranks(told(), told(parameters=5)))
    assert (failure.name, failure.here, failure.there) == ("parameters", 5, None)


def config(**changes):
    """Return the configuration of a script on two ranks."""
    values = {"script": "train.py", "framework": "torch", "device": "cpu", "gpus": 0}
    values |= {"processes": 2, "launcher": "local", "script_sha256": "0" * 64, "modules": []}
    return ScriptConfig.model_validate(values | changes)


def code(run, first_told=None, was_too_slow=False, **changes):
    """Return the code of a repeat's failure; None without one."""
    failure = script_failure(config(**changes), run, 2, first_told, was_too_slow=was_too_slow)
    return failure and failure.code


def test_finished_ranks_that_agree_with_the_first_repeat_have_no_failure():
    run = ranks(told(END), told(END))
    assert code(run) is None
    assert code(run, FIRST) is None
    assert code(run, FIRST, device="gpu", gpus=2) == "config_mismatch"
    assert code(run, FIRST.model_copy(update={"unit": "tokens"})) == "told_differs"


def test_ranks_that_did_not_pause_together_waited_for_each_other():
    pause = event("pause", step=3, seconds=1.0)
    alone = ranks(told(pause, pause, END), told(pause, END))
    assert sentence(paused_on_some_ranks(alone)) == (
        "ranks 0 and 1 did not both pause the timer after step 3, so that one waited for the "
        "other within its window; every rank must call timer.pause"
    )
    assert code(alone) == "paused_on_some_ranks"
    assert code(ranks(told(pause, END), told(pause, END))) is None


def test_a_wrong_device_outranks_that_ranks_differ():
    assert code(ranks(told(), told(device="gpu"))) == "config_mismatch"


def test_a_script_that_was_too_slow_is_blamed_only_if_it_never_called_the_timer():
    assert code(ranks(never_told(), never_told()), was_too_slow=True) == "timer_unused"
    assert code(ranks(never_told(), never_told())) is None
    assert code(ranks(told(), told()), was_too_slow=True) is None


def test_forged_telling_is_refused():
    with pytest.raises(ValidationError):
        code(ranks(told(unit="<b>"), told()))


EXIT = ExitInfo(status=1, killed_for_memory=False, logs={})


@pytest.mark.parametrize(
    ("code", "params", "text"),
    [
        (
            "ended_early",
            {"step": 5, "steps": 30},
            "rank 1: the script ended after step 5 of 30; let it train longer, or measure "
            "fewer steps: -p measured_steps NUMBER",
        ),
        (
            "script_exit",
            {"status": 3, "step": 0},
            "rank 1: the script exited with status 3 after step 0",
        ),
        (
            "script_exit",
            {"status": 1, "step": 7, "detail": "no data"},
            "rank 1: the script exited with status 1 after step 7: no data",
        ),
        (
            "late_warmup",
            {"step": 42, "last_step": 40},
            "rank 1 had already taken step 42 when it learned that the warm-up ends after step "
            "40; fix the length of the warm-up: -p warmup_steps NUMBER",
        ),
        (
            "timer_unused",
            {},
            "the script ended and never called timer.step; make timer = perfkit.StepTimer("
            "samples_per_step=N) before the training, and call timer.step(loss) after each "
            "step of the optimizer",
        ),
        (
            "timer_unused",
            {"timer_made": True},
            "the script made a timer, but ended and never called timer.step; call "
            "timer.step(loss) after each step of the optimizer",
        ),
    ],
)
def test_a_scripts_own_failure_outranks_its_peers_lost_connection(code, params, text):
    reported = event("failure", code=code, params=params)
    failure = cause([told(LOST), told(reported)], [None, None], EXIT)
    assert failure.code == code
    assert sentence(failure) == text
