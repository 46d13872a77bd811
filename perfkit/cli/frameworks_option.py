"""The option `--frameworks` of `perfkit verify`: which configurations are compared."""

from collections.abc import Iterator, Mapping
from typing import Any

from perfkit.measuring.config import Config
from perfkit.measuring.parameters import FIELDS, select
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.plan import plan, typed
from perfkit.measuring.system.software import installed_version
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.training.models import find_model

FIXED = {"device": "cpu", "input": "synthetic", "protocol": "quick"}
"""Parameters of every verification."""
OPTION = "--frameworks"
SET_BY_OPTION = ("framework", "execution", "layout", "python")
LAYOUTS = ("NCHW", "NHWC")


def verified_configs(
    model: str, frameworks: str | None, values: Mapping[str, Any]
) -> list[Config]:
    """Return the configurations to compare, the base first. Raises RequestError.

    `frameworks` is a list such as `paddle,torch:static`: frameworks, each with execution,
    layout and interpreter path where they differ from the default. None means all installed
    frameworks that support the model and the optimizer."""
    problems = [*_fixed_parameters(values)]
    installed = _installed_for(model, values.get("optimizer"))
    options = installed if frameworks is None else frameworks.split(",")
    if len(options) < 2:
        problems.append(
            f"{OPTION}: at least two are needed; installed for this work: "
            f"{', '.join(installed)}"
        )
    configs: list[Config] = []
    for option in options:
        try:
            config = plan(model, FIXED | dict(values) | parsed(option)).config
        except RequestError as error:
            problems += [problem for problem in error.problems if problem not in problems]
            continue
        if config in configs:
            problems.append(f"{OPTION}: {option} is given twice")
        configs.append(config)
    if problems:
        raise RequestError(problems)
    return configs


def parsed(option: str) -> dict[str, Any]:
    """Return the parameters that a framework of the option sets, such as `torch:static:NCHW` or
    `mxnet:.venv-mxnet/bin/python`."""
    framework, *words = option.split(":")
    settings: dict[str, Any] = {"framework": framework}
    for word in words:
        name = "execution"
        if word in LAYOUTS:
            name = "layout"
        elif "/" in word:
            name = "python"
        settings[name] = typed(name, word)
    return settings


def _fixed_parameters(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield why parameters can't be set in a verification."""
    allowed = select(verified=True)
    for name in values:
        if name in SET_BY_OPTION:
            yield f"{name}: set it by --frameworks, as in paddle,torch:static:NCHW"
        elif name in FIELDS and name not in allowed:
            yield f"{name}: fixed in a verification; it takes {', '.join(allowed)}"


def _installed_for(model: str, optimizer: str | None) -> list[str]:
    """Return the installed frameworks that support the model and the optimizer, by default the
    model's usual one."""
    facts = find_model(model)
    if facts and not optimizer:
        optimizer = facts.optimizers[0]
    names = []
    for name, framework in FRAMEWORKS.items():
        if installed_version(framework) and framework.takes(
            model=model, optimizer=optimizer or ""
        ):
            names.append(name)
    return names
