"""The answer of an audit: a log's throughput in one line, and what the command line states."""

from functools import partial

import numpy as np
import pytest
from conftest import cli
from log_writers import SUITES

from perfkit.audit.auditing import audit
from perfkit.audit.parameters import stated_facts

run = partial(cli, "audit")


def on_one_line(text):
    return " ".join(text.split())


@pytest.fixture
def audited(tmp_path):
    """Returns the audit of a log with this text and stated facts."""

    def audited_log(text, name="some.log", **stated):
        path = tmp_path / name
        path.write_text(text)
        (log,) = audit([path], stated=stated).logs
        return log

    return audited_log


# Stated facts.

HALF_A_SECOND = np.full(140, 0.5)
WITHOUT_BATCH = SUITES["mmcv"].text(HALF_A_SECOND)
"""A log whose lines print times alone, 0.5 s for each step."""


@pytest.mark.parametrize("text", ["8030000000", "8.03e9", "8,030,000,000", "8_030_000_000"])
def test_a_count_is_typed_in_common_spellings(text):
    assert stated_facts([("parameters", text)]) == {"parameters": 8_030_000_000}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-p", "batchsize", "8"], "did you mean batch_size? known: batch_size, global_"),
        (["-p", "tokens", "8"], "no fact of a log is called tokens; known: batch_size"),
        (["-p", "batch_size", "8.5"], "-p batch_size: 8.5 is no whole number"),
        (["-p", "devices", "many"], "-p devices: many is no whole number"),
        (["-p", "devices", "0"], "-p devices: 0 is no whole number"),
    ],
)
def test_what_is_no_fact_is_refused(words, why, tmp_path):
    done = run(tmp_path, *words)
    assert done.exit_code == 2
    assert why in on_one_line(done.stderr)


def test_stated_facts_give_a_throughput(audited):
    log = audited(WITHOUT_BATCH, batch_size=32, ranks=4)
    assert log.reference.per_device == pytest.approx(64)
    assert log.reference.throughput == pytest.approx(256)
    assert log.facts["batch_size"].by.text() == "the command line"


def test_a_stated_fact_wins_over_the_log(audited):
    text = (
        f"batch_size_per_gpu : 128 \n{SUITES['PaddleClas, static graph'].text(HALF_A_SECOND)}"
    )
    log = audited(text, batch_size=64)
    assert log.fact("batch_size") == 64
    texts = [located.finding.text() for located in log.findings]
    assert "batch_size is 128 by line 1, but 64 by the command line." in texts


def test_facts_that_follow_from_others_follow_from_stated_ones(audited):
    log = audited(SUITES["Megatron-LM"].text(HALF_A_SECOND), global_batch_size=256, ranks=8)
    assert log.fact("batch_size") == 32


def test_the_command_takes_stated_facts(tmp_path):
    path = tmp_path / "some.log"
    path.write_text(WITHOUT_BATCH)
    assert "64.00000" in run(path, "-p", "batch_size=32").stdout
