"""README and docs: commands and links exist, the reference is that of the code."""

import re
import shlex
import subprocess
from itertools import pairwise
from textwrap import dedent

import kubernetes_validate
import pytest
import reference
from papermill.inspection import inspect_notebook
from ruamel.yaml import YAML

from perfkit.cli import main
from perfkit.measuring.parameters import parameters
from perfkit.measuring.paths import ROOT
from perfkit.measuring.work import CommandWork, ScriptWork

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
TEXTS = {page: page.read_text() for page in PAGES}
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.M | re.S)
PROSE = {page: BLOCK.sub("", text) for page, text in TEXTS.items()}
PARAMETERS = {*parameters(), *parameters(ScriptWork), *parameters(CommandWork)}
MAKEFILE = (ROOT / "Makefile").read_text()
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(language):
    """Yield each block in a language, without the indentation of its list."""
    for text in TEXTS.values():
        for name, block in BLOCK.findall(text):
            if name == language:
                yield dedent(block)


def commands():
    """Return the commands of perfkit, papermill and make in blocks and between backticks."""
    found = []
    for block in blocks("sh"):
        for line in block.replace("\\\n", " ").splitlines():
            found += line.split(" && ")
    for text in PROSE.values():
        found += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]
    return sorted(
        {text for text in found if re.match(r"(perfkit|papermill|make) [-\w./=]", text)}
    )


def assert_parameters(words, names):
    """Assert that each word after a `-p` is one of these names, or stands for one."""
    for option, name in pairwise(words):
        if option == "-p":
            assert name == "NAME" or name in names, name


def assert_perfkit(command, *words):
    words = [*words]
    if "--" in words:
        # What follows is for a script.
        words = words[: words.index("--")]
    if command == "COMMAND":
        return
    options = {"--help"}
    for option in main.commands[command].params:
        options.update(option.opts)
    for word in words:
        assert not re.fullmatch("--?[a-z-]+", word) or word in options, word
    if command != "audit":
        assert_parameters(words, PARAMETERS)


def assert_papermill(*words):
    for word in words:
        if word.startswith("notebooks/") and "MODEL" not in word:
            assert_parameters(words, inspect_notebook(str(ROOT / word)))


def assert_make(*words):
    for word in words:
        assert "=" in word or f"\n{word}:" in MAKEFILE, word


@pytest.mark.parametrize("text", commands())
def test_a_documented_command_exists_with_its_options(text):
    program, *words = shlex.split(text, comments=True)
    examined = {"perfkit": assert_perfkit, "papermill": assert_papermill, "make": assert_make}
    examined[program](*words)


@EACH_PAGE
def test_links_within_the_documentation_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", PROSE[page]):
        assert (page.parent / target).exists(), target


@EACH_PAGE
def test_a_named_test_exists(page):
    for file, test in re.findall(r"(test_\w+\.py)(?:::(test_\w+))?", TEXTS[page]):
        source = (ROOT / "tests" / file).read_text()
        assert f"\ndef {test}" in source, f"{file}::{test}"


def test_reference_pages_are_up_to_date():
    pages = reference.pages()
    stale = [path.name for path, text in pages.items() if path.read_text() != text]
    assert stale == [], "refresh them: make docs"


def test_the_kubernetes_job_is_valid_and_measures_with_existing_parameters():
    (block,) = [block for block in blocks("yaml") if block.startswith("apiVersion")]
    job = YAML(typ="safe").load(block)
    kubernetes_validate.validate(job, "1.31", strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    test_a_documented_command_exists_with_its_options(container["args"][0])


def would_run(target):
    """Return the commands of a make target on a fresh machine."""
    command = ["make", "--no-print-directory", "--dry-run", "--always-make", target]
    output = subprocess.check_output(command, cwd=ROOT, text=True)
    return output.replace("\\\n", " ").splitlines()


def test_the_lab_listens_only_locally_and_requires_its_token():
    (lab,) = [line for line in would_run("lab") if "jupyter lab" in line]
    assert "--ip 127.0.0.1" in lab
    assert "token" not in lab and "password" not in lab


@pytest.mark.parametrize("target", ["test", "lab"])
def test_make_installs_by_hashes_and_nothing_that_these_require(target):
    installs = [line for line in would_run(target) if "pip install" in line]
    assert installs
    for line in installs:
        words = line.split()
        by_hashes = "--require-hashes" in words and "--editable" not in words
        alone = {"--no-deps", "--no-build-isolation", "--editable"} <= {*words}
        assert by_hashes or alone, line
