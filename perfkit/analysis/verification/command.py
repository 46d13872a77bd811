"""The `perfkit verify` command for given configurations."""

import shlex

from perfkit.measuring.config import Config
from perfkit.measuring.request.resolve import resolve
from perfkit.training.frameworks import FRAMEWORKS

WORK = ("model_size", "image_size", "sequence_length", "optimizer", "outputs_dir")
"""Parameters that the command sets if they are not the default."""


def verify_command(config: Config, other: Config | None = None) -> str:
    """Return the `perfkit verify` command for the frameworks of both configurations or, without
    `other`, for `config`'s and another; empty if no other framework supports this work."""
    partners = _other_frameworks(config)
    if not partners or (other and not other.work.facts):
        return ""
    named = [framework_option(config)]
    named.append(framework_option(other) if other else partners[0])
    words = ["perfkit", "verify", config.work.name]
    if other or named[0] != config.framework:
        words += ["--frameworks", ",".join(named)]
    usual = resolve({"model": config.work.name})
    for name in WORK:
        value = config.values[name]
        if value != usual.values[name]:
            words += ["-p", name, str(value)]
    return shlex.join(words)


def _other_frameworks(config: Config) -> list[str]:
    """Return the other frameworks that support this model and optimizer; none for a script."""
    if not config.work.facts:
        return []
    work, names = config.work.built_in, []
    for name, framework in FRAMEWORKS.items():
        is_able = framework.takes(model=work.model, optimizer=work.optimizer)
        if is_able and name != config.framework:
            names.append(name)
    return names


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
