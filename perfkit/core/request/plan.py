"""From a request to a plan: validates parameters, reporting all errors together."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from perfkit.core.config import (
    FIELDS,
    PROTOCOL_PARAMETERS,
    Config,
    Protocol,
    choices,
    is_open,
    parameters,
    select,
)
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.models import MODELS
from perfkit.core.paths import interpreter_path, typed_path
from perfkit.core.request import RequestError, not_available, suggest, validated
from perfkit.core.request.checks import Check, problems
from perfkit.core.request.resolve import resolve


@dataclass(frozen=True)
class Plan:
    """A configuration and a protocol with all parameters set."""

    config: Config
    protocol: Protocol


def plan(model: str, namespace: Mapping[str, Any], skip_checks: Collection[Check] = ()) -> Plan:
    """Validate the parameters in `namespace` and fill in open ones.

    `namespace` is a notebook's `globals()` or any mapping of names to values. Every public name
    with a plain literal counts as a parameter, so that misspelt names are noticed. Skip checks
    of this `machine` if another one measures, of its `requirements`, or of the `data`. Raises
    RequestError with all problems.
    """
    given = {name: value for name, value in namespace.items() if _is_parameter(name, value)}
    wrong = [
        f"{name}: no such parameter{suggest(name, FIELDS)} "
        "(for a variable of your own, use a name with a leading underscore)"
        for name in given.keys() - FIELDS.keys()
    ]
    given = {name: given[name] for name in FIELDS if name in given}
    unset = [name for name in ("device", "gpus") if is_open(name, given.get(name))]
    device = given.get("device")
    kind = device if isinstance(device, str) and device not in ("auto", "cpu") else "gpu"
    by_gpu = device == kind or len(unset) == 2
    if "machine" in skip_checks and by_gpu and not given.get("gpus"):
        wrong.append("gpus: set the number per node; the measuring machine is unknown here")
    framework = FRAMEWORKS.get(str(given.get("framework")), FRAMEWORKS["paddle"])
    python = interpreter_path(str(given.get("python") or ""))
    gpus = 0
    try:
        if "machine" not in skip_checks:
            gpus = len(framework.visible_devices(kind, python))
    except OSError as error:
        if device != "cpu" and given.get("gpus") != 0:
            gpus = given.get("gpus") or 1
            if "requirements" not in skip_checks:
                wrong.append(f"gpus: {error}; to run on the CPU: -p device cpu")
    values = {"model": model} | {n: v for n, v in given.items() if n in Config.model_fields}
    found = len(wrong)
    for name, known in (("model", MODELS), ("framework", FRAMEWORKS)):
        if name in values and values[name] not in [*known]:
            wrong.append(not_available(name, values[name], tuple(known)))
            values[name] = next(iter(known))
    config = validated(lambda: resolve(values, gpus), wrong)
    steps = {name: given[name] for name in PROTOCOL_PARAMETERS if name in given}
    name = steps.pop("protocol", None)
    if is_open("protocol", name):
        name = "published" if config and config.accelerated else "quick"
    if name not in choices("protocol"):
        wrong.append(not_available("protocol", name, choices("protocol")))
        name = "quick"
    protocol = validated(lambda: Protocol.named(name, **steps), wrong)
    if config and protocol and len(wrong) == found:
        wrong += problems(config, gpus, skip_checks)
        if not wrong:
            return Plan(config, protocol)
    raise RequestError(sorted(wrong))


def typed(name: str, value: str) -> Any:
    """Convert a `value` from the command line to the parameter's type, if possible. A relative
    path starts in the working directory."""
    if value in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[value]
    if name in select(is_path=True):
        return typed_path(value)
    default, _meaning = parameters().get(name, (None, ""))
    if isinstance(default, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _is_parameter(name: str, value: object) -> bool:
    literal = value is None or isinstance(value, str | int | float | list | tuple | dict)
    # IPython defines In and Out.
    return literal and not name.startswith("_") and name not in ("In", "Out")
