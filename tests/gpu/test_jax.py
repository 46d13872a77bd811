"""JAX on a GPU: whole measurements, since its script has no part that another check covers."""

import pytest

import perfkit
from perfkit.analysis.warnings import check
from perfkit.measuring.system.software import find_version, installed_version
from perfkit.training.frameworks import FRAMEWORKS

pytestmark = pytest.mark.gpu

MODULES_OF_A_MEASUREMENT = ("filelock", "h5py", "PIL", "threadpoolctl")


@pytest.fixture
def measured(small, tmp_path):
    """Measures ResNet-50 in JAX on one GPU and returns the measurement."""
    facts = FRAMEWORKS["jax"]
    if not installed_version(facts) or not find_version(*facts.versions["jax_cuda_plugin"]):
        pytest.skip("JAX is not installed as a build for GPUs")
    for module in MODULES_OF_A_MEASUREMENT:
        pytest.importorskip(module, reason=f"a measurement needs {module}")

    def measure(**changes):
        request = {"framework": "jax", "device": "gpu", "gpus": 1, "input": "synthetic"}
        request |= {"protocol": "quick", "repeats": 1, "measured_steps": 20}
        request |= {"batch_size": 8 if small else 64, "outputs_dir": str(tmp_path)}
        plan = perfkit.plan("resnet50", request | changes)
        return perfkit.measure(plan.config, plan.protocol)

    return measure


@pytest.mark.parametrize(
    ("precision", "tf32"), [("fp32", False), ("fp32", True), ("bf16", False)]
)
def test_jax_trains_in_the_requested_precision_with_steps_that_sum_up(
    measured, say, precision, tf32
):
    measurement = measured(precision=precision, tf32=tf32)
    result = measurement.result
    assert result.status == "complete", result.failure
    effective = result.effective
    assert (effective.device, effective.step_clock) == ("gpu", "watcher")
    assert effective.precision == precision
    assert sum(effective.dtypes.values()) > 0
    if precision == "fp32":
        assert effective.tf32 == tf32
    (rank,) = result.repeats[0].ranks
    assert rank.memory_bytes > 2**28
    assert "window_mismatch" not in [warning.code for warning in check(measurement).warnings]
    say(f"{result.throughput.value:.0f} images/s, {rank.memory_bytes / 2**30:.1f} GiB")
