"""Every command, script and parameters file in the README and the guides is valid."""

import ast
import inspect
import re
import shlex
import tomllib
from textwrap import dedent
from typing import Annotated

import kubernetes_validate
import pytest
from conftest import cli
from papermill.cli import papermill
from papermill.inspection import inspect_notebook
from pydantic import TypeAdapter
from ruamel.yaml import YAML

import perfkit
from perfkit.cli import main
from perfkit.core.config import Config
from perfkit.core.parameters import fields_of, is_open
from perfkit.core.paths import ROOT
from perfkit.core.request.plan import plan, typed
from perfkit.core.script_config import ScriptConfig
from perfkit.sweep.matrix import read_sweep

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
TEXTS = {path: path.read_text() for path in PAGES}
BLOCK = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
MAKEFILE = (ROOT / "Makefile").read_text()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
FILES = re.compile(
    r"(perfkit|tests|benchmarks|notebooks|parameters|docs|examples|requirements)/.+"
    r"|outputs/examples.*|\.ci/.+|environment.*\.yml|constraints\.txt"
)
ANYWHERE = ("machine", "requirements", "data")
"""What a plan need not check of a command for another machine."""


def blocks(language):
    """Yield each block in a language, without the indentation of its list."""
    for text in TEXTS.values():
        for block in re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.M | re.S):
            yield dedent(block)


def in_blocks():
    """Yield the words of each command in a block of shell commands."""
    for block in blocks("sh"):
        for line in block.replace("\\\n", " ").splitlines():
            for command in line.split(" && "):
                if words := shlex.split(command, comments=True):
                    yield words


def in_prose(pattern):
    """Return the commands between backticks that match a pattern."""
    commands = []
    for text in TEXTS.values():
        for code in re.findall(r"`([^`]+)`", BLOCK.sub("", text)):
            command = " ".join(code.split())
            if re.match(pattern, command):
                commands.append(command)
    return sorted({*commands})


COMMANDS = [*in_blocks()]


def assert_parameter(name, text, kind=Config):
    value = typed(name, text)
    if name.startswith("environment.") or value == "auto" or is_open(name, value, kind):
        return
    field = fields_of(kind)[name]
    adapter = TypeAdapter(Annotated[field.annotation, field])
    adapter.validate_python(value)


def assert_request(model, values):
    """Plan a measurement of a model, on a CPU unless it asks for GPUs. Of a script, examine
    each parameter alone."""
    if model.endswith(".py"):
        for name, text in values.items():
            assert_parameter(name, str(text), ScriptConfig)
        return
    parameters = {name: typed(name, str(text)) for name, text in values.items()}
    if "gpus" not in parameters:
        parameters["device"] = "cpu"
    plan(model, parameters, skip_checks=ANYWHERE)


def assert_perfkit_command(name, *words):
    """Parse a command of perfkit and examine its model or script, and its parameters."""
    arguments = main.commands[name].make_context(name, [*words]).params
    values = arguments.get("values", {})
    if arguments.get("live"):
        model, *variants = arguments["names"]
        for variant in variants:
            pairs = dict(pair.split("=") for pair in variant.split(","))
            assert_request(model, values | pairs)
    elif "model" in arguments:
        assert_request(arguments["model"], values)
    else:
        for parameter, text in values.items():
            assert_parameter(parameter, str(text))


def assert_papermill_command(*words):
    """Parse a command of papermill and examine the parameters of its notebook."""
    arguments = papermill.make_context("papermill", [*words]).params
    notebook = ROOT / arguments["notebook_path"]
    takes = inspect_notebook(str(notebook))
    values = dict(arguments["parameters"])
    assert values.keys() <= takes.keys()
    if notebook.stem == "script":
        assert_request("train.py", values)
    elif notebook.stem != "summary":
        assert_request(notebook.stem, values)


def assert_make_command(*words):
    for word in words:
        assert "=" in word or f"\n{word}:" in MAKEFILE, word


def assert_pip_command(*words):
    """Examine the extras of perfkit that a command installs."""
    for word in words:
        if extras := re.fullmatch(r"\.\[(.+)\]", word):
            assert {*extras[1].split(",")} <= EXTRAS.keys()


def assert_conda_command(*words):
    if words[0] == "activate":
        assert YAML(typ="safe").load(ROOT / "environment.yml")["name"] == words[1]
    else:
        assert words[:3] == ("env", "create", "-f")


def assert_nothing(*_words):
    """Examine no word of another program's command; another test looks for its files."""


EXAMINED = {
    "perfkit": assert_perfkit_command,
    "papermill": assert_papermill_command,
    "make": assert_make_command,
    "pip": assert_pip_command,
    "conda": assert_conda_command,
} | dict.fromkeys([".", ".ci/run", "git", "python3", "sbatch"], assert_nothing)
"""Program -> examines its words."""


@pytest.mark.parametrize("words", COMMANDS, ids=shlex.join)
def test_files_of_documented_commands_exist(words):
    for word in words:
        if FILES.fullmatch(word):
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize("words", COMMANDS, ids=shlex.join)
def test_a_documented_command_is_valid(words, tmp_path, monkeypatch):
    (tmp_path / "train.log").touch()
    monkeypatch.chdir(tmp_path)
    program, *rest = words
    EXAMINED[program](*rest)


@pytest.mark.parametrize("text", in_prose(r"perfkit [a-z]"))
def test_a_command_of_perfkit_in_prose_has_valid_options(text):
    name, *rest = text.split()[1:]
    if "--" in rest:
        # What follows is for a script.
        rest = rest[: rest.index("--")]
    valid = {"--help"}
    for parameter in main.commands[name].params:
        valid.update(parameter.opts)
    for word in rest:
        if re.match(r"\[?--?\w", word):
            assert word.strip("[]") in valid
    for parameter, value in re.findall(r"-p ([a-z_]+)[ =]([^\s…]+)", text):
        assert_parameter(parameter, value)


@pytest.mark.parametrize("text", in_prose(r"(make|pip install|papermill \w+) \S"))
def test_another_command_in_prose_is_valid(text):
    program, *rest = shlex.split(text)
    EXAMINED[program](*rest)


@pytest.mark.parametrize("text", in_prose(r"\.venv/bin/python "))
def test_a_benchmark_in_prose_has_the_names_that_it_is_called_with(text):
    _python, file, *names = text.split()
    source = (ROOT / file).read_text()
    for name in re.findall(r"[a-z]\w+", " ".join(names)):
        assert re.search(rf"\b{name}\b", source), name


@pytest.mark.parametrize("block", [*blocks("python")])
def test_a_documented_script_calls_perfkit_as_it_is_called(block):
    owners = {"perfkit": perfkit, "timer": perfkit.StepTimer}
    for call in ast.walk(ast.parse(block)):
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)) if (
                owner in owners
            ):
                itself = [None] if owner == "timer" else []
                keywords = dict.fromkeys(keyword.arg for keyword in call.keywords)
                signature = inspect.signature(getattr(owners[owner], name))
                signature.bind(*itself, *call.args, **keywords)


def block_of(language, beginning):
    (block,) = [each for each in blocks(language) if each.startswith(beginning)]
    return block


def test_the_parameters_file_of_the_guide_has_the_configurations_that_it_tells(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text(block_of("yaml", "notebook:"))
    configurations, problems = read_sweep(file)
    assert problems == []
    work = [configuration.parameters for configuration in configurations]
    cells = {(each["batch_size"], each["input"], each.get("dali_threads")) for each in work}
    of_dali = {(2, "dali", 2), (4, "dali", 2), (16, "dali", None)}
    assert cells == of_dali | {(batch, "synthetic", None) for batch in (2, 4, 8)}
    assert len(work) == len(cells)
    for configuration in configurations:
        plan(configuration.model, configuration.parameters, skip_checks=ANYWHERE)


def test_the_custom_format_of_the_guide_reads_its_line(tmp_path, monkeypatch):
    guide = TEXTS[ROOT / "docs" / "auditing.md"]
    (line,) = re.findall(r"`(\[it 10\] .+?)`", guide)
    (words,) = [words for words in COMMANDS if "--format-regex" in words]
    lines = [line.replace("it 10]", f"it {step}]") for step in range(10, 410, 10)]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.log").write_text("\n".join(lines))
    done = cli(*words[1:])
    assert done.exit_code == 0, done.output
    assert "12,877 tokens/s" in done.stdout


def test_claims_without_a_log_are_possible():
    claims = [words for words in COMMANDS if words[:3] == ["perfkit", "audit", "--claim"]]
    assert claims
    for words in claims:
        done = cli(*words[1:])
        assert done.exit_code == 0, done.output
        assert "MFU" in done.stdout


@pytest.mark.parametrize("version", ["1.27", "1.31"])
def test_the_kubernetes_job_is_valid_and_measures_one_node(version):
    job = YAML(typ="safe").load(block_of("yaml", "apiVersion"))
    kubernetes_validate.validate(job, version, strict=True)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command = shlex.split(container["args"][0])
    assert command[:3] == ["perfkit", "run", "resnet50"]
    options = command[3:]
    values = {}
    for name, text in zip(options[1::3], options[2::3], strict=True):
        values[name] = typed(name, text)
    assert values["node"] == "$NODE_NAME"
    assert [variable["name"] for variable in container["env"]] == ["NODE_NAME"]
    values["node"] = "gpu-7.example"
    config = plan("resnet50", values, skip_checks=("machine", "data")).config
    assert config.topology == "1x8"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": config.gpus}
    memory = {"name": "memory", "emptyDir": {"medium": "Memory"}}
    assert memory in pod["volumes"]
    assert {"name": "memory", "mountPath": "/dev/shm"} in container["volumeMounts"]
