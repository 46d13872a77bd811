"""Effective precision: rejection of a training that differs from the request. That of a script
is in test_training.py."""

import paddle
import pytest

from perfkit.core.request.resolve import resolve
from perfkit.core.results.schema import Effective
from perfkit.core.worker.rank import check_effective
from perfkit.timing.failure import ConfigMismatchError
from perfkit.training.frameworks import FRAMEWORKS


def effective(**changes):
    """Return what fp32 training on the CPU reports, with changes."""
    values = {
        "precision": "fp32",
        "device": "cpu",
        "tf32": False,
        "dtypes": {"float32": 109},
        "threads": {},
        "variables": {},
        "parameters": 1,
        "optimizer_settings": "",
        "loss_scaling": None,
    }
    return Effective(**values | changes)


def check(requested, **reported):
    """Compare JAX's training of a request with what it reports."""
    values = {"model": "resnet50", "framework": "jax", "device": "cpu", "batch_size": 2}
    check_effective(resolve(values | requested), effective(**reported))


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
        ({}, {"precision": "float64"}, "precision=fp32 was requested"),
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
    monkeypatch.setattr(FRAMEWORKS["paddle"], "cpu_precisions", ("fp32", "amp"))
    measurement = measure(precision="amp", input="synthetic")
    result = measurement.result
    assert (result.status, result.failure.code) == ("failed", "config_mismatch")
    assert "precision=amp was requested" in result.failure.text()
    assert "precision=fp32" in result.failure.text()
    assert result.throughput is None
    assert '"step"' not in measurement.rank_file(1, 0).read_text()
