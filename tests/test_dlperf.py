"""DLPerf's own summary of a folder in its layout."""

import shutil

import numpy as np
import pytest
from conftest import cli
from log_writers import SUITES

import perfkit
from perfkit.audit import dlperf
from perfkit.audit.audit import Case

PUBLISHED = {
    "1n1g": (352.23, 1.0),
    "1n2g": (633.65, 1.8),
    "1n4g": (1357.45, 3.87),
    "1n8g": (2621.2, 7.47),
    "2n8g": (4890.44, 13.88),
    "4n8g": (9311.85, 26.55),
}
"""Topology -> speed and speed-up that DLPerf published."""
LAST_ON_ONE_DEVICE = 350.77
"""Speed of the last run on one device, DLPerf's other base of speed-ups."""


@pytest.fixture(scope="module")
def cases():
    """The runs of ResNet-50 that DLPerf published."""
    table = perfkit.published().query("table == 'dlperf-resnet50-run'")
    cases = []
    for (nodes, devices), runs in table.groupby(["nodes", "gpus_per_node"])["throughput"]:
        speeds = dict(enumerate(runs))
        name = f"{nodes}n{devices}g"
        cases.append(Case(model="r50", case=name, batch_size=128, speeds=speeds))
    return cases


def test_dlperfs_published_summary_is_reproduced(cases):
    summary = dlperf.summary(cases, "mean")["r50"]
    base = {"average_speed": 352.23, "batch_size_per_device": 128, "speedup": 1.0}
    assert summary["1n1g"] == base
    other_base = []
    for case, (speed, speed_up) in PUBLISHED.items():
        assert summary[case]["average_speed"] == speed
        if summary[case]["speedup"] != speed_up:
            assert speed_up == round(speed / LAST_ON_ONE_DEVICE, 2)
            other_base.append(case)
    assert other_base == ["1n4g", "1n8g", "4n8g"]


def test_a_folder_in_dlperfs_layout_prints_its_summary(tmp_path):
    for case, seconds in (("1n1g", 0.35), ("16n8g", 0.4)):
        (tmp_path / case).mkdir()
        text = SUITES["Paddle 1.8 (DLPerf)"].text(np.full(140, seconds), 1)
        for number in (1, 2):
            (tmp_path / case / f"r50_b128_fp32_{number}.log").write_text(text)
    shutil.copy(tmp_path / "1n1g" / "r50_b128_fp32_1.log", tmp_path / "other.log")
    output = cli("audit", tmp_path).stdout
    assert "DLPerf's summary (mean)" in output
    assert "{'r50': {'16n8g': {'average_speed': 40960.0," in output
    assert "'speedup': 112.0" in output
    assert "'middle_speed': 365.71" in output
