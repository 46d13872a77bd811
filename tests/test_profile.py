"""Where a step goes: profiled runs on the CPU, and small traces of devices."""

import gzip
import json

import pytest
from conftest import as_options, cli
from made.results import made_result, stored
from script_rank import ScriptRank

import perfkit
from perfkit.analysis.profile.steps import OperatorShare, StepProfile, step_profile
from perfkit.analysis.profile.stored import (
    Profile,
    operator_differences,
    read_profile,
)
from perfkit.measuring.driver.profile import slowest_rank
from perfkit.measuring.request import RequestError
from perfkit.measuring.results.store import Measurement, folders
from perfkit.report.profile import where_the_step_goes

SCRIPT = """
import sys
import torch
import perfkit

torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)
rows = torch.randn(512, 256)
to_sort = torch.randn(300_000)
timer = perfkit.StepTimer(samples_per_step=512, unit="rows", exits=False)
for batch in timer.batches([rows] * 100):
    if "--sort" in sys.argv:
        to_sort.sort()
    loss = model(batch).square().mean()
    loss.backward()
    with torch.profiler.record_function("Optimizer.step#Own"):
        with torch.no_grad():
            for weights in model.parameters():
                weights -= 0.01 * weights.grad
    model.zero_grad()
    timer.step(loss)
print("perfkit.timing.profile" in sys.modules)
"""
"""A training without torch.optim, whose import of PyTorch's compiler takes as long as all
else."""
QUICK = {"warmup_steps": 2, "measured_steps": 20, "measured_seconds": 0, "repeats": 1}


def shares(trace, framework):
    """Return the profile of a trace, and its parts in percent."""
    profile = step_profile(trace, framework)
    return profile, {part: round(100 * share, 6) for part, share in profile.parts.items()}


def percents(profile):
    """Return the operators with their shares in percent."""
    return {each.name: round(100 * each.share, 6) for each in profile.operators}


def written(folder, events):
    """Write a trace of events (category, name, begin, duration, thread, arguments)."""
    names = ("cat", "name", "ts", "dur", "tid", "args")
    listed = [{"ph": "X", **dict(zip(names, event, strict=True))} for event in events]
    trace = folder / "rank0.json.gz"
    trace.write_bytes(gzip.compress(json.dumps({"traceEvents": [*listed, {}]}).encode()))
    return trace


@pytest.mark.usefixtures("processes")
def test_the_parts_of_a_profiled_rank_add_up_to_its_step(tmp_path):
    rank = ScriptRank(tmp_path, SCRIPT, measured_steps=7, profile=True)
    ran = rank.run().ended()
    assert ran.stdout == "True\n"
    profile, parts = shares(rank.raw_folder / "rank0.json.gz", "torch")
    assert profile.steps == 5
    assert sum(parts.values()) == pytest.approx(100)
    assert {"input", "forward", "backward", "optimizer", "other"} <= {*parts}
    calls = {each.name: each.calls for each in profile.operators}
    assert calls["aten::addmm"] == 1
    assert sum(percents(profile).values()) < 100


@pytest.mark.usefixtures("processes")
def test_without_a_profile_a_rank_does_not_import_the_profiler(tmp_path):
    rank = ScriptRank(tmp_path, SCRIPT)
    assert rank.run().ended().stdout == "False\n"
    assert not [*rank.raw_folder.glob("*.gz")]


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_a_planted_operator_is_the_first_difference_of_two_profiles(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    values = QUICK | {"repeats": 2, "device": "cpu", "outputs_dir": tmp_path, "profile": "true"}
    variants = ["arguments=", "arguments=--sort"]
    done = cli("compare", "--live", script, *variants, *as_options(values), "--level", 50)
    _page, _heading, operators = done.stdout.partition("Operators that account most for")
    assert next(line for line in operators.splitlines() if "::" in line).startswith(
        "aten::sort"
    )
    (slower,) = (
        each for each in folders(tmp_path) if "sort" in (each / "result.json").read_text()
    )
    text = where_the_step_goes(Measurement.read(slower)).text
    assert "5 profiled steps took" in text
    assert text.partition("Share")[2].splitlines()[1].startswith("aten::sort")
    assert "profile/rank0.json.gz" in text


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("torch", {"forward", "backward", "optimizer", "other"}),
        ("paddle", {"forward", "backward", "optimizer", "other"}),
        ("jax", {"program jit_backward", "program jit_take_step", "other"}),
    ],
)
def test_a_built_in_model_is_profiled_in_each_framework(tmp_path, framework, expected):
    values = QUICK | {"framework": framework, "input": "synthetic", "image_size": 32}
    values |= {"batch_size": 2, "device": "cpu", "profile": True, "outputs_dir": str(tmp_path)}
    plan = perfkit.plan("resnet50", values)
    profile = read_profile(perfkit.measure(plan.config, plan.protocol))
    rank = profile.slowest
    assert sum(rank.parts.values()) == pytest.approx(1)
    assert expected <= {part for part, share in rank.parts.items() if share}
    in_operators = sum(operator.share for operator in rank.operators)
    assert 0.5 < in_operators < 1.001


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_a_profile_that_fails_leaves_the_measurement_complete(tmp_path):
    fails = 'assert "perfkit.timing.profile" not in sys.modules, "planted"'
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("for batch", f"{fails}\nfor batch"))
    values = QUICK | {"script": str(script), "device": "cpu", "outputs_dir": str(tmp_path)}
    plan = perfkit.plan("script", values | {"profile": True})
    measurement = perfkit.measure(plan.config, plan.protocol)
    assert measurement.result.status == "complete"
    assert "planted" in where_the_step_goes(measurement).text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"framework": "tensorflow"}, "'tensorflow' is not for profile=True"),
        ({"nodes": 2}, "nodes: '2' is not for profile=True"),
    ],
)
def test_a_profile_is_refused_where_there_is_none(values, expected):
    with pytest.raises(RequestError, match=expected):
        perfkit.plan("resnet50", {"device": "cpu", "profile": True} | values, ["data"])


def launched(number, begin, thread=1):
    return ("cuda_runtime", "cudaLaunchKernel", begin, 1, thread, {"correlation": number})


def kernel(number, name, begin, duration, stream=7, category="kernel"):
    return (category, name, begin, duration, stream, {"correlation": number})


def test_kernels_belong_to_the_ranges_that_launched_them(tmp_path):
    """A step of 1,000 us: copy to the device, forward, backward on a thread of its own with an
    exchange of which half is hidden, the optimizer, and an idle device at the beginning and
    before the optimizer; at the beginning, the host waits for its batch."""
    evaluated = "autograd::engine::evaluate_function: AddmmBackward0"
    events = [
        ("user_annotation", "perfkit.step", 0, 1000, 1, {}),
        ("user_annotation", "perfkit.input", 0, 50, 1, {}),
        ("cpu_op", "aten::copy_", 50, 20, 1, {}),
        launched(1, 55),
        ("cpu_op", "aten::linear", 70, 40, 1, {}),
        ("cpu_op", "aten::addmm", 75, 30, 1, {}),
        launched(2, 80),
        ("cpu_op", evaluated, 120, 60, 2, {}),
        ("cpu_op", "aten::mm", 125, 50, 2, {}),
        launched(3, 130, thread=2),
        launched(4, 140, thread=2),
        launched(5, 178, thread=2),
        ("user_annotation", "nccl:all_reduce", 175, 5, 2, {}),
        ("user_annotation", "Optimizer.step#SGD.step", 200, 60, 1, {}),
        ("cpu_op", "aten::_fused_sgd_", 210, 40, 1, {}),
        launched(6, 220),
        kernel(1, "Memcpy HtoD (Pinned -> Device)", 60, 40, category="gpu_memcpy"),
        kernel(2, "ampere_sgemm_128x64", 100, 200),
        kernel(3, "ampere_sgemm_nt", 300, 200),
        kernel(4, "ampere_sgemm_tn", 500, 200),
        kernel(5, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 600, 200, stream=20),
        kernel(6, "multi_tensor_apply_kernel", 850, 150),
        kernel(9, "of the next step", 1000, 99),
    ]
    profile, parts = shares(written(tmp_path, events), "torch")
    assert parts == {
        "input": 4 + 5,
        "forward": 20,
        "backward": 40,
        "exchange": 10,
        "optimizer": 15,
        "idle": 1 + 5,
    }
    assert profile.hidden_exchange == pytest.approx(0.1)
    assert profile.step_seconds == pytest.approx(1e-3)
    operators = percents(profile)
    assert operators["aten::mm"] == 40
    assert operators["aten::addmm"] == 20


def test_paddle_tells_parts_by_categories_and_exact_times_as_text(tmp_path):
    def event(category, name, begin, end, thread="1(C++)", **arguments):
        arguments |= {"start_time": f"{begin:.3f} us", "end_time": f"{end:.3f} us"}
        return (category, f"{name}[{end - begin:.3f} us]", int(begin), 0, thread, arguments)

    events = [
        event("PythonUserDefined", "perfkit.step", 0.0, 100.0, "1(Python)"),
        event("PythonUserDefined", "perfkit.input", 0.0, 10.0, "1(Python)"),
        event("Forward", "Linear", 10.0, 40.5, "1(Python)"),
        event("Operator", "matmul dygraph", 12.0, 40.4),
        event("OperatorInner", "matmul infer_meta", 13.0, 14.0),
        event("Operator", "mean dygraph", 40.6, 42.0),
        event("Backward", "Gradient Backward", 42.0, 82.0, "1(Python)"),
        event("Operator", "Global_MatmulGradNode", 43.0, 80.0),
        event("Optimization", "Optimization Step", 82.0, 97.0, "1(Python)"),
        event("Operator", "sgd_ dygraph", 83.0, 96.0),
    ]
    profile, parts = shares(written(tmp_path, events), "paddle")
    expected = {"input": 10, "forward": 31.9, "backward": 40, "optimizer": 15, "other": 3.1}
    assert parts == expected
    assert percents(profile)["matmul dygraph"] == 28.4


def test_jax_tells_the_wall_times_of_programs_and_operators(tmp_path):
    """An operator that other threads run ends with an event of its own."""
    gradients = {"hlo_module": "jit_backward", "hlo_op": "dot", "run_id": "1"}
    update = {"hlo_module": "jit_take_step", "hlo_op": "add", "run_id": "2"}
    events = [
        (None, "perfkit.step", 0, 100, 1, None),
        (None, "perfkit.input", 0, 20, 1, None),
        (None, "dot", 10, 5, 2, gradients),
        (None, "end: dot", 60, 0.1, 3, {}),
        (None, "ThunkExecutor::Execute (wait for completion)", 15, 55, 2, {"run_id": "1"}),
        (None, "add", 75, 20, 2, update),
    ]
    profile, parts = shares(written(tmp_path, events), "jax")
    assert parts == {"program jit_backward": 60, "program jit_take_step": 20, "input": 10} | {
        "other": 10
    }
    assert percents(profile) == {"dot": 50, "add": 20}


def profile_of(step_seconds, **operators):
    listed = [OperatorShare(name=name, calls=1, share=of) for name, of in operators.items()]
    steps = StepProfile(
        steps=5,
        step_seconds=2 * step_seconds,
        parts={"forward": 0.75, "program jit_x": 0.1, "other": 0.15},
        hidden_exchange=0.2,
        operators=listed,
    )
    return Profile(timed_step_seconds=step_seconds, ranks={0: steps})


def test_a_difference_is_in_seconds_of_steps_without_a_profiler():
    a = profile_of(1.0, conv=0.8, relu=0.2)
    b = profile_of(1.5, conv=0.5, sort=0.5)
    assert operator_differences(a, b) == [
        ("sort", 0.0, 0.75, 1.5),
        ("relu", 0.2, 0.0, pytest.approx(-0.4)),
        ("conv", 0.8, 0.75, pytest.approx(-0.1)),
    ]


def test_a_stored_profile_is_shown_without_its_traces(tmp_path):
    measurement = stored(tmp_path / "a")
    assert not where_the_step_goes(measurement).parts
    profile = profile_of(0.1, **{"aten::" + "x" * 90: 0.7, "relu": 0.05})
    measurement.profile_folder.mkdir()
    (measurement.profile_folder / "profile.json").write_text(profile.model_dump_json())
    section = where_the_step_goes(measurement)
    assert read_profile(measurement) == profile
    assert "forward 75 %, other 15 %" in section.text.replace("program jit_x 10 %, ", "")
    assert "took 2.00 times as long as the timed ones" in " ".join(section.text.split())
    assert "hidden" in section.text
    assert max(map(len, section.text.splitlines())) <= 80
    assert "<svg" in section.html


def test_a_trace_without_steps_is_told_on_the_page(tmp_path):
    measurement = stored(tmp_path / "a")
    measurement.profile_folder.mkdir()
    written(measurement.profile_folder, [("cpu_op", "aten::mm", 0, 1, 1, {})])
    text = where_the_step_goes(measurement).text
    assert "can't be read" in text
    assert "perfkit.step" in text


def test_the_slowest_rank_is_that_of_the_timed_repeats():
    result = made_result()
    (repeat,) = result.repeats
    ranks = []
    for rank, computed in enumerate((0.1, 0.3, 0.2)):
        changes = {"rank": rank, "window_seconds": 5.0 - rank, "compute_seconds": computed}
        ranks.append(repeat.ranks[0].model_copy(update=changes))
    repeats = [repeat.model_copy(update={"ranks": ranks})]
    assert slowest_rank(result.model_copy(update={"repeats": repeats})) == 1
