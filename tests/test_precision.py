"""Effective precision: its name, and rejection of training that differs from the request."""

import paddle
import pytest
from narrow import replace_sizes
from perfkit.core.frameworks.paddle.inspector import PRODUCTS
from sides import side_of

from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.frameworks.effective import PrecisionUnknownError, effective_precision
from perfkit.core.request.resolve import resolve
from perfkit.core.results.schema import Effective
from perfkit.core.worker.rank import ConfigMismatchError, check_effective, classify


def config(**changes):
    values = {"model": "resnet50", "device": "cpu", "batch_size": 2, "image_size": 32}
    return resolve(values | changes)


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


@pytest.mark.parametrize(
    ("produced", "weights", "name"),
    [
        ("float32", "float32", "fp32"),
        ("float16 float32", "float32", "amp"),
        ("float16", "float32", "amp"),
        ("float16 float32", "float16 float32", "pure_fp16"),
        ("float16", "float16", "pure_fp16"),
        ("bfloat16 float32", "float32", "bf16"),
        ("bfloat16 float32", "bfloat16", "bf16"),
        ("bfloat16", "bfloat16", "bf16"),
        ("float64", "float64", "float64"),
        ("float64 float32", "float32", "float32+float64"),
        ("float32 float16 bfloat16", "float32", "bfloat16+float16+float32"),
        ("", "float32", "unknown"),
    ],
)
def test_precision_is_named_by_the_dtypes_of_outputs_and_weights(produced, weights, name):
    assert effective_precision(produced.split(), iter(weights.split())) == name


def check(requested, **reported):
    """Compare the training of a request with what it reports."""
    check_effective(config(**requested), effective(**reported))


def test_training_that_matches_the_request_is_accepted():
    check({})
    check({"device": "gpu"}, device="gpu")
    check({"device": "gpu", "tf32": True}, device="gpu", tf32=True)


@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize("precision", ["amp", "pure_fp16", "bf16"])
def test_tf32_does_not_matter_for_lower_precisions(precision, tf32):
    requested = {"device": "gpu", "precision": precision}
    check(requested, device="gpu", precision=precision, tf32=tf32)


@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "amp", "pure_fp16", "bf16", "float64"])
def test_auto_accepts_any_precision(precision, tf32):
    requested = {"device": "gpu", "precision": "auto"}
    check(requested, device="gpu", precision=precision, tf32=tf32)


@pytest.mark.parametrize(
    ("requested", "reported", "expected"),
    [
        (
            {"precision": "amp"},
            {},
            "precision=amp was requested, but the training has precision=fp32 "
            "(matrix products: 109 in float32)",
        ),
        ({"precision": "pure_fp16"}, {"precision": "amp"}, "has precision=amp"),
        ({"precision": "bf16"}, {"precision": "pure_fp16"}, "has precision=pure_fp16"),
        ({}, {"precision": "float64"}, "precision=fp32 was requested"),
        ({"device": "gpu"}, {}, "device=gpu was requested, but the training has device=cpu"),
        ({"device": "gpu", "precision": "auto"}, {}, "device=gpu was requested"),
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
    assert str(refused.value).endswith("paddle ignores it on this device")
    code, message = classify(refused.value)
    assert code == "config_mismatch"
    assert expected in message


def test_the_numpy_version_works_with_paddles_loss_scaler():
    """NumPy 2.4 and later raise a TypeError in GradScaler.update."""
    with pytest.warns(DeprecationWarning):
        assert float(paddle.full([1], 2.0)) == 2.0


@pytest.mark.parametrize("precision", ["amp", "pure_fp16", "bf16"])
def test_paddle_ignores_lower_precisions_on_a_cpu_and_the_check_detects_it(precision):
    if paddle.is_compiled_with_cuda():
        pytest.skip("a GPU build of Paddle trains on the GPU here")
    side = side_of("paddle")
    reported = side.inspector(precision=precision).effective(side.batch())
    assert reported.precision == "fp32"
    assert reported.loss_scaling is None
    with pytest.raises(ConfigMismatchError, match=f"precision={precision} was requested"):
        check_effective(side.config(precision=precision), reported)


@pytest.mark.parametrize("model", ["resnet50", "vgg16", "bert", "gpt"])
def test_all_products_of_a_network_are_counted_or_its_precision_is_unknown(model, monkeypatch):
    replace_sizes(monkeypatch.setattr)
    side = side_of("paddle")
    inspector, batch = side.inspector(model=model), side.batch(model=model)
    counts = inspector.computed_dtypes(batch)
    others = tuple(name for name in PRODUCTS if "matmul" not in name)
    monkeypatch.setattr("perfkit.core.frameworks.paddle.inspector.PRODUCTS", others)
    expected = rf"the network has {counts['float32']} matrix products .* counted \d+ among"
    with pytest.raises(PrecisionUnknownError, match=expected) as refused:
        inspector.computed_dtypes(batch)
    code, message = classify(refused.value)
    assert code == "precision_unknown"
    assert "matmul" in message


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
