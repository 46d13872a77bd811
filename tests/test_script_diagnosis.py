"""What limits a script, and commands that do not know scripts."""

import pytest
from conftest import cli
from made import keep, script_measured

from perfkit import report
from perfkit.analysis.diagnosis.script import ScriptDiagnosis
from perfkit.audit.reader import read_logs


def diagnosed(*wait_shares, batch=0.01, step=0.1, batches=1.0, accelerated=False):
    return ScriptDiagnosis([*wait_shares], batch, step, batches, accelerated)


@pytest.mark.parametrize(
    ("diagnosis", "verdict"),
    [
        (diagnosed(0.01, 0.04), "training-bound"),
        (diagnosed(0.01, 0.2), "undecided"),
        (diagnosed(0.8, 0.9, batch=0.1), "input-bound"),
        (diagnosed(0.8, 0.9, batch=0.025, batches=4.0), "input-bound"),
        (diagnosed(0.8, 0.9, batch=0.025), "mixed"),
        (diagnosed(0.3, 0.4), "mixed"),
        (diagnosed(0.3, 0.4, accelerated=True), "undecided"),
    ],
)
def test_the_wait_for_data_and_the_input_alone_say_what_limits_a_script(diagnosis, verdict):
    assert diagnosis.verdict == verdict
    assert verdict in [statement.code for statement in diagnosis.statements]


def test_a_wait_on_an_accelerator_is_not_called_lost_time():
    codes = [statement.code for statement in diagnosed(0.3, accelerated=True).statements]
    assert codes[-1] == "device_may_compute"


def test_verify_says_that_it_knows_no_scripts():
    result = cli("verify", "train.py")
    assert result.exit_code == 2
    assert "train.py: verify compares the frameworks' built-in models" in result.output


def test_the_section_on_work_equivalence_says_that_a_script_has_none(tmp_path):
    measurement = keep(tmp_path / "script", script_measured([100.0]))
    (part,) = report.work_equivalence(measurement).parts
    assert "not a script" in part.html


def test_an_audit_reads_the_steps_of_a_script(tmp_path):
    measurement = keep(tmp_path / "script", script_measured([100.0, 101.0, 102.0]))
    (log,) = read_logs(measurement.result_file)
    assert log.facts["batch_size"].value == 64
    assert "model" not in log.facts
