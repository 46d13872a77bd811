"""README and docs match the code: current reference, valid commands, working links."""

import json
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
from perfkit.core.config import FIELDS, is_open
from perfkit.core.models import MODELS
from perfkit.core.paths import ROOT
from perfkit.core.request.plan import plan, typed
from perfkit.core.results.events import RANK_EVENTS, TELEMETRY_EVENTS
from perfkit.core.results.schema import Result

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
CLUSTERS = ROOT / "docs" / "clusters.md"
TEXTS = {path: path.read_text() for path in PAGES}
MAKEFILE = (ROOT / "Makefile").read_text()
PROSE = {path: re.sub(r"^```.*?^```", "", TEXTS[path], flags=re.M | re.S) for path in PAGES}
BLOCKS = "".join(re.findall(r"^```sh\n(.*?)^```", "".join(TEXTS.values()), re.M | re.S))
FOLDERS = "(?:perfkit|tests|benchmarks|notebooks|parameters|workflow|docs|outputs/examples)/"
LINES = [shlex.split(line, comments=True) for line in BLOCKS.replace("\\\n", " ").splitlines()]
MENTIONED = re.findall(r"`((?:perfkit|make) [a-z][^`]*)`", "".join(PROSE.values()))


@pytest.mark.parametrize("path", reference.pages(), ids=str)
def test_reference_pages_are_up_to_date(path):
    assert path.read_text() == reference.pages()[path], "refresh it: make docs"


def test_parameters_and_public_names_are_documented():
    assert all(reference.meaning(name) for name in perfkit.core.config.parameters())
    assert all(getattr(perfkit, name).__doc__ for name in perfkit.__all__)


@pytest.mark.parametrize("file", [Result, *reference.OTHER_FILES], ids=lambda f: f.__name__)
def test_every_field_of_a_json_file_is_documented(file):
    for model in reference.models(file).values():
        assert all(part.get("description") for part in [model, *model["properties"].values()])


def adapters(events):
    """Return the kind of each event and what validates it."""
    by_kind = {}
    for event in events:
        (kind,) = get_args(get_type_hints(event)["event"])
        by_kind[kind] = TypeAdapter(event)
    return by_kind


def test_every_line_of_a_raw_file_is_documented():
    of_ranks, of_telemetry = adapters(RANK_EVENTS), adapters(TELEMETRY_EVENTS)
    lines = 0
    for path in (ROOT / "outputs" / "examples").rglob("repeats/*/*.jsonl"):
        by_kind = of_telemetry if path.stem == "telemetry" else of_ranks
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["event"] != "effective":
                by_kind[event["event"]].validate_python(event)
                lines += 1
    assert lines > 1000


def assert_parameters(pairs):
    for name, value in pairs:
        given = typed(name, str(value))
        if not name.startswith("environment.") and given != "auto" and not is_open(name, given):
            TypeAdapter(Annotated[FIELDS[name].annotation, FIELDS[name]]).validate_python(given)


@pytest.mark.parametrize("words", [*filter(None, LINES)], ids=shlex.join)
def test_documented_commands_parse_and_their_files_exist(words, tmp_path, monkeypatch):
    assert [w for w in words if re.match(FOLDERS, w) and not (ROOT / w).exists()] == []
    (tmp_path / "train.log").touch()
    monkeypatch.chdir(tmp_path)
    program, *rest = words[: [*words, ">"].index(">")]
    if program == "perfkit" and "--help" not in rest:
        arguments = main.commands[rest[0]].make_context(rest[0], rest[1:]).params
        model, *variants = [arguments.get("model", "bert")]
        if arguments.get("live"):
            model, *variants = arguments["names"]
        assert model in MODELS
        assert_parameters(arguments.get("values", {}).items())
        for variant in variants:
            assert_parameters(pair.split("=") for pair in variant.split(","))
    elif program == "papermill" and "--help-notebook" not in rest and "summary" not in rest[0]:
        assert_parameters(papermill.make_context("papermill", rest).params["parameters"])
    elif program == "make":
        assert f"\n{rest[0]}:" in MAKEFILE


@pytest.mark.parametrize("text", MENTIONED)
def test_commands_in_prose_have_valid_options(text):
    program, name, *rest = text.split()
    if program == "perfkit":
        valid = {"--help"}
        for parameter in main.commands[name].params:
            valid.update(parameter.opts)
        options = [word.strip("[]") for word in rest if re.match(r"\[?--?\w", word)]
        assert {*options} <= valid
        assert_parameters(re.findall(r"-p ([a-z_]+) ([^\s…]+)", text))
    else:
        assert f"\n{name}:" in MAKEFILE


def anchors_of(path):
    """Return the anchors of a page's headings, as GitHub makes them."""
    anchors = []
    for title in re.findall(r"^#+ (.+)$", PROSE.get(path, ""), re.M):
        words = re.sub(r"[^\w\- ]|&\w+;", "", title.lower())
        anchors.append(words.replace(" ", "-"))
    return anchors


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_paths_modules_and_tests_exist(page):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", PROSE[page]):
        place, _, anchor = target.partition("#")
        path = (page.parent / place).resolve() if place else page
        assert path.exists(), target
        assert not anchor or anchor in anchors_of(path), target
    for path in re.findall(rf"`({FOLDERS}[^`\s]*)`", TEXTS[page]):
        assert [*ROOT.glob(re.sub(r"<\w+>|…", "*", path.rstrip("/")))], path
    for module, name in re.findall(r"`(perfkit(?:\.\w+)*)\.(\w+)", TEXTS[page]):
        assert hasattr(__import__(module, fromlist=[name]), name), f"{module}.{name}"
    for file, test in re.findall(r"(test_\w+\.py)(?:::(test_\w+))?", TEXTS[page]):
        assert f"\ndef {test}" in (ROOT / "tests" / file).read_text(), f"{file}::{test}"


@pytest.mark.parametrize("version", ["1.27", "1.31"])
def test_the_kubernetes_job_is_valid_and_measures_one_node(version):
    (block,) = re.findall(r"^```yaml\n(apiVersion.*?)^```", TEXTS[CLUSTERS], re.M | re.S)
    job = YAML(typ="safe").load(block)
    kubernetes_validate.validate(job, version, strict=True)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command = shlex.split(container["args"][0])
    values = dict(zip(command[4::3], command[5::3], strict=True))
    values |= {name: typed(name, value) for name, value in values.items()}
    values["label"] = "node-0"
    config = plan("resnet50", values, skip_checks=("machine", "data")).config
    assert command[:3] == ["perfkit", "run", "resnet50"]
    assert config.topology == "1x8"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": config.gpus}
    memory = {"name": "memory", "emptyDir": {"medium": "Memory"}}
    assert memory in pod["volumes"]
    assert {"name": "memory", "mountPath": "/dev/shm"} in container["volumeMounts"]
