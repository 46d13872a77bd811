"""What may help against a failure, and how it is printed."""

import sys

import pytest
from made import SCRIPT

from perfkit.core.request.resolve import resolve
from perfkit.core.results.failures import (
    BadInput,
    Interrupted,
    LossNotFinite,
    OutOfMemory,
    Timeout,
    WorkerError,
)
from perfkit.core.results.remedies import remedy
from perfkit.core.script_config import ScriptConfig
from perfkit.report.measurement import failure_lines
from perfkit.report.text import language
from perfkit.report.text.statements import sentence

RESNET50 = resolve({"model": "resnet50", "device": "cpu", "batch_size": 8})
SMALLER = "a smaller batch: -p batch_size 4 (and -p accumulate 2 for the same samples per step)"


@pytest.mark.parametrize(
    ("failure", "request_of_llama", "expected"),
    [
        (OutOfMemory(killed=True), {}, f"{SMALLER}; or activations computed again: -p recom"),
        (
            OutOfMemory(killed=True),
            {"batch_size": 1, "recompute": "full", "sequence_length": 512},
            "smaller samples: -p sequence_length 256",
        ),
        (
            Timeout(repeat=1, seconds=900),
            {"timeout": 900},
            "a longer limit: -p timeout 1800",
        ),
        (
            LossNotFinite(detail="NaN"),
            {"framework": "torch", "precision": "bf16"},
            "see whether it is the precision: -p precision fp32",
        ),
        (LossNotFinite(detail="NaN"), {}, ""),
        (Interrupted(), {}, ""),
    ],
)
def test_a_remedy_fits_the_request(failure, request_of_llama, expected):
    usual = {"model": "llama", "device": "cpu", "batch_size": 8}
    found = remedy(failure, resolve(usual | request_of_llama))
    text = found.text() if found else ""
    assert text.startswith(expected)
    assert bool(text) == bool(expected)


def test_a_remedy_is_told_in_the_readers_language():
    found = remedy(OutOfMemory(killed=True), RESNET50)
    assert found.text().startswith(SMALLER)
    with language.in_language("zh"):
        assert sentence(found) == (
            "减小批：-p batch_size 4（并用 -p accumulate 2 使每步样本数不变）；"
            "或减小样本：-p image_size 112"
        )


def test_a_script_is_told_to_take_a_smaller_batch_itself():
    config = ScriptConfig(**SCRIPT)
    expected = "a smaller batch, by an argument of the script"
    assert remedy(OutOfMemory(killed=True), config).text() == expected


def test_a_missing_module_comes_with_the_command_that_installs_tested_versions():
    error = WorkerError(rank=0, detail="ModuleNotFoundError: No module named 'scipy.stats'")
    command = f"{sys.executable} -m pip install -c constraints.txt scipy"
    assert remedy(error, RESNET50).text().endswith(f": {command}")
    elsewhere = RESNET50.model_copy(update={"python": "/env/bin/python"})
    assert remedy(error, elsewhere).text().endswith(": /env/bin/python -m pip install scipy")


def test_a_failure_has_a_line_for_each_error_and_one_for_the_remedy():
    faults = BadInput(detail="list.txt:1: no such file: a\nlist.txt:2: no such\x1b[31m file: b")
    assert failure_lines(faults, RESNET50) == [
        "  bad_input: list.txt:1: no such file: a",
        "  list.txt:2: no such\N{REPLACEMENT CHARACTER}[31m file: b",
    ]
    assert failure_lines(OutOfMemory(killed=True), RESNET50) == [
        "  out_of_memory: the kernel killed a worker because memory ran out",
        f"  Remedy: {SMALLER}; or smaller samples: -p image_size 112",
    ]
