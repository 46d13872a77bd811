"""README and docs match the code: current reference, valid commands, working links."""

import json
import pkgutil
import re
import shlex
from typing import Annotated, get_args, get_type_hints

import kubernetes_validate
import pytest
import reference
from papermill.cli import papermill
from pydantic import TypeAdapter
from ruamel.yaml import YAML

import perfkit
from perfkit.cli import main
from perfkit.core.config import Config
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.models import MODELS
from perfkit.core.parameters import fields_of, is_open
from perfkit.core.paths import ROOT
from perfkit.core.request.plan import plan, typed
from perfkit.core.results.events import RANK_EVENTS, TELEMETRY_EVENTS
from perfkit.core.results.schema import Result
from perfkit.core.script_config import ScriptConfig

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
CLUSTERS = ROOT / "docs" / "clusters.md"
TEXTS = {path: path.read_text() for path in PAGES}
MAKEFILE = (ROOT / "Makefile").read_text()
PROSE = {path: re.sub(r"^```.*?^```", "", TEXTS[path], flags=re.M | re.S) for path in PAGES}
FOLDERS = "(?:perfkit|tests|benchmarks|notebooks|parameters|docs|outputs/examples)/"
MENTIONED = re.findall(r"`((?:perfkit|make) [a-z][^`]*)`", "".join(PROSE.values()))


def documented_commands():
    """Yield the words of each command in a block of shell commands."""
    for text in TEXTS.values():
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                if words := shlex.split(line, comments=True):
                    yield words


COMMANDS = [*documented_commands()]


@pytest.mark.parametrize("path", reference.pages(), ids=str)
def test_reference_pages_are_up_to_date(path):
    assert path.read_text() == reference.pages()[path], "refresh it: make docs"


def test_parameters_and_public_names_are_documented():
    for name in perfkit.core.parameters.parameters():
        assert reference.meaning(name), name
    for name in perfkit.__all__:
        assert getattr(perfkit, name).__doc__, name


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=lambda each: each.display_name)
def test_each_setting_for_full_speed_on_a_gpu_is_documented_with_its_frameworks(framework):
    settings = TEXTS[ROOT / "docs" / "backends.md"]
    for setting in framework.tuning:
        row = re.search(rf"^\| `{setting}`(?: \(([^)]*)\))? \|", settings, re.M)
        assert row, setting
        if row[1]:
            assert framework.display_name in row[1].split(", "), setting


@pytest.mark.parametrize("file", [Result, *reference.OTHER_FILES], ids=lambda f: f.__name__)
def test_every_field_of_a_json_file_is_documented(file):
    for name, model in reference.models(file).items():
        assert model.get("description"), name
        for field, described in model["properties"].items():
            assert described.get("description"), (name, field)


def adapters(events):
    """Return the kind of each event and what validates it."""
    by_kind = {}
    for event in events:
        (kind,) = get_args(get_type_hints(event)["event"])
        by_kind[kind] = TypeAdapter(event)
    return by_kind


def test_every_line_of_a_raw_file_is_documented():
    of_ranks = adapters(RANK_EVENTS)
    of_telemetry = adapters(TELEMETRY_EVENTS)
    lines = 0
    for path in (ROOT / "outputs" / "examples").rglob("repeats/*/*.jsonl"):
        by_kind = of_ranks
        if path.stem == "telemetry":
            by_kind = of_telemetry
        for line in path.read_text().splitlines():
            event = json.loads(line)
            kind = event["event"]
            if kind != "effective":
                by_kind[kind].validate_python(event)
                lines += 1
    assert lines > 1000


def assert_parameter(name, text, kind=Config):
    value = typed(name, text)
    if name.startswith("environment.") or value == "auto" or is_open(name, value, kind):
        return
    field = fields_of(kind)[name]
    adapter = TypeAdapter(Annotated[field.annotation, field])
    adapter.validate_python(value)


def assert_perfkit_command(name, words):
    """Parse a command of perfkit and examine its model or script, and its parameters."""
    arguments = main.commands[name].make_context(name, words).params
    model = arguments.get("model", "bert")
    variants = []
    if arguments.get("live"):
        model, *variants = arguments["names"]
    kind = ScriptConfig if model.endswith(".py") else Config
    assert model in MODELS or kind is ScriptConfig
    for parameter, value in arguments.get("values", {}).items():
        assert_parameter(parameter, str(value), kind)
    for variant in variants:
        for pair in variant.split(","):
            parameter, value = pair.split("=")
            assert_parameter(parameter, value, kind)


def assert_papermill_command(words):
    """Parse a command of papermill and examine its parameters."""
    arguments = papermill.make_context("papermill", words).params
    kind = ScriptConfig if "script.ipynb" in arguments["notebook_path"] else Config
    for name, value in arguments["parameters"]:
        assert_parameter(name, str(value), kind)


@pytest.mark.parametrize("words", COMMANDS, ids=shlex.join)
def test_files_of_documented_commands_exist(words):
    for word in words:
        if re.match(FOLDERS, word):
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize("words", COMMANDS, ids=shlex.join)
def test_documented_commands_parse(words, tmp_path, monkeypatch):
    (tmp_path / "train.log").touch()
    monkeypatch.chdir(tmp_path)
    if ">" in words:
        words = words[: words.index(">")]
    program, *rest = words
    if program == "make":
        assert f"\n{rest[0]}:" in MAKEFILE
    elif program == "perfkit" and "--help" not in rest:
        assert_perfkit_command(rest[0], rest[1:])
    elif program == "papermill" and "--help-notebook" not in rest and "summary" not in rest[0]:
        assert_papermill_command(rest)


@pytest.mark.parametrize("text", MENTIONED)
def test_commands_in_prose_have_valid_options(text):
    program, name, *rest = text.split()
    if program == "make":
        assert f"\n{name}:" in MAKEFILE
        return
    if "--" in rest:
        # What follows is for a script.
        rest = rest[: rest.index("--")]
    valid = {"--help"}
    for parameter in main.commands[name].params:
        valid.update(parameter.opts)
    for word in rest:
        if re.match(r"\[?--?\w", word):
            assert word.strip("[]") in valid
    for parameter, value in re.findall(r"-p ([a-z_]+) ([^\s…]+)", text):
        assert_parameter(parameter, value)


def anchors_of(path):
    """Return the anchors of a page's headings, as GitHub makes them."""
    anchors = []
    for title in re.findall(r"^#+ (.+)$", PROSE.get(path, ""), re.M):
        words = re.sub(r"[^\w\- ]|&\w+;", "", title.lower())
        anchors.append(words.replace(" ", "-"))
    return anchors


EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@EACH_PAGE
def test_links_within_the_documentation_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", PROSE[page]):
        place, _sign, anchor = target.partition("#")
        path = page
        if place:
            path = (page.parent / place).resolve()
        assert path.exists(), target
        assert not anchor or anchor in anchors_of(path), target


@EACH_PAGE
def test_mentioned_files_and_folders_exist(page):
    for path in re.findall(rf"`({FOLDERS}[^`\s]*)`", TEXTS[page]):
        pattern = re.sub(r"<\w+>|…", "*", path.rstrip("/"))
        assert [*ROOT.glob(pattern)], path


@EACH_PAGE
def test_mentioned_modules_and_names_exist(page):
    for name in re.findall(r"`(perfkit(?:\.\w+)*\.\w+)", TEXTS[page]):
        pkgutil.resolve_name(name)


@EACH_PAGE
def test_mentioned_tests_exist(page):
    for file, test in re.findall(r"(test_\w+\.py)(?:::(test_\w+))?", TEXTS[page]):
        source = (ROOT / "tests" / file).read_text()
        assert f"\ndef {test}" in source, f"{file}::{test}"


@pytest.mark.parametrize("version", ["1.27", "1.31"])
def test_the_kubernetes_job_is_valid_and_measures_one_node(version):
    (block,) = re.findall(r"^```yaml\n(apiVersion.*?)^```", TEXTS[CLUSTERS], re.M | re.S)
    job = YAML(typ="safe").load(block)
    kubernetes_validate.validate(job, version, strict=True)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command = shlex.split(container["args"][0])
    assert command[:3] == ["perfkit", "run", "resnet50"]
    options = command[3:]
    values = {}
    for name, text in zip(options[1::3], options[2::3], strict=True):
        values[name] = typed(name, text)
    values["label"] = "node-0"
    config = plan("resnet50", values, skip_checks=("machine", "data")).config
    assert config.topology == "1x8"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": config.gpus}
    memory = {"name": "memory", "emptyDir": {"medium": "Memory"}}
    assert memory in pod["volumes"]
    assert {"name": "memory", "mountPath": "/dev/shm"} in container["volumeMounts"]
