"""From a request to a plan: validates parameters, reporting all errors together."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from perfkit.core import refusals
from perfkit.core.config import Config, Protocol, RunConfig
from perfkit.core.parameters import (
    PROTOCOL_PARAMETERS,
    choices,
    fields_of,
    is_open,
    models_with,
    parameters,
    select,
    takes,
    with_absolute_paths,
)
from perfkit.core.paths import OUTPUTS, interpreter_path
from perfkit.core.refusals import NoSuchParameter, NotAvailable, Refusal, nearest_name
from perfkit.core.request import RequestError, validated
from perfkit.core.request.checks import CheckScope, problems
from perfkit.core.request.requested_script import (
    SUFFIX,
    Notice,
    not_a_parameter,
    requested_script,
    without_timer,
)
from perfkit.core.request.resolve import resolve, resolve_script
from perfkit.core.request.script import ScriptContent
from perfkit.core.script_config import SCRIPT, AnyConfig, ScriptConfig, built_in
from perfkit.core.system.devices import visible_devices
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.training.models import MODELS

Values = dict[str, Any]
"""Parameters by name."""


@dataclass(frozen=True)
class Plan:
    """A configuration and a protocol with all parameters set."""

    config: AnyConfig
    protocol: Protocol

    @property
    def built_in(self) -> Config:
        """The configuration of a built-in model. Raises NotBuiltInError for a script."""
        return built_in(self.config)

    @property
    def notices(self) -> list[Notice]:
        """What may go wrong with a script."""
        if not isinstance(self.config, ScriptConfig):
            return []
        notice = without_timer(self.config)
        return [notice] if notice else []


def plan(
    model: str, namespace: Mapping[str, Any], skip_checks: Collection[CheckScope] = ()
) -> Plan:
    """Validate the parameters in `namespace` and fill in open ones. `model` is the name of a
    built-in model, or "script" for the script in `namespace`.

    `namespace` is a notebook's `globals()` or any mapping of names to values. Every public name
    with a plain literal counts as a parameter, so that misspelt names are noticed. Relative
    paths start in the working directory. Skip checks of this `machine` if another one measures,
    of its `requirements`, or of the `data`. Raises RequestError with all problems.
    """
    kind = ScriptConfig if model == SCRIPT else Config
    refused: list[Refusal] = []
    values = _with_device(_values(namespace, kind, refused), refused)
    invalid: list[Refusal] = []
    make: Callable[[Values, list[Refusal]], AnyConfig | None]
    if model == SCRIPT:
        script = requested_script(values, invalid)
        values = script.values
        gpus = _visible_devices(values, skip_checks, refused)
        make = partial(_script_config, script.content, gpus)
    else:
        values = _taken(model, values, refused)
        gpus = _visible_devices(values, skip_checks, refused)
        make = partial(_config, model, gpus)
    config = make(values, invalid)
    protocol = _protocol(values, config, invalid)
    possible = config or make(_corrected(values, invalid), [])
    if possible:
        unsure = [refusal.parameter for refusal in invalid if not _correction(refusal)]
        refused += problems(possible, gpus, skip_checks, unsure)
    every = sorted(refused + invalid, key=Refusal.text)
    if config and protocol and not every:
        return Plan(config, protocol)
    raise RequestError(every)


def _values(
    namespace: Mapping[str, Any], kind: type[RunConfig], refused: list[Refusal]
) -> Values:
    """Return the values of the parameters in `namespace`, with absolute paths. A misspelt name
    is refused; it stands for the nearest one, unless that is set, so that the errors of its
    value are found too."""
    fields = fields_of(kind)
    values: Values = {"outputs_dir": OUTPUTS}
    misspelt: Values = {}
    for name, value in namespace.items():
        if not _is_parameter(name, value):
            continue
        if name in fields:
            values[name] = value
            continue
        refusal = not_a_parameter(name, kind)
        refused.append(refusal)
        if isinstance(refusal, NoSuchParameter) and refusal.nearest:
            misspelt[refusal.nearest] = value
    for name, value in misspelt.items():
        default, _meaning = parameters(kind)[name]
        if values.get(name, default) == default:
            values[name] = value
    return with_absolute_paths(values)


def _with_device(values: Values, refused: list[Refusal]) -> Values:
    """Return the values with `gpu` in the place of PyTorch's name for it, which is refused, so
    that the errors of other values are found too."""
    device = values.get("device")
    if not isinstance(device, str) or not device.startswith("cuda"):
        return values
    refused.append(
        NotAvailable(
            parameter="device", value=repr(device), allowed=["cpu", "gpu"], nearest="gpu"
        )
    )
    return values | {"device": "gpu"}


def _taken(model: str, values: Values, refused: list[Refusal]) -> Values:
    """Return the values without those of parameters that the model, or the one of the nearest
    name, does not take; they are refused unless they are the defaults."""
    known = model if model in MODELS else nearest_name(model, MODELS)
    if known is None:
        return values
    taken: Values = {}
    for name, value in values.items():
        default, _meaning = parameters()[name]
        if takes(known, name):
            taken[name] = value
        elif value not in (None, default):
            refused.append(
                refusals.NotOfModel(parameter=name, model=known, models=models_with(name))
            )
    return taken


def _corrected(values: Values, invalid: list[Refusal]) -> Values:
    """Return the values without those that are invalid, or with what they may mean."""
    corrected = dict(values)
    for refusal in invalid:
        corrected.pop(refusal.parameter, None)
        correction = _correction(refusal)
        if correction:
            corrected[refusal.parameter] = correction
    return corrected


def _correction(refusal: Refusal) -> str | None:
    """Return the word that a misspelt one may mean."""
    return refusal.nearest if isinstance(refusal, NotAvailable) else None


def _is_parameter(name: str, value: object) -> bool:
    is_literal = value is None or isinstance(value, str | int | float | list | tuple | dict)
    # Papermill pastes a name into the notebook: one that is no identifier may be code.
    is_of_user = name.startswith("_") and name.isidentifier()
    # IPython defines In and Out.
    return is_literal and not is_of_user and name not in ("In", "Out")


def _visible_devices(
    values: Mapping[str, Any], skip_checks: Collection[CheckScope], refused: list[Refusal]
) -> int:
    """Return the number of this machine's devices of the training type, 0 if another machine
    measures. Appends to `refused` what prevents this."""
    accelerator = _accelerator(values)
    if "machine" in skip_checks:
        may_use_all = is_open("device", values.get("device"))
        may_use_all &= is_open("gpus", values.get("gpus"))
        is_accelerated = may_use_all or values.get("device") == accelerator
        if is_accelerated and not values.get("gpus"):
            refused.append(refusals.GpusUnknown())
        return 0
    framework = str(values.get("framework", "paddle"))
    interpreter = interpreter_path(str(values.get("python") or ""))
    try:
        return len(visible_devices(framework, accelerator, interpreter))
    except OSError as error:
        if values.get("device") == "cpu" or values.get("gpus") == 0:
            return 0
        if "requirements" not in skip_checks:
            refused.append(refusals.DriverFails(reason=str(error)))
        return values.get("gpus") or 1


def _accelerator(values: Mapping[str, Any]) -> str:
    """Return the type of accelerator that the request names; `gpu` if it names none."""
    device = values.get("device")
    if isinstance(device, str) and device not in ("auto", "cpu"):
        return device
    return "gpu"


def _config(model: str, gpus: int, values: Values, invalid: list[Refusal]) -> Config | None:
    """Return the configuration; None if a value is invalid. An unknown model or framework is
    replaced by the nearest, or the first one, so that the errors of other values are found
    too."""
    work = {"model": model}
    for name in values.keys() & Config.model_fields.keys():
        work[name] = values[name]
    for name, allowed in (("model", [*MODELS]), ("framework", [*FRAMEWORKS])):
        if name in work and work[name] not in allowed:
            unknown = NotAvailable.of(name, work[name], allowed)
            work[name] = unknown.nearest or allowed[0]
            is_script = name == "model" and model.endswith(SUFFIX)
            invalid.append(refusals.NotAModel(script=model) if is_script else unknown)
    return validated(lambda: resolve(work, gpus), invalid, work["model"])


def _script_config(
    content: ScriptContent, gpus: int, values: Values, invalid: list[Refusal]
) -> ScriptConfig | None:
    """Return the configuration of a script; None if a value is invalid."""
    work = {}
    for name in values.keys() & ScriptConfig.model_fields.keys():
        work[name] = values[name]
    return validated(lambda: resolve_script(work, content, gpus), invalid)


def _protocol(
    values: Values, config: AnyConfig | None, invalid: list[Refusal]
) -> Protocol | None:
    steps = {name: values[name] for name in PROTOCOL_PARAMETERS if name in values}
    name = steps.pop("protocol", None)
    if is_open("protocol", name):
        name = "published" if config and config.accelerated else "quick"
    if name not in choices("protocol"):
        invalid.append(NotAvailable.of("protocol", name, choices("protocol")))
        name = "quick"
    return validated(lambda: Protocol.named(name, **steps), invalid)


WORDS = {"True": True, "False": False, "None": None}


def typed(name: str, value: str) -> Any:
    """Convert a `value` from the command line to the parameter's type, if possible. A relative
    path starts in the working directory."""
    if value in WORDS:
        return WORDS[value]
    if name in select(is_path=True):
        return with_absolute_paths({name: value})[name]
    every = parameters(ScriptConfig) | parameters()
    default, _meaning = every.get(name, (None, ""))
    if isinstance(default, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
