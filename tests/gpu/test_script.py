"""A PyTorch script of a user's on the GPU, timed by perfkit.StepTimer."""

import pytest
from script_rank import ScriptRank

pytestmark = pytest.mark.gpu

WARMUP, MEASURED = 10, 20
WIDTH = 2048
SCRIPT = f"""
import torch
import perfkit

layers = [torch.nn.Linear({WIDTH}, {WIDTH}) for _ in range(8)]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.001)
rows = torch.randn(256, {WIDTH}, device="cuda")
timer = perfkit.StepTimer(samples_per_step=256, unit="rows", precision="fp32")
for step in range(1, 100):
    # PyTorch raises an error for a synchronization within the window.
    within = {WARMUP} < step < {WARMUP + MEASURED}
    torch.cuda.set_sync_debug_mode("error" if within else "default")
    loss = model(rows).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    timer.step(loss)
"""


@pytest.fixture
def ran(framework, tmp_path):
    if framework != "torch":
        pytest.skip("the script trains with PyTorch")
    steps = {"warmup_steps": WARMUP, "measured_steps": MEASURED}
    return ScriptRank(tmp_path, SCRIPT, device="gpu", **steps).run().ended()


def test_a_script_is_timed_by_the_gpus_events_without_a_synchronization(ran, say):
    (told,) = ran.of_kind("told")
    assert told["device"] == "gpu"
    assert told["step_clock"] == "device"
    assert told["device_name"]
    (window,) = ran.of_kind("window")
    of_window = [step["seconds"] for step in ran.of_kind("step") if step["step"] > WARMUP]
    say(f"{window['samples'] / window['seconds']:.4g} rows/s on {told['device_name']}")
    assert len(of_window) == MEASURED
    assert sum(of_window) == pytest.approx(window["seconds"], rel=0.05)
    losses = [loss["value"] for loss in ran.of_kind("loss")]
    assert len(losses) == WARMUP + MEASURED
    assert losses[-1] < losses[0]


def test_peak_and_memory_are_those_of_the_gpu(ran, say):
    (peak,) = ran.of_kind("peak")
    (end,) = ran.of_kind("end")
    say(f"{peak['matmul_flops_per_second'] / 1e12:.4g} TFLOP/s, {end['memory_bytes']} bytes")
    assert peak["matmul_flops_per_second"] > 1e12
    assert end["memory_bytes"] > 8 * WIDTH**2 * 4
