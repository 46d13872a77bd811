"""Valid requests and the errors of invalid ones."""

import shutil
from itertools import product
from pathlib import Path

import pynvml
import pytest
from conftest import cli, needs_frameworks

import perfkit
from perfkit.cli.options import separated
from perfkit.inputs.samples import make_sequences
from perfkit.measuring.parameters import parameters
from perfkit.measuring.paths import ROOT, outputs_path, stored_path
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.checks import problems as problems_here
from perfkit.measuring.request.plan import plan, typed
from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.system.gpus import select
from perfkit.measuring.system.software import Software
from perfkit.timing.failure import portable
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.training.models import MODELS

CPU_BUILD = "framework: this Paddle is a CPU build"
NO_DRIVER = "gpus: no NVIDIA driver answers"


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch):
    """No driver answers, also where another test has loaded the fake NVML."""

    def init():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr("perfkit.measuring.system.gpus.visible_gpus", list)
    monkeypatch.setattr(pynvml, "nvmlInit", init)


def problems(**request):
    with pytest.raises(RequestError) as refused:
        plan("resnet50", {"input": "synthetic"} | request)
    return refused.value.problems


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("input", "dalli", "allowed: dali, dataloader, synthetic; did you mean 'dali'?"),
        ("batch_size", 0, "at least 1"),
        ("batch_size", "8", "a whole number of at least 1 and at most 65536"),
        (
            "warmup_steps",
            "Auto",
            "a whole number of at least 1 and at most 1000000, or auto",
        ),
        ("cpu_tuning", "yes", "True or False"),
        ("label", "../up", "letters, digits, - and _"),
        ("label", 2024, "text (for papermill: -r label TEXT)"),
        ("hosts", "-oProxyCommand=x,b", "comma-separated names or addresses"),
        ("disable_tuning", "affinity;", "comma-separated names of settings"),
    ],
)
def test_a_wrong_value_is_rejected_with_the_allowed_ones(name, value, allowed):
    (problem,) = [problem for problem in problems(**{name: value}) if allowed in problem]
    assert problem.startswith(f"{name}: ")


@needs_frameworks
@pytest.mark.parametrize(
    ("framework", "precision", "allowed"),
    [("paddle", "amp", "fp32"), ("jax", "amp", "fp32, bf16")],
)
def test_an_unsupported_cpu_precision_is_rejected(framework, precision, allowed):
    problem, *_more = problems(framework=framework, precision=precision, device="cpu")
    assert problem.startswith("precision: ")
    assert f"allowed: {allowed}" in problem
    assert "-p framework torch -p precision bf16" in problem


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("{home}/imagenet", "~/imagenet"),
        ("{root}/data/samples", "data/samples"),
        ("{root}", "."),
        ("/data{home}/imagenet", "/data{home}/imagenet"),
        ("{home}-2/imagenet", "{home}-2/imagenet"),
        ('File "{root}/a.py", in {home}/b', 'File "a.py", in ~/b'),
    ],
)
def test_only_complete_leading_folders_are_shortened(given, kept):
    names = {"home": Path.home(), "root": ROOT}
    short = portable(given.format(**names))
    assert short == kept.format(**names)
    if given.startswith(("{", "/")):
        assert stored_path(short) == Path(given.format(**names))


def test_tuning_is_disabled_by_the_names_of_its_settings():
    def options(**given):
        config = resolve({"model": "resnet50", "device": "gpu"} | given)
        return config.work.options(config)

    assert options(disable_tuning="affinity").tunes("cudnn_search")
    assert not options(disable_tuning="affinity").tunes("affinity")
    assert not options(disable_tuning="all").tunes("cudnn_search")


@pytest.mark.usefixtures("processes")
def test_a_misspelt_setting_of_the_tuning_is_rejected_with_a_suggestion():
    on_gpu = {"framework": "torch", "device": "gpu"}
    *_others, problem = sorted(
        problems(**on_gpu, disable_tuning="affinity,cudnn_serach"),
        key=lambda problem: problem.startswith("disable_tuning: "),
    )
    assert "'cudnn_serach' is not available; allowed: cudnn_search" in problem
    assert "did you mean 'cudnn_search'?" in problem


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        # Wrong names and values.
        (
            "ber",
            {"sequence_length": 9, "gpu": 8},
            ["gpu: no such", "model: 'ber' is", "sequence_length: 9 is out"],
        ),
        # Valid values that contradict each other, or that this machine can't measure.
        (
            "resnet50",
            {"gpus": 8, "outputs_dir": "taken/results", "interval_target": 0.1, "repeats": 3},
            [
                CPU_BUILD,
                "gpus: 8 requested",
                NO_DRIVER,
                "interval_target: needs at least 7 repeats",
                "outputs_dir: can't write to",
            ],
        ),
        # A device type that the framework does not have, told once.
        pytest.param(
            "resnet50",
            {"framework": "torch", "device": "npu"},
            ["device: 'npu' is not for framework=torch"],
            marks=needs_frameworks,
        ),
    ],
)
def test_errors_of_all_kinds_are_reported_in_one_round(
    model, given, expected, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()
    if model == "resnet50":
        given = {"input": "synthetic"} | given
    with pytest.raises(RequestError) as refused:
        plan(model, given)
    pairs = zip(refused.value.problems, expected, strict=True)
    assert [pair for pair in pairs if not pair[0].startswith(pair[1])] == []


def test_perfkit_run_names_all_errors_at_once():
    done = cli("run", "resnet50", "-p", "gpus=x", "-p", "batch_size=0", "-p", "labl=a")
    assert done.exit_code == 2
    starts = ["batch_size: 0 is", "gpus: 'x' is of", "labl: no such parameter"]
    assert [start for start in starts if f"  {start}" not in done.stderr] == []


@pytest.mark.usefixtures("processes")
def test_a_device_type_that_this_machine_lacks_is_told_with_those_that_it_has():
    (problem,) = problems(device="npu")
    assert problem == (
        "device: this machine has no device=npu; device types of Paddle here: cpu, gpu"
    )


def test_data_that_does_not_fit_is_refused_with_its_lines(tmp_path, samples):
    (problem,) = problems(input="dali", data_dir=str(samples), batch_size=25)
    assert problem == (
        f"batch_size: one step of 1 x 25 samples needs 25, but {samples} has 24; add data, or "
        "set a smaller batch: -p batch_size N"
    )
    data = tmp_path / "data"
    shutil.copytree(samples, data)
    (data / "train/s05/s05_5.jpeg").unlink()
    (data / "train/s00/s00_0.jpeg").write_bytes(b"no image")
    lines = problems(input="dali", data_dir=str(data), batch_size=4)
    assert lines == [
        f"data_dir: {data}/train_list.txt:1: train/s00/s00_0.jpeg: cannot identify image file "
        f"'{data}/train/s00/s00_0.jpeg'",
        f"data_dir: {data}/train_list.txt:6: no such file: train/s05/s05_5.jpeg",
    ]


def test_the_advised_command_makes_the_data_that_is_missing(tmp_path):
    folder = f"{tmp_path}/none"
    with pytest.raises(RequestError) as refused:
        plan("bert", {"device": "cpu", "data_dir": folder, "sequence_length": 512})
    (problem,) = refused.value.problems
    command = f"perfkit samples {folder} --for bert --sequence-length 512"
    assert problem.endswith(f"; to create sample data: {command}")


def test_sequences_of_another_length_are_refused_with_two_remedies(tmp_path):
    assert len([*make_sequences(tmp_path, 8, 32)]) == 8
    request = {"data_dir": str(tmp_path), "device": "cpu", "batch_size": 4}
    with pytest.raises(RequestError) as refused:
        plan("bert", request)
    (problem,) = refused.value.problems
    assert problem == (
        f"sequence_length: the sequences in {tmp_path} have 32 tokens, not 128: -p "
        "sequence_length 32; for sample data of 128: perfkit samples FOLDER --for bert "
        "--sequence-length 128, and -p data_dir FOLDER"
    )
    assert plan("bert", request | {"sequence_length": 32})


@pytest.mark.parametrize(
    ("request_for_gpus", "beginning"),
    [({"device": "gpu"}, "device=gpu needs at least 1"), ({"gpus": 8}, "8 requested")],
)
def test_device_gpu_without_gpus_is_an_error(request_for_gpus, beginning):
    of_framework, number, driver = problems(**request_for_gpus)
    assert of_framework == (
        "framework: this Paddle is a CPU build without GPU support. For a GPU build, in an "
        "environment of its own: conda env create -f environment.yml; to run on the CPU: -p "
        "device cpu"
    )
    assert number == (
        f"gpus: {beginning}; visible on this machine: 0 GPUs. To run on the CPU: -p device "
        "cpu, without gpus"
    )
    assert driver == (
        "gpus: no NVIDIA driver answers (NVML: NVML Shared Library Not Found); install the "
        "driver, or load its kernel module, until nvidia-smi lists the GPUs; in a container: "
        "docker run --gpus all"
    )


def test_unwritable_outputs_are_rejected_with_a_fix(tmp_path):
    (tmp_path / "file").touch()
    (problem,) = problems(outputs_dir=str(tmp_path / "file"))
    assert problem.startswith("outputs_dir: can't write to")
    assert "choose a writable folder: -p outputs_dir FOLDER" in problem


@pytest.mark.parametrize(
    ("gpus", "given", "expected"),
    [
        ([], {}, ("cpu", "1x1", "quick")),
        (["0", "1", "2", "3"], {}, ("gpu", "1x4", "published")),
        (["0", "1", "2", "3"], {"gpus": 0}, ("cpu", "1x1", "quick")),
    ],
)
def test_auto_selects_all_gpus_or_the_cpu(monkeypatch, gpu_build, gpus, given, expected):
    monkeypatch.setattr("perfkit.measuring.system.gpus.visible_gpus", lambda: gpus)
    planned = plan("resnet50", {"input": "synthetic"} | given)
    config = planned.config
    assert (config.device, config.topology, planned.protocol.name) == expected
    assert planned.protocol == Protocol.named(planned.protocol.name)
    assert config.work.batch_size == (128 if config.device == "gpu" else 4)


def test_every_protocol_field_can_be_overridden():
    given = {"input": "synthetic", "protocol": "published"}
    steps = {"warmup_steps": 1, "measured_steps": 1, "repeats": 9, "interval_target": 0.5}
    steps |= {"measured_seconds": 2.5, "budget": 7, "warmup_limit": 6, "warmup_seconds": 5}
    assert {*steps} == {*Protocol.model_fields} - {"name", "statistic"}
    assert plan("resnet50", given | steps).protocol == Protocol(name="published", **steps)


def test_a_resolved_configuration_resolves_to_itself(monkeypatch, gpu_build):
    monkeypatch.setattr("perfkit.measuring.system.gpus.visible_gpus", lambda: ["0", "1"])
    config = resolve({"model": "resnet50", "input": "synthetic"}, 2)
    assert problems_here(config) == []
    assert resolve(config.values, 2) == config


@pytest.mark.parametrize(
    "words", [("run", "resnet50"), ("doctor",), ("sweep", ROOT / "parameters" / "quick.yaml")]
)
def test_a_name_with_code_is_refused_before_anything_runs(words, tmp_path):
    name = f"_x: open({str(tmp_path / 'ran')!r}, 'w')"
    done = cli(*words, "-p", "outputs_dir", tmp_path / "outputs", "-p", name, 3)
    assert done.exit_code == 2
    assert "no such parameter" in " ".join(done.stderr.split())
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("variable", "selected"),
    [
        (None, {"0": 0, "1": 1}),
        ("", {}),
        ("1, 0", {"1": 1, "0": 0}),
        ("0,7,1", {"0": 0}),
        ("-1", {}),
        ("GPU-bb", {"GPU-bb": 1}),
        ("MIG-1234", {"MIG-1234": 0}),
    ],
)
def test_cuda_visible_devices_is_parsed_like_cuda(variable, selected):
    assert select(variable, ["GPU-aaaa", "GPU-bbbb"]) == selected


@pytest.mark.parametrize(
    ("framework", "command"),
    [
        ("torch", "pip install -e '.[torch-cu12]'"),
        ("jax", "pip install -e '.[jax-cu12]'"),
    ],
)
def test_a_cpu_build_on_a_gpu_is_rejected_with_a_fix(monkeypatch, framework, command):
    # PyTorch on PyPI is a build for GPUs.
    for_a_cpu = {FRAMEWORKS[framework].gpu_fact: None}
    monkeypatch.setattr(
        "perfkit.measuring.request.requirements.software_for",
        lambda _config: Software("3.12.1", for_a_cpu, []),
    )
    config = resolve({"model": "resnet50", "input": "synthetic", "framework": framework}, 4)
    monkeypatch.setattr("perfkit.measuring.system.gpus.visible_gpus", lambda: list("0123"))
    (problem,) = problems_here(config)
    assert "is a CPU build without GPU support. For a GPU build, in an" in problem
    assert f" environment of its own: {command}; to run on the CPU:" in problem


def test_jax_with_its_cuda_plugin_trains_on_all_visible_gpus(monkeypatch):
    of_gpus = {"jax_cuda_plugin": "0.10.2"}
    monkeypatch.setattr(
        "perfkit.measuring.request.requirements.software_for",
        lambda _config: Software("3.12.1", of_gpus, []),
    )
    monkeypatch.setattr("perfkit.measuring.system.gpus.visible_gpus", lambda: ["0", "1"])
    for tf32, precision in ((False, "fp32"), (True, "fp32"), (False, "bf16")):
        request = {"framework": "jax", "input": "synthetic"}
        config = plan("resnet50", request | {"tf32": tf32, "precision": precision}).config
        assert (config.device, config.topology) == ("gpu", "1x2")


def test_a_rejected_request_creates_no_folder(tmp_path):
    problems(gpus=8, outputs_dir=str(tmp_path / "outputs"))
    assert not (tmp_path / "outputs").exists()


TWO = {"nodes": 2, "launcher": "ssh"}


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        ("resnet50", {"device": "cpu", "gpus": 2}, "set processes"),
        (
            "resnet50",
            {"sequence_length": 128},
            "sequence_length: resnet50 does not take it, only bert, gpt, llama",
        ),
        ("bert", {"input": "dali"}, "'dali' is not for bert; allowed: dataloader, synth"),
        ("gpt", {"model_size": "8b"}, "'8b' is not for gpt; allowed: 124M, 355M, 774M, 1558M"),
        ("gpt", {"sequence_length": 2048}, "sequence_length"),
        ("resnet50", {"tf32": True}, "tf32: no effect with device=cpu"),
        ("resnet50", {"launcher": "srun"}, "'srun' is not for nodes=1; allowed: local"),
        ("resnet50", {"nodes": 2}, "launcher: srun needs a Slurm allocation"),
        ("resnet50", TWO | {"hosts": "127.0.0.1,127.0.0.1"}, "needs 2 different hosts"),
        ("resnet50", TWO | {"hosts": "192.0.2.1,192.0.2.2"}, "is not in 192.0.2.1,192.0.2.2"),
        (
            "resnet50",
            TWO | {"hosts": "192.0.2.1,127.0.0.1"},
            "this machine is 127.0.0.1; list it first, or start on 192.0.2.1",
        ),
        (
            "resnet50",
            TWO | {"hosts": "127.0.0.1,255.255.255.255"},  # no program may send there
            "hosts: 255.255.255.255: [Errno 13] Permission denied; check the",
        ),
        ("resnet50", {"processes": 3}, "3 requested, but there are only 2 cores"),
    ],
)
def test_contradictory_parameters_are_rejected(model, given, expected, monkeypatch):
    monkeypatch.setattr("perfkit.measuring.request.hosts.own_addresses", dict)
    monkeypatch.setattr(
        "perfkit.measuring.request.hosts.shutil.which", lambda _program: "installed"
    )
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    with pytest.raises(RequestError) as refused:
        plan(model, {"input": "synthetic"} | given)
    (problem,) = refused.value.problems
    assert expected in problem


def test_a_parameter_takes_a_space_or_an_equals_sign():
    command = "-p batch_size=4 -p label a=b framework=torch -p hosts=a=b"
    expected = "-p batch_size 4 -p label a=b framework=torch -p hosts a=b"
    assert " ".join(separated(command.split(" "))) == expected


LIVE = "compare --live resnet50 seed=1 seed=2"


@pytest.mark.parametrize("command", ["doctor", "verify resnet50", LIVE])
def test_every_command_accepts_name_equals_value(command):
    done = cli(*command.split(), "-p", "batch_size=0")
    assert done.exit_code == 2
    assert "batch_size: 0 is out of range" in done.stderr


def test_relative_paths_of_a_request_start_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    request = {"device": "cpu", "input": "synthetic"}
    config = plan("resnet50", request | {"outputs_dir": "results", "data_dir": "images"}).config
    assert stored_path(config.outputs_dir) == tmp_path / "results"
    assert config.work.data_folder == tmp_path / "images"
    assert stored_path(plan("resnet50", request).config.outputs_dir) == tmp_path / "outputs"
    assert typed("data_dir", "images") == str(tmp_path / "images")


@pytest.mark.parametrize("folder", ["", "notebooks", "outputs/examples"])
def test_the_default_outputs_are_at_the_top_of_the_checkout_from_anywhere_in_it(
    folder, monkeypatch
):
    monkeypatch.chdir(ROOT / folder)
    config = plan("resnet50", {"device": "cpu", "input": "synthetic"}).config
    assert stored_path(config.outputs_dir) == outputs_path() == ROOT / "outputs"
    assert outputs_path("outputs/examples") == ROOT / "outputs/examples"
    assert outputs_path("results") == ROOT / folder / "results"


@pytest.mark.parametrize("command", ["report", "fleet", "history", "compare a b --outputs"])
def test_every_command_finds_outputs_in_the_working_directory(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("outputs", "results"):
        done = cli(*command.split(), folder)
        assert done.exit_code == 2
        assert f"{tmp_path / folder}" in done.stderr.replace("\n", " ")
    with pytest.raises(ValueError, match=str(tmp_path / "results")):
        perfkit.load("results")


RESOLVED = dict.fromkeys(("optimizer", "execution", "input", "data_dir", "launcher"), MODELS)
RESOLVED |= dict.fromkeys(("image_size", "layout"), ("resnet50", "vgg16"))


@pytest.mark.parametrize(("name", "models"), [*RESOLVED.items(), ("sequence_length", ["bert"])])
def test_the_meaning_of_none_states_the_resolved_value(name, models):
    said = parameters()[name].text.partition("None: ")[2]
    for model, framework in product(models, FRAMEWORKS):
        if name == "input" and framework in ("jax", "mxnet"):
            # They have no DataLoader here.
            continue
        config = resolve({"model": model, "framework": framework})
        assert str(config.values[name]) in said


def test_passing_every_default_changes_nothing():
    request = {"input": "synthetic"}
    defaults = {name: each.default for name, each in parameters().items()}
    assert plan("resnet50", defaults | request) == plan("resnet50", request)


def test_measure_rejects_a_configuration_for_another_machine():
    given = {"model": "resnet50", "input": "synthetic", "gpus": 2}
    with pytest.raises(RequestError, match="2 requested; visible on this machine: 0 GPUs"):
        perfkit.measure(resolve(given), Protocol.named("quick"))
