"""README and docs say what is: reference pages are what the code writes now, commands can be
typed, links lead somewhere, and every test that a promise names exists."""

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from papermill.cli import papermill

import perfkit
from perfkit.cli import main
from perfkit.config import ROOT
from perfkit.diagnosis.verdict import Diagnosis
from perfkit.models import MODELS
from perfkit.request.plan import typed, value_problems
from perfkit.results.schema import Reading, Result
from perfkit.verification.stored import Verification

sys.path.insert(0, str(ROOT / "docs"))
import reference

GENERATED = ROOT / "docs" / "reference"
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
"""What people write; `docs/reference` is written by the code."""
PAGES = [*WRITTEN, *sorted(GENERATED.glob("*.md"))]
MAIN = click.Context(main, info_name="perfkit", **main.context_settings)


def name_of(path):
    return str(path.relative_to(ROOT))


# The reference.


@pytest.mark.parametrize("path", reference.pages(), ids=name_of)
def test_the_reference_is_what_the_code_writes_now(path):
    assert path.read_text() == reference.pages()[path], "refresh it: make docs"


def test_the_reference_has_no_page_that_the_code_does_not_write():
    assert {*GENERATED.iterdir()} == {p for p in reference.pages() if p.parent == GENERATED}


def test_every_parameter_has_a_default_what_is_allowed_and_a_meaning():
    table = reference.parameters_page().partition("## Protocols")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.M)
    cells = {
        name: row.split(" | ") for name, row in rows if name in perfkit.config.parameters()
    }
    assert cells.keys() == perfkit.config.parameters().keys()
    assert [name for name, row in cells.items() if len(row) != 5 or not all(row)] == []


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_and_option_has_help_and_every_argument_is_told_of(name):
    command = main.commands[name]
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0
    assert command.help
    assert [one.opts for one in options if not one.help] == []
    told = " ".join([command.help, *(one.help for one in options)])
    words = re.findall(r"[A-Z]{2,}", " ".join(command.collect_usage_pieces(MAIN)))
    assert [word for word in words if word not in told + "OPTIONS"] == []


@pytest.mark.parametrize("name", main.commands)
def test_every_command_stands_in_the_readme(name):
    assert f"`perfkit {name}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", perfkit.__all__)
def test_every_public_name_has_a_docstring_and_so_have_its_members(name):
    heading, *parts = reference.of_name(name)
    assert getattr(perfkit, name).__doc__
    assert heading == f"## {name}"
    assert not re.search(r"^\| `.*` \|  \|$", "\n".join(parts), re.M)


def test_every_field_of_result_json_and_every_part_of_it_has_a_description():
    for name, model in reference.models(Result.model_json_schema()).items():
        assert model.get("description"), name
        for field, schema in model["properties"].items():
            assert schema.get("description"), f"{name}.{field}"


@pytest.mark.parametrize("model", [Diagnosis, Verification])
def test_every_field_of_what_else_is_stored_stands_in_its_section(model):
    schema = model.model_json_schema()
    fields = {name for one in (schema, *schema["$defs"].values()) for name in one["properties"]}
    fields -= {*Reading.model_fields}
    text = (ROOT / "docs" / "results.md").read_text()
    assert [name for name in sorted(fields) if f"`{name}`" not in text] == []


# Commands.


class Typed(NamedTuple):
    """A command as a document has it, and where."""

    page: str
    text: str

    @property
    def words(self):
        """Without where its output goes, which is the shell's."""
        return shlex.split(self.text.partition(" > ")[0])


def fenced(path):
    """The commands in the blocks of shell of a page."""
    for block in re.findall(r"^```sh\n(.*?)^```", path.read_text(), re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            yield Typed(path.name, " ".join(re.sub(r"(^| +)#.*", "", line).split()))


def inline(path):
    """The commands in the text of a page: whole ones and their beginnings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    for code in re.findall(r"`((?:perfkit|make) [^`]+)`", text):
        yield Typed(path.name, " ".join(code.split()))


COMMANDS = [command for path in WRITTEN for command in fenced(path)]
MENTIONED = [command for path in WRITTEN for command in inline(path)]

TRIED = {
    "perfkit run --help": "here",
    "perfkit manifest resnet50": "here",
    "cp -r workflow/profiles/": "here",
    "export OMP_NUM_THREADS=1": "here",
    "perfkit run resnet50 -p framework torch": "test_frameworks.py",
    "perfkit run resnet50 -p repeats auto": "test_driver.py::"
    "test_repeats_end_once_the_interval_is_narrow_or_the_budget_spent",
    "perfkit verify": "test_verification.py::"
    "test_the_command_verifies_real_frameworks_and_stores_what_it_found",
    "perfkit compare --live": "test_live.py::"
    "test_sides_are_measured_in_turn_and_shown_with_json_page_and_links",
    "perfkit compare label:": "test_comparison.py::"
    "test_a_name_may_be_a_file_a_folder_or_a_label",
    "perfkit run resnet50 -p label": "test_driver.py::"
    "test_only_missing_repeats_are_run_again_and_a_label_starts_a_new_measurement",
    "perfkit history --check": "test_history.py::"
    "test_check_ends_with_1_for_a_regression_and_the_text_fits_in_80_columns",
    "perfkit sweep parameters/quick.yaml": "test_sweep.py::"
    "test_a_sweep_measures_every_configuration_and_ends_in_the_site",
    "perfkit sweep parameters/quick.yaml --dry-run": "test_sweep.py::"
    "test_a_dry_run_says_what_would_run_and_for_how_long_and_starts_nothing",
    "perfkit sweep my.yaml --profile ~/our-slurm": "test_sweep.py::"
    "test_a_slurm_cluster_runs_jobs_of_one_and_two_nodes_and_one_that_fails",
    "perfkit sweep my.yaml --profile ~/our-kubernetes": "test_sweep.py::"
    "test_kubernetes_gets_a_valid_job_for_each_configuration_whose_command_measures_it",
    "perfkit sweep my.yaml -p launcher mpirun": "test_sweep.py::"
    "test_mpirun_over_ssh_runs_the_configurations_of_two_hosts",
    "perfkit audit logs/": "test_audit.py::"
    "test_the_command_prints_every_figure_within_80_columns",
    "perfkit audit Perf/ResNet50V1.5 --published": "test_audit.py::"
    "test_an_audit_is_kept_as_a_page_in_both_languages_that_the_index_links_to",
    "perfkit audit train.log --claim": "test_audit.py::"
    "test_a_claim_that_the_log_gives_ends_with_0_and_another_with_1",
    "perfkit import": "test_import.py::"
    "test_the_command_stores_and_shows_and_says_of_which_steps_the_number_is",
    "perfkit export": "test_export.py::"
    "test_the_command_exports_a_folder_and_names_what_it_leaves_out",
}
"""How a command begins -> the test that runs one like it, in small; "here": this module."""

NOT_TRIED = {
    "papermill notebooks/resnet50.ipynb out.ipynb -p gpus 8": "8 GPUs and ImageNet; on a CPU: "
    "test_notebook.py::test_papermill_measures_and_leaves_result_page_notebook_and_index",
    "perfkit run resnet50 -p gpus 8": "8 GPUs; on a CPU: "
    "test_notebook.py::test_perfkit_run_does_the_same_and_keeps_the_executed_notebook",
    "perfkit diagnose resnet50 -p gpus 8": "8 GPUs and ImageNet; on a CPU: "
    "test_diagnosis.py::test_a_real_diagnosis_has_all_its_parts_and_stands_on_the_page",
    "perfkit sweep parameters/fleetx-resnet50.yaml": "32 GPUs and ImageNet; the file: "
    "test_parameters.py::"
    "test_every_cell_that_paddle_published_is_named_exactly_once",
    "kubectl apply": "a Kubernetes cluster; what it is given: "
    "test_manifest.py::test_every_object_is_valid_by_the_schema_of_kubernetes",
    "pip install": "the network, and gigabytes",
    "conda env create": "conda, and the network",
    ". .venv/bin/activate": "a shell of one's own",
    "make": "the network for its first installation, and minutes",
    ".ci/run": "it runs these tests",
    "python benchmarks/torch_variants.py": "minutes of both cores",
}
"""How a command begins -> what it needs that a test has not, and the test of the nearest."""


def longest(text, beginnings):
    """The longest of the beginnings that the text has, if it has one."""
    return max((one for one in beginnings if text.startswith(one)), key=len, default=None)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.text)
def test_every_command_of_a_document_is_run_by_a_test_or_says_what_it_needs(command):
    assert longest(command.text, [*TRIED, *NOT_TRIED]), (
        f"{command.page}: nothing says how `{command.text}` is tested. Name the test that runs "
        "one like it in TRIED, or what it needs in NOT_TRIED"
    )


def test_no_way_of_testing_is_left_over():
    used = {longest(command.text, [*TRIED, *NOT_TRIED]) for command in COMMANDS}
    assert {*TRIED, *NOT_TRIED} - used == set()


@pytest.fixture
def readers_folder(tmp_path, monkeypatch):
    """Where a reader stands who has what the documents call their own."""
    (tmp_path / "logs").mkdir()
    for name in ("train.log", "my.yaml", "job.yaml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def wrong_parameters(pairs, also=()):
    """What is wrong with parameters, names and values as typed; names that begin like one of
    `also` may be any."""
    return [
        problem
        for name, value in pairs
        if not name.startswith(tuple(also))
        for problem in value_problems(name, typed(name, value))
    ]


def perfkit_problems(words):
    """What is wrong with a perfkit command, by its own parser and its own parameters."""
    name, *rest = words
    command = main.commands[name]
    try:
        given = command.make_context(name, rest, parent=MAIN).params
    except click.exceptions.Exit:
        # --help.
        return []
    problems = wrong_parameters(
        given.get("given", ()), also=["environment."] * (name == "import")
    )
    model, *sides = given["names"] if given.get("live") else [given.get("model", "resnet50")]
    problems += [f"no model {model}"] * (model not in MODELS)
    pairs = [tuple(one.split("=")) for side in sides for one in side.split(",")]
    return problems + wrong_parameters(pairs)


def papermill_problems(words):
    given = papermill.make_context("papermill", [*words]).params
    return wrong_parameters(given["parameters"])


def make_problems(words):
    done = subprocess.run(
        ["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return [done.stderr] if done.returncode else []


def pip_problems(words):
    """Extras that pyproject.toml does not have."""
    *_install, what = words
    extras = re.fullmatch(r"\.\[(.+)\]", what)[1].split(",")
    known = importlib.metadata.metadata("perfkit").get_all("Provides-Extra")
    return [extra for extra in extras if extra not in known]


JUDGES = {
    "perfkit": perfkit_problems,
    "papermill": papermill_problems,
    "make": make_problems,
    "pip": pip_problems,
}


@pytest.mark.usefixtures("readers_folder")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.text)
def test_every_command_of_a_document_can_be_typed_as_it_stands_there(command):
    program, *words = command.words
    assert JUDGES.get(program, lambda _words: [])(words) == []
    # What lies in the checkout must be there; the rest is the reader's own.
    rooms = {path.name for path in ROOT.iterdir()}
    named = [word for word in [program, *words] if word.partition("/")[0] in rooms]
    named = [word for word in named if "/" in word and not word.startswith("logs/")]
    assert [word for word in named if not (ROOT / word).exists()] == []


@pytest.mark.parametrize("command", MENTIONED, ids=lambda command: command.text)
def test_every_command_that_is_mentioned_has_these_options(command):
    program, name, *rest = command.text.split()
    if program == "make":
        assert make_problems([name]) == []
        return
    known = {option for one in main.commands[name].params for option in one.opts} | {"--help"}
    assert [w for w in rest if w.startswith("-") and w != "-" and w not in known] == []
    pairs = re.findall(r"-p ([a-z_]+) ([^\s`]+)", command.text)
    assert wrong_parameters(pairs) == []


def of_beginning(beginning):
    return [command for command in COMMANDS if command.text.startswith(beginning)]


@pytest.mark.parametrize(
    "command",
    of_beginning("perfkit manifest") + of_beginning("perfkit run --help"),
    ids=lambda command: command.text,
)
def test_what_needs_no_framework_is_run_as_it_stands(command, readers_folder):
    done = CliRunner().invoke(main, command.words[1:])
    assert done.exit_code == 0, done.output
    assert done.output


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("command", of_beginning("cp") + of_beginning("export"))
def test_what_the_shell_does_is_run_as_it_stands(command, readers_folder):
    subprocess.run(["bash", "-c", command.text], cwd=ROOT, check=True)
    if command.words[0] == "cp":
        source, target = command.words[-2:]
        copied = readers_folder / target.removeprefix("~/")
        assert (copied / "config.yaml").read_text() == (
            ROOT / source / "config.yaml"
        ).read_text()


# Links, paths, tests.


def slug(heading):
    """The anchor that a heading has on GitHub."""
    text = re.sub(r"&\w+;|[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def anchors(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:", target):
            continue
        place, _, anchor = target.partition("#")
        path = page.parent / place if place else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            dead.append(target)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_path_of_the_checkout_that_is_named_is_there(page):
    rooms = "perfkit|tests|benchmarks|notebooks|parameters|workflow|docs|outputs/examples"
    named = re.findall(rf"`((?:{rooms})/[^`\s]*)`", page.read_text())
    missing = [
        path for path in named if not list(ROOT.glob(re.sub(r"<\w+>|…", "*", path.rstrip("/"))))
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_name_of_the_package_that_is_named_is_there(page):
    for dotted in re.findall(r"`(perfkit(?:\.\w+)+)", page.read_text()):
        module, _, name = dotted.rpartition(".")
        thing = importlib.import_module(module)
        assert hasattr(thing, name) or importlib.util.find_spec(dotted), dotted


def named_tests(text):
    """File, and test of it, as `test_x.py::test_y`; without a test, the whole file."""
    return re.findall(r"(test_\w+\.py)(?:::(test_\w+))?", text)


@pytest.mark.parametrize(
    "text", [*(page.read_text() for page in PAGES), str([*TRIED.values(), *NOT_TRIED.values()])]
)
def test_every_test_that_is_named_exists(text):
    for file, test in named_tests(text):
        path = ROOT / "tests" / file
        assert path.exists(), file
        assert not test or f"\ndef {test}(" in path.read_text(), f"{file}::{test}"


# What is installed, and what listens.


def would_run(target):
    """The commands of a target of the Makefile, as on a machine where nothing is made yet."""
    command = ["make", "--dry-run", "--always-make", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.replace("\\\n", " ").splitlines()


def test_the_lab_listens_on_this_machine_alone_and_asks_for_its_token():
    (lab,) = [line for line in would_run("lab") if "jupyter lab" in line]
    assert "--ip 127.0.0.1" in lab
    assert "token" not in lab and "password" not in lab


def pinned():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("target", ["report", "test", "lab", "lint", "bench", "docs"])
def test_make_installs_the_versions_of_constraints_txt_and_those_alone(target):
    installs = [line for line in would_run(target) if "pip install" in line]
    assert installs
    versions = pinned()
    for line in installs:
        assert "--constraint constraints.txt" in line
        for wanted in required(re.search(r"\.\[([\w,]+)\]", line)[1].split(",")):
            assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), wanted


def required(extras):
    """What pyproject.toml wants with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for extra in extras for one in optional[extra])]
    return map(Requirement, wanted)
