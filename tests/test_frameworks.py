"""Each framework's supported values, launch command and facts, without importing it."""

import subprocess
import sys
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import needs_frameworks

from perfkit.measuring.driver.settings import cpu_settings
from perfkit.measuring.driver.workers import launcher_command
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.plan import plan
from perfkit.measuring.request.requirements import read_environment
from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.system import software
from perfkit.training.frameworks import FRAMEWORKS, NodeRank

NAMES = tuple(FRAMEWORKS)
ONLY_NODE = NodeRank()


def planned(framework, model="resnet50", **changes):
    request = {"framework": framework, "input": "synthetic", "device": "cpu"}
    return plan(model, request | changes).config


def problems(framework, **changes):
    with pytest.raises(RequestError) as refused:
        planned(framework, **changes)
    return refused.value.problems


def command(framework, place=ONLY_NODE, **changes):
    values = {"model": "resnet50", "framework": framework, "device": "cpu", "batch_size": 4}
    config = resolve(values | changes)
    return launcher_command(config, place, Path("/logs"), "job", ["worker"])


@pytest.mark.parametrize("framework", ["oneflow", None])
def test_an_unknown_framework_is_rejected_with_the_known_ones(framework):
    (problem,) = problems(framework)
    assert problem == f"framework: {framework!r} is not available; allowed: {', '.join(NAMES)}"


@pytest.mark.parametrize(
    ("framework", "layout", "execution", "source"),
    [
        ("paddle", "NCHW", "dynamic", "dataloader"),
        ("torch", "NHWC", "dynamic", "dataloader"),
        ("jax", "NHWC", "static", "synthetic"),
        ("tensorflow", "NHWC", "dynamic", "dataloader"),
    ],
)
def test_defaults_depend_on_the_framework(framework, layout, execution, source):
    if not software.installed_version(FRAMEWORKS[framework]):
        pytest.skip("not installed")
    images = planned(framework)
    assert (images.work.layout, images.work.execution) == (layout, execution)
    sequences = resolve({"framework": framework, "model": "bert", "device": "cpu"})
    assert (sequences.work.layout, sequences.work.input) == (None, source)


@pytest.mark.parametrize(
    ("device", "precision", "layout"),
    [
        ("cpu", "fp32", "NCHW"),
        ("gpu", "fp32", "NCHW"),
        ("gpu", "bf16", "NHWC"),
        ("npu", "amp", "NCHW"),
    ],
)
def test_paddle_defaults_to_the_tensor_core_layout_on_a_gpu(device, precision, layout):
    given = {"model": "resnet50", "device": device, "precision": precision}
    assert resolve(given, 1).work.layout == layout
    assert resolve(given | {"layout": "NCHW"}, 1).work.layout == "NCHW"


@pytest.mark.parametrize(
    ("framework", "given", "message"),
    [
        ("torch", {"strategy": "fleetx-fp32"}, "strategy: 'fleetx-fp32' is not for"),
        ("jax", {"input": "dataloader"}, "allowed: dali, synthetic"),
        ("tensorflow", {"processes": 2}, "processes: framework=tensorflow trains in one"),
        ("mxnet", {"precision": "bf16"}, "precision: 'bf16' is not for"),
        (
            "jax",
            {"model": "vgg16"},
            "model: 'vgg16' is not for framework=jax; allowed: resn",
        ),
    ],
)
def test_unsupported_values_are_rejected_with_the_supported_ones(
    monkeypatch, framework, given, message
):
    monkeypatch.setattr("perfkit.measuring.system.gpus.visible_gpus", lambda: ["0"])
    assert any(message in problem for problem in problems(framework, **given))


def test_a_missing_framework_is_named_with_the_install_command(monkeypatch):
    monkeypatch.setattr(
        "perfkit.measuring.system.software._installed", lambda name: name != "torch"
    )
    assert problems("torch") == [
        "framework: PyTorch is not installed; to install it (up to 2.7 GB, since PyPI's build "
        "for Linux has CUDA's libraries): pip install -c constraints.txt -e '.[torch]'"
    ]
    assert planned("paddle").framework == "paddle"


def test_torchrun_starts_one_process_per_device_and_joins_the_nodes():
    alone = dict(pairwise(command("torch", processes=2)))
    assert alone["--nproc-per-node"] == "2"
    assert alone["--max-restarts"] == "0"
    second = NodeRank(1, 2, "10.0.0.2", "eth0", "10.0.0.1:29500")
    words = command("torch", second, nodes=2)
    options = dict(pairwise(words))
    assert options["--nnodes"] == "2"
    assert options["--node-rank"] == "1"
    assert options["--master-addr"] == "10.0.0.1"
    assert options["--master-port"] == "29500"
    assert options["--local-addr"] == "10.0.0.2"
    assert words[-1] == "worker"


@pytest.mark.parametrize(
    ("framework", "settings"),
    [
        ("paddle", {"OMP_NUM_THREADS": "4", "MKL_DEBUG_CPU_TYPE": "5"}),
        ("torch", {"OMP_NUM_THREADS": "4"}),
        ("jax", {"NPROC": "4"}),
        ("tensorflow", {"TF_NUM_INTRAOP_THREADS": "4"}),
    ],
)
def test_each_framework_gets_its_cpu_settings(framework, settings):
    values = {"model": "resnet50", "framework": framework, "device": "cpu", "processes": 2}
    assert cpu_settings(resolve(values), "AuthenticAMD", 8) == settings


@needs_frameworks
@pytest.mark.parametrize("given", [{}, {"gpus": 1}])
def test_tensorflow_on_a_machine_with_gpus_is_refused_in_one_sentence(monkeypatch, given):
    monkeypatch.setattr("perfkit.measuring.system.gpus.visible_gpus", lambda: ["0", "1"])
    with pytest.raises(RequestError) as refused:
        plan("resnet50", {"framework": "tensorflow", "input": "synthetic"} | given)
    expected = "device: 'gpu' is not for framework=tensorflow; allowed: cpu"
    assert refused.value.problems == [expected]


@needs_frameworks
def test_jax_on_the_cpus_of_several_nodes_is_refused():
    (problem,) = problems("jax", nodes=2, launcher="ssh", hosts="127.0.0.1,127.0.0.2")
    assert problem.startswith("nodes: JAX finds other nodes' CPUs only where")


def test_jax_ranks_are_plain_processes_that_meet_at_the_first_node():
    launcher = "perfkit.training.jax.launch"
    alone = [sys.executable, "-P", "-m", launcher, "/logs", "0", "2", "2", "-", "worker"]
    assert command("jax", processes=2) == alone
    second = NodeRank(1, 2, "10.0.0.2", "eth0", "10.0.0.1:29500")
    words = command("jax", second, nodes=2, processes=3)
    assert words[4:] == ["/logs", "3", "3", "6", "10.0.0.1:29500", "worker"]


def test_the_environment_has_only_the_training_frameworks_facts():
    facts_of_all = set()
    for facts in FRAMEWORKS.values():
        facts_of_all.update(facts.facts)
    environment = read_environment("torch", Path("/"))
    assert environment.keys() & facts_of_all == {*FRAMEWORKS["torch"].facts}


@needs_frameworks
def test_versions_are_those_of_the_installed_packages():
    # The package's version may lack the CUDA version of its build.
    torch, _plus, _cuda = software.installed_version(FRAMEWORKS["torch"]).partition("+")
    assert torch == version("torch").partition("+")[0]
    assert software.installed_version(FRAMEWORKS["jax"]) == version("jax")


def test_version_constants_are_read_without_import(tmp_path, monkeypatch):
    (tmp_path / "made_up").mkdir()
    (tmp_path / "made_up" / "__init__.py").touch()
    text = "a = '1.2'\nb: str | None = None\nc = 'False'\nd: str = '12.6'\ne = len('x')\n"
    (tmp_path / "made_up" / "version.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert software.constants("made_up", "version.py") == {"a": "1.2", "d": "12.6"}
    assert software.constants("not_there", "version.py") == {}


@pytest.mark.usefixtures("processes")
def test_planning_imports_no_framework_and_no_pandas():
    code = (
        "import sys; from perfkit import plan\n"
        "from perfkit.training.frameworks import FRAMEWORKS\n"
        "from perfkit.measuring.system.software import installed_version\n"
        "names = [n for n, framework in FRAMEWORKS.items() if installed_version(framework)]\n"
        "for name in names:\n"
        "    plan('resnet50', {'framework': name, 'input': 'synthetic', 'device': 'cpu'})\n"
        "print({*names, 'pandas', 'matplotlib', 'nvidia.dali'} & set(sys.modules))"
    )
    output = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert output.strip() == "set()"
