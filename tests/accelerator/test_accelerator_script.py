"""A Paddle script on an asynchronous device, of which the fake accelerator counts the calls."""

import json

import pytest
from accelerator.fake import environment, run_python
from script_rank import ScriptRank

pytestmark = pytest.mark.slow

SCRIPT = """
import ctypes
import json
import os

import paddle
from accelerator.fake import NAMES

import perfkit

library = ctypes.CDLL(os.environ["CUSTOM_DEVICE_ROOT"] + "/libfake.so")


def counters():
    values = (ctypes.c_size_t * len(NAMES))()
    library.fake_counters(values)
    return dict(zip(NAMES, values, strict=True))


paddle.set_device("the device")
weights = paddle.create_parameter([16, 16], "float32")
rows = paddle.ones([8, 16])
timer = perfkit.StepTimer(samples_per_step=8, unit="rows")
for step in range(1, 100):
    before = counters()
    loss = paddle.matmul(rows, weights).mean()
    loss.backward()
    weights.clear_gradient()
    timer.step(loss)
    after = counters()
    rises = {name: after[name] - before[name] for name in NAMES}
    print(json.dumps({"step": step, **rises}), flush=True)
"""
CLOCKS = {"gpu": "device", "npu": "host"}


@pytest.mark.parametrize("device", CLOCKS)
def test_the_timer_neither_waits_nor_copies_to_the_host_within_the_window(
    plugin, tmp_path, device
):
    code = SCRIPT.replace("the device", device)
    rank = ScriptRank(tmp_path, code, framework="paddle", device=device)
    ran = rank.run(**environment(plugin, device)).ended()
    (told,) = ran.of_kind("told")
    assert told["device"] == device
    assert told["step_clock"] == CLOCKS[device]
    steps = [json.loads(line) for line in ran.stdout.splitlines()]
    of_window = [step for step in steps if step["step"] > 2]
    assert [step["step"] for step in of_window] == [3, 4, 5]
    for step in of_window:
        assert step["events"] == 1
        waits = ("device_syncs", "stream_syncs", "event_syncs", "to_host")
        assert [step[name] for name in waits] == [0, 0, 0, 0]
    kinds = ran.kinds()
    # Losses are read after the window, those of the warm-up before it.
    assert kinds[-5:] == ["loss", "window", "peak", "modules", "end"]
    assert len(ran.of_kind("loss")) == len(ran.of_kind("step")) == 6
    (end,) = ran.of_kind("end")
    assert end["memory_bytes"] > 0


def test_without_perfkit_run_a_step_has_an_event_that_the_next_one_waits_for(plugin, tmp_path):
    """Otherwise, the throughput would be that of submitting steps. The wait itself is not
    counted, since the fake accelerator has computed by then."""
    script = tmp_path / "train.py"
    changes = {"the device": "gpu", "range(1, 100)": "range(1, 6)"}
    code = SCRIPT
    for old, new in changes.items():
        code = code.replace(old, new)
    script.write_text(code)
    done = run_python([str(script)], tmp_path, plugin, "gpu", {})
    assert done.returncode == 0, done.stderr
    events = [json.loads(line)["events"] for line in done.stdout.splitlines()]
    assert events == [1] * 5
    assert "rows/s of this process" in done.stderr
