"""The machine's own rates beside a change of throughput."""

import pytest
from conftest import cli
from made.results import measured, script_measured, steady_peak, write_all

import perfkit

BASE = (100.0, 100.2, 99.8, 100.1, 99.9, 100.3, 99.7)
MACHINE = "Look at the machine first"


def result(level, product=1.0, copy=1.0, **parameters):
    """Return a measurement whose throughputs, product and copy are at these levels."""
    made = measured([level * value for value in BASE], **parameters)
    return with_rates(made, product, copy)


def with_rates(made, product, copy):
    """Return the measurement with sustained rates in all repeats."""
    repeats = []
    for index, repeat in enumerate(made.repeats):
        scattered = 1 + 0.001 * index
        peak = steady_peak(1e12 * product * scattered, 1e10 * copy * scattered)
        repeats.append(repeat.model_copy(update={"peak": peak}))
    return made.model_copy(update={"repeats": repeats})


def compared(tmp_path, before, after, **options):
    a, b = write_all(tmp_path / "a", before), write_all(tmp_path / "b", after)
    (pair,) = perfkit.compare(a, b, **options).pairs
    return pair


def fell(pair):
    return [rate.name for rate in pair.rates if rate.fell_with_training]


@pytest.mark.parametrize(
    ("training", "product", "copy", "names"),
    [
        (0.9, 0.9, 0.9, ["matrix product", "copy"]),
        (0.9, 0.94, 1.0, ["matrix product"]),
        (0.9, 0.97, 1.0, []),
        (0.9, 1.0, 0.5, ["copy"]),
        (0.9, 1.0, 1.0, []),
        # Nothing fell, or the machine alone did.
        (1.1, 1.1, 1.1, []),
        (1.0, 0.9, 0.9, []),
    ],
)
def test_a_rate_that_fell_by_half_as_much_as_the_training_is_named(
    tmp_path, training, product, copy, names
):
    pair = compared(tmp_path, result(1.0), result(training, product, copy))
    of_product, of_copy = pair.rates
    assert of_product.interval[0] < product < of_product.interval[1]
    assert of_copy.interval[0] < copy < of_copy.interval[1]
    assert fell(pair) == names


def test_too_few_repeats_name_no_rate(tmp_path):
    before, after = measured([100.0, 100.2]), measured([90.0, 90.2])
    pair = compared(tmp_path, with_rates(before, 1.0, 1.0), with_rates(after, 0.9, 0.9))
    assert len(pair.rates) == 2
    assert fell(pair) == []


def test_a_measurement_without_rates_is_compared_by_its_training_alone(tmp_path):
    script = script_measured(BASE), script_measured([0.9 * value for value in BASE])
    assert compared(tmp_path, *script).rates == []


def test_other_configurations_have_no_rates_side_by_side(tmp_path):
    half = result(0.5, 0.5, 0.5, batch_size=64)
    assert compared(tmp_path, result(1.0), half, across=["batch_size"]).rates == []


def test_a_comparison_prints_the_rates_and_what_to_look_at_first(tmp_path):
    a, b = write_all(tmp_path / "a", result(1.0)), write_all(tmp_path / "b", result(0.9, 0.9))
    text = " ".join(cli("compare", a, b).stdout.split())
    assert "matrix product of the machine: 0.900 (0.897 – 0.903)" in text
    assert "copy of the machine: 1.00 (0.997 – 1.00)" in text
    assert MACHINE in text
    assert "matrix product fell by at least half as much as the training" in text


@pytest.mark.parametrize(("product", "copy", "is_first"), [(0.9, 1.0, True), (1.0, 1.0, False)])
def test_a_change_of_level_has_the_rates_beside_it(tmp_path, product, copy, is_first):
    days = []
    for day in range(1, 7):
        levels = (1.0, 1.0, 1.0) if day < 4 else (0.9, product, copy)
        created = f"2026-01-0{day}T00:00:00+00:00"
        days.append(result(*levels).model_copy(update={"created": created}))
    text = " ".join(cli("history", write_all(tmp_path, *days)).stdout.split())
    rate = f"Matrix product: 1.00 → {1.003 * product:#.3} TFLOP/s × {product:#.3} ("
    assert rate in text
    assert "Copy: 10.0 → 10.0 GB/s × 1.00 (" in text
    assert (MACHINE in text) == is_first
