"""The command line's help, and what it prints of foreign text."""

import os
import shutil
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from conftest import cli
from made.results import keep, measured

from perfkit.cli import main
from perfkit.measuring.paths import ROOT


@pytest.mark.parametrize("name", main.commands)
def test_every_command_and_option_is_documented(name):
    done = CliRunner().invoke(main, [name, "--help"])
    assert done.exit_code == 0
    command = main.commands[name]
    assert command.help
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.opts
    getting_started = ROOT / "docs" / "getting-started.md"
    assert f"`perfkit {name}" in getting_started.read_text()


def test_a_folder_typed_as_an_option_is_refused_with_the_right_words():
    done = CliRunner().invoke(main, ["history", "--outputs", "h1"])
    assert done.exit_code == 2
    assert f"No such option '--outputs'. Type: {main.name} history OUTPUTS\n" in done.stderr


@pytest.mark.usefixtures("processes")
def test_a_terminal_that_is_not_utf_8_shows_escaped_characters():
    command = [sys.executable, "-c", "from perfkit.cli import main; main()"]
    command += ["history", "outputs/examples"]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"\\u2013" in done.stdout


HOSTILE = "\x1b]0;x\x07\nforged"
"""Sets the title of a terminal, and begins a line."""


@pytest.fixture(scope="module")
def hostile_outputs(tmp_path_factory):
    """Measurements of three nodes in a precision, and one that can't be read in a folder, with
    such names."""
    outputs = tmp_path_factory.mktemp("outputs")
    for node in ("a", "b", "c"):
        keep(outputs / node, measured([100.0, 100.1, 99.9], node=node, used=f"amp{HOSTILE}"))
    unreadable = outputs / f"unreadable{HOSTILE}"
    unreadable.mkdir()
    (unreadable / "result.json").write_text("{}")
    return outputs


@pytest.mark.parametrize("command", ["compare", "fleet", "history"])
def test_text_of_results_has_no_effect_in_a_terminal(hostile_outputs, tmp_path, command):
    outputs = shutil.copytree(hostile_outputs, tmp_path / "outputs")
    operands = [outputs]
    if command == "compare":
        operands = [*sorted(outputs.iterdir())[:2], "--across", "node"]
    done = cli(command, *operands)
    assert done.exit_code == 0
    printed = done.stdout + done.stderr
    assert "\x1b" not in printed
    assert "\nforged" not in printed
