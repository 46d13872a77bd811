"""The command line of a measurement, for another shell, container or machine."""

import shlex
from typing import Any

from perfkit.measuring.work import COMMAND, SCRIPT


def run_command(model: str, values: dict[str, Any]) -> list[str]:
    """Return the `perfkit run` command, as words, that measures `model` with these parameters;
    for "script", their script with its arguments; for "command", their command."""
    options = dict(values)
    work, behind = [model], ""
    if model == SCRIPT:
        work, behind = [options.pop("script")], options.pop("arguments", None) or ""
    elif model == COMMAND:
        work, behind = [], options.pop("command")
    arguments = shlex.split(behind)
    command = ["perfkit", "run", *work]
    for name, value in options.items():
        command += ["-p", name, str(value)]
    return [*command, "--", *arguments] if arguments else command
