"""Whether the machine or the software is to blame for a change of throughput."""

from pathlib import Path

import pytest
from made import measured, script_measured

from perfkit.analysis.comparison.history import history
from perfkit.analysis.culprit import NO_WAITS, Evidence, Waits, attribute, attributed
from perfkit.core.results.frames import as_frame, row_of
from perfkit.core.results.repeat import Peak
from perfkit.core.results.store import Measurement
from perfkit.core.statistics import Estimate

THRESHOLD = 0.02


def around(ratio, width=0.01):
    """Return an estimate with an interval of this half width."""
    return Estimate(ratio, ratio * (1 - width), ratio * (1 + width), 0.95)


def judge(throughput, product, copy, *, share=0.5, waits=NO_WAITS, width=0.01):
    """Return the attribution of these ratios, after / before."""
    rates = {"matrix product": around(product, width), "copy": around(copy, width)}
    evidence = Evidence(around(throughput), rates, share, waits)
    return attribute(evidence, THRESHOLD)


def test_a_machine_whose_rates_fell_like_the_throughput_is_to_blame():
    assert judge(0.5, product=0.5, copy=0.5).culprit == "machine"


def test_a_product_that_slowed_down_explains_a_smaller_loss():
    """A lower clock of a GPU slows down the product, not the memory."""
    assert judge(0.93, product=0.9, copy=1.0).culprit == "machine"


def test_software_is_to_blame_if_the_rates_did_not_change():
    found = judge(0.9, product=1.0, copy=1.001)
    assert found.culprit == "software"
    assert "software changed" in found.statement.text()


def test_a_loss_beyond_what_the_machine_explains_has_both_causes():
    found = judge(0.7, product=0.9, copy=0.9)
    assert found.culprit == "both"
    assert found.explained == pytest.approx(0.9)


def test_a_copy_that_slowed_down_explains_only_the_share_that_is_no_product():
    """With 80 % of the time in the product, a copy at half speed costs at most 17 %."""
    assert judge(0.85, product=1.0, copy=0.5, share=0.8).culprit == "machine"
    assert judge(0.6, product=1.0, copy=0.5, share=0.8).culprit == "both"


def test_rates_that_vary_too_much_leave_it_open():
    found = judge(0.95, product=0.98, copy=1.0, width=0.08)
    assert (found.culprit, found.doubt) == ("undecided", "noise")
    assert "can't tell" in found.statement.text()


def test_software_is_not_to_blame_if_the_wait_for_data_grew():
    found = judge(0.9, product=1.0, copy=1.0, waits=Waits(0.01, 0.1))
    assert (found.culprit, found.doubt) == ("undecided", "input")
    assert judge(0.9, product=1.0, copy=1.0, waits=Waits(0.01, 0.012)).culprit == "software"


def test_software_is_not_to_blame_if_the_wait_for_data_is_unknown():
    found = judge(0.9, product=1.0, copy=1.0, waits=Waits(0.01, None))
    assert (found.culprit, found.doubt) == ("undecided", "unknown input")
    assert "wait for data is unknown" in found.statement.text()


@pytest.mark.parametrize(
    "throughput, product, culprit",
    [(2.0, 2.0, "machine"), (1.1, 1.0, "software"), (1.5, 1.1, "both")],
)
def test_a_gain_is_judged_as_a_loss_is(throughput, product, culprit):
    found = judge(throughput, product=product, copy=product)
    assert found.culprit == culprit
    assert found.rates[0].ratio == pytest.approx(product)


# Measurements.


def result(throughputs, rate=1e12, created="2026-01-01T00:00:00+00:00", **changes):
    """Return a measurement whose repeats have these throughputs and this sustained rate of the
    product; `copy_rate` is a hundredth of it unless given."""
    copy_rate = changes.pop("copy_rate", rate / 100)
    wait = changes.pop("wait", 0.01)
    made = measured(throughputs, **({"input": "synthetic"} | changes))
    repeats = []
    for index, repeat in enumerate(made.repeats):
        peak = {"matmul_flops_per_second": 2e12, "copy_bytes_per_second": 2e10}
        scattered = 1 + 0.001 * index
        peak["sustained_matmul_flops_per_second"] = rate * scattered
        peak["sustained_copy_bytes_per_second"] = copy_rate * scattered
        update = {"peak": Peak(**peak), "data_wait_share": wait}
        repeats.append(repeat.model_copy(update=update))
    return made.model_copy(update={"repeats": repeats, "created": created})


BEFORE = (100.0, 100.2, 99.8, 100.1, 99.9)
AFTER = tuple(0.9 * value for value in BEFORE)


def test_a_wait_for_data_that_no_repeat_tells_leaves_it_open():
    before, after = result(BEFORE, input="dali"), result(AFTER, input="dali", wait=None)
    found = attributed([before], [after], around(0.9), THRESHOLD)
    assert (found.culprit, found.doubt) == ("undecided", "unknown input")


def test_a_gain_and_the_loss_of_going_back_have_the_same_culprit():
    """At 60 images/s, the product takes three quarters of the time, at 45 only 56 %: a copy at
    half speed explains a loss of 20 %, not of 25 %."""
    fast = result([0.6 * value for value in BEFORE], copy_rate=1e10)
    slow = result([0.45 * value for value in BEFORE], copy_rate=5e9)
    loss = attributed([fast], [slow], around(0.75), THRESHOLD)
    gain = attributed([slow], [fast], around(1 / 0.75), THRESHOLD)
    assert loss.culprit == gain.culprit
    assert loss.explained == pytest.approx(1 / gain.explained)


@pytest.mark.parametrize(
    ("told", "doubt"), [({}, "untold precision"), ({"precision": "bf16"}, "no rates")]
)
def test_a_change_of_a_script_which_has_no_rates_is_left_open(told, doubt):
    sides = [script_measured(BEFORE, told=told)], [script_measured(AFTER, told=told)]
    found = attributed(*sides, around(0.9), THRESHOLD)
    assert (found.culprit, found.doubt) == ("undecided", doubt)
    tells_what_to_type = 'StepTimer(…, precision="bf16")' in found.statement.text()
    assert tells_what_to_type == (doubt == "untold precision")


def test_a_change_within_the_threshold_is_attributed_to_nothing():
    sides = [result(BEFORE)], [result(AFTER)]
    assert attributed(*sides, around(0.985, 0.001), THRESHOLD) is None
    assert attributed(*sides, around(0.97, 0.05), THRESHOLD) is None


@pytest.mark.parametrize(
    ("rate", "threads", "culprit", "doubt"),
    [
        (0.9e12, {"libgomp": 1}, "undecided", "threads"),
        # Another pool of as many threads.
        (0.9e12, {"libiomp": 2}, "machine", ""),
        (1e12, {"libgomp": 1}, "software", ""),
    ],
)
def test_rates_that_fell_with_the_number_of_threads_blame_no_machine(
    rate, threads, culprit, doubt
):
    before, after = result(BEFORE), result(AFTER, rate=rate)
    effective = after.effective.model_copy(update={"threads": threads})
    changed = after.model_copy(update={"effective": effective})
    found = attributed([before], [changed], around(0.9), THRESHOLD)
    assert (found.culprit, found.doubt) == (culprit, doubt)


@pytest.mark.parametrize("rate, culprit", [(1e12, "software"), (0.9e12, "machine")])
def test_a_change_of_a_series_is_attributed(rate, culprit):
    days = []
    for day in range(1, 7):
        created = f"2026-01-0{day}T00:00:00+00:00"
        values = BEFORE if day < 4 else AFTER
        days.append(result(values, 1e12 if day < 4 else rate, created))
    by_folder = {f"day{number}": each for number, each in enumerate(days)}
    rows = []
    for folder, each in by_folder.items():
        rows.append(row_of(Measurement(Path(folder), each)) | {"folder": folder})
    (series,) = history(as_frame(rows), read=by_folder.__getitem__).series
    (change,) = series.changes
    assert change.attribution.culprit == culprit
