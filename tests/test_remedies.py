"""What may help against a failure, and how it is printed."""

import pytest
from made.results import script_config

from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.remedies import remedy
from perfkit.report.measurement import failure_lines

RESNET50 = resolve({"model": "resnet50", "device": "cpu", "batch_size": 8})
SMALLER = "a smaller batch: -p batch_size 4 (and -p accumulate 2 for the same samples per step)"


def failed(code, reason="why", **fields):
    return Failure(code=code, reason=reason, **fields)


@pytest.mark.parametrize(
    ("code", "request_of_llama", "expected"),
    [
        (
            "out_of_memory",
            {"sequence_length": 128},
            f"{SMALLER}; or activations computed again: -p recompute full",
        ),
        (
            "out_of_memory",
            {"batch_size": 1, "recompute": "full", "sequence_length": 512},
            "smaller samples: -p sequence_length 256",
        ),
        ("timeout", {"timeout": 900}, "a longer limit: -p timeout 1800"),
        (
            "loss_not_finite",
            {"framework": "torch", "precision": "bf16"},
            "see whether it is the precision: -p precision fp32",
        ),
        ("loss_not_finite", {}, ""),
        ("worker_error", {}, ""),
    ],
)
def test_a_remedy_fits_the_request(code, request_of_llama, expected):
    usual = {"model": "llama", "device": "cpu", "batch_size": 8}
    assert remedy(failed(code), resolve(usual | request_of_llama)) == expected


def test_a_script_is_told_to_take_a_smaller_batch_itself():
    config = script_config()
    expected = "a smaller batch, by an argument of the script"
    assert remedy(failed("out_of_memory"), config) == expected


def test_a_failure_is_printed_with_each_error_its_remedy_and_the_last_lines_of_the_log():
    errors = "list.txt:1: no such file: a\nlist.txt:2: no such\x1b[31m file: b"
    assert failure_lines(failed("bad_input", errors), RESNET50) == [
        "  bad_input: list.txt:1: no such file: a",
        "  list.txt:2: no such\N{REPLACEMENT CHARACTER}[31m file: b",
    ]
    killed = failed("out_of_memory", "no room", log="line 7\nKilled\x1b[0m")
    assert failure_lines(killed, RESNET50) == [
        "  out_of_memory: no room",
        f"  Remedy: {SMALLER}; or smaller samples: -p image_size 112",
        "  Last lines of the log:",
        "  | line 7",
        "  | Killed\N{REPLACEMENT CHARACTER}[0m",
    ]
