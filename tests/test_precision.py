"""Effective precision: rejection of a training that differs from the request. That of a script
is in test_training.py."""

from dataclasses import replace

import paddle
import pytest

from perfkit.timing.failure import ConfigMismatchError
from perfkit.training import effective, frameworks
from perfkit.training.options import Options

SEEN = {"device": "cpu", "precision": "fp32", "tf32": False}
"""What a training in fp32 on a CPU shows."""


def check(requested, **shown):
    """Compare JAX's training of a request with what it shows."""
    options = Options(**{"framework": "jax", "model": "resnet50", "device": "cpu"} | requested)
    seen = SEEN | shown
    effective.check(options, seen["device"], seen["precision"], {"float32": 109})
    effective.check_tf32(options, seen["tf32"])


def test_training_that_matches_the_request_is_accepted():
    check({})
    check({"device": "gpu"}, device="gpu")
    check({"device": "gpu", "tf32": True}, device="gpu", tf32=True)


@pytest.mark.parametrize("tf32", [True, False])
def test_tf32_does_not_matter_for_lower_precisions(tf32):
    requested = {"device": "gpu", "precision": "bf16"}
    check(requested, device="gpu", precision="bf16", tf32=tf32)


@pytest.mark.parametrize(
    ("requested", "reported", "expected"),
    [
        (
            {"precision": "bf16"},
            {},
            "precision=bf16 was requested, but the training has precision=fp32 "
            "(matrix products: 109 in float32)",
        ),
        ({"device": "gpu"}, {}, "device=gpu was requested, but the training has device=cpu"),
        (
            {"device": "gpu", "tf32": True},
            {"device": "gpu"},
            "tf32=True was requested, but the training has tf32=False",
        ),
        (
            {"device": "gpu"},
            {"device": "gpu", "tf32": True},
            "tf32=False was requested, but the training has tf32=True",
        ),
    ],
)
def test_training_that_differs_from_the_request_is_a_config_mismatch(
    requested, reported, expected
):
    with pytest.raises(ConfigMismatchError) as refused:
        check(requested, **reported)
    assert expected in str(refused.value)
    assert str(refused.value).endswith("jax ignores it on this device")


def test_the_numpy_version_works_with_paddles_loss_scaler():
    """NumPy 2.4 and later raise a TypeError in GradScaler.update."""
    with pytest.warns(DeprecationWarning):
        assert float(paddle.full([1], 2.0)) == 2.0


@pytest.mark.slow
def test_an_ignored_precision_ends_the_run_before_its_first_step(measure, monkeypatch):
    as_if = replace(frameworks.PADDLE, cpu_precisions=("fp32", "amp"))
    monkeypatch.setitem(frameworks.FRAMEWORKS, "paddle", as_if)
    measurement = measure(precision="amp", input="synthetic")
    result = measurement.result
    assert (result.status, result.failure.code) == ("failed", "config_mismatch")
    assert "precision=amp was requested" in result.failure.reason
    assert "precision=fp32" in result.failure.reason
    assert result.throughput is None
    assert '"step"' not in measurement.rank_file(1, 0).read_text()
