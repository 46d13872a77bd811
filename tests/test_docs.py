"""README and docs match the code: current reference, existing names, working links."""

import json
import pkgutil
import re
from typing import get_args, get_type_hints

import pytest
import reference
from pydantic import TypeAdapter

import perfkit
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.paths import ROOT
from perfkit.core.results.events import RANK_EVENTS, TELEMETRY_EVENTS
from perfkit.core.results.schema import Result

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
TEXTS = {path: path.read_text() for path in PAGES}
BLOCK = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
PROSE = {path: BLOCK.sub("", text) for path, text in TEXTS.items()}
FOLDERS = "(?:perfkit|tests|benchmarks|notebooks|parameters|docs|outputs/examples)/"


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
            if kind not in ("effective", "told"):
                by_kind[kind].validate_python(event)
                lines += 1
    assert lines > 1000


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
