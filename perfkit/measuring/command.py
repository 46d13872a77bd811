"""The command line of a measurement, for another shell, container or machine."""

import shlex
from typing import Any

from perfkit.measuring.work import COMMAND, SCRIPT


def run_command(model: str, values: dict[str, Any]) -> list[str]:
    """Return the `perfkit run` command, as words, that measures `model` with these parameters;
    for "script", their script with its arguments; for "command", their command."""
    options = dict(values)
    arguments: list[str] = []
    if model == SCRIPT:
        model = options.pop("script")
        arguments = shlex.split(options.pop("arguments", None) or "")
    command = ["perfkit", "run", *([] if model == COMMAND else [model])]
    if model == COMMAND:
        arguments = shlex.split(options.pop(COMMAND))
    for name, value in options.items():
        command += ["-p", name, str(value)]
    return [*command, "--", *arguments] if arguments else command
