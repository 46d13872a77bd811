"""The command line's help."""

import os
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from perfkit.cli import main
from perfkit.core.paths import ROOT

ORDER = ["run", "sweep", "report", "compare", "history", "verify", "diagnose", "audit"]
ORDER += ["doctor", "samples"]


def test_help_lists_the_commands_in_order_with_whole_summaries():
    text = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout
    listed = text.partition("Commands:")[2].partition("Exit status")[0]
    assert re.findall(r"^  (\w+)", listed, re.M) == ORDER
    summaries = [main.commands[name].help.partition(".")[0] for name in ORDER]
    assert [s for s in summaries if " ".join(s.split()) not in " ".join(listed.split())] == []
    assert "..." not in listed


@pytest.mark.parametrize("name", main.commands)
def test_every_command_and_option_is_documented(name):
    command = main.commands[name]
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0
    assert command.help
    assert [option.opts for option in options if not option.help] == []
    assert f"`perfkit {name}" in (ROOT / "docs" / "getting-started.md").read_text()


@pytest.mark.usefixtures("processes")
def test_a_terminal_that_is_not_utf_8_shows_escaped_characters():
    command = [sys.executable, "-c", "from perfkit.cli import main; main()"]
    command += ["history", "outputs/examples"]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"\\u2013" in done.stdout
