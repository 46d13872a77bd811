"""The `perfkit verify` command for two configurations."""

import shlex

from perfkit.measuring.config import Config
from perfkit.measuring.request.resolve import resolve

WORK = ("model_size", "image_size", "sequence_length", "optimizer", "outputs_dir")
"""Parameters that the command sets if they are not the default."""


def verify_command(config: Config, other: Config) -> str:
    """Return the `perfkit verify` command for the frameworks of both configurations; empty for
    scripts."""
    if not (config.work.facts and other.work.facts):
        return ""
    frameworks = f"{framework_option(config)},{framework_option(other)}"
    words = ["perfkit", "verify", config.work.name, "--frameworks", frameworks]
    usual = resolve({"model": config.work.name})
    for name in WORK:
        value = config.values[name]
        if value != usual.values[name]:
            words += ["-p", name, str(value)]
    return shlex.join(words)


def framework_option(config: Config) -> str:
    """Return a configuration's framework in the syntax of `--frameworks`, such as
    `torch:static:NCHW`: without what is the framework's default."""
    work = config.work.built_in
    usual = resolve({"model": work.model, "framework": config.framework}).work.built_in
    words: list[str] = [config.framework]
    if work.execution != usual.execution:
        words.append(work.execution)
    if work.layout and work.layout != usual.layout:
        words.append(work.layout)
    if config.python:
        words.append(config.python)
    return ":".join(words)
