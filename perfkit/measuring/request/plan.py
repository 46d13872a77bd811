"""From the values of a request to a plan; all errors of a request are reported together."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perfkit.measuring.config import Config
from perfkit.measuring.parameters import (
    PROTOCOL_PARAMETERS,
    is_open,
    parameters,
    select,
    with_absolute_paths,
)
from perfkit.measuring.paths import OUTPUTS, interpreter_path, stored_path
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.checks import CheckScope, problems
from perfkit.measuring.request.command_files import (
    files_of,
    missing_program,
    read_command,
    with_flags,
    wrong_command,
)
from perfkit.measuring.request.resolve import (
    COMMANDS_FRAMEWORK,
    resolve,
    resolve_command,
    resolve_script,
    usual_framework,
)
from perfkit.measuring.request.script import read_script, wrong_script
from perfkit.measuring.request.values import cause, wrong_values
from perfkit.measuring.system.devices import visible_devices
from perfkit.measuring.work import COMMAND, SCRIPT, CommandWork, ScriptWork

Values = dict[str, Any]
"""Parameters by name."""


@dataclass(frozen=True)
class Plan:
    """A configuration and a protocol with all parameters set."""

    config: Config
    protocol: Protocol

    @property
    def notice(self) -> str:
        """What may go wrong, which is no reason not to measure; empty if nothing is known."""
        return self.config.work.notice()


def plan(
    model: str, namespace: Mapping[str, Any], skip_checks: Collection[CheckScope] = ()
) -> Plan:
    """Validate the parameters in `namespace` and fill in open ones. `model` is the name of a
    built-in model, "script" for the script in `namespace`, or "command" for its command.

    `namespace` is a notebook's `globals()` or any mapping of names to values. Every public name
    with a plain literal counts as a parameter, so that misspelt names are noticed. Skip checks
    of this `machine` if another one measures, of its `requirements`, or of the `data`. Raises
    RequestError with all wrong names and values or, if each is valid by itself, with all
    reasons why they can't be measured here.
    """
    values = with_absolute_paths({"outputs_dir": OUTPUTS} | _literals(namespace))
    wrong = wrong_values(model, values)
    if model == SCRIPT:
        wrong += wrong_script(values)
    elif model == COMMAND:
        wrong += wrong_command(values)
    if "machine" in skip_checks and _needs_number_of_devices(values):
        wrong.append("gpus: set the number per node; the measuring machine is unknown here")
    if wrong:
        raise RequestError(sorted(wrong))
    if model == SCRIPT:
        config = _script_config(values, skip_checks)
    elif model == COMMAND:
        config = _command_config(values, skip_checks)
    else:
        config = _model_config(model, values, skip_checks)
    wrong = problems(config, skip_checks)
    try:
        protocol = _protocol(values, config)
    except ValidationError as error:
        wrong += map(cause, error.errors())
    else:
        if protocol.warmup_limit and config.work.launches_itself:
            wrong.append(
                "warmup_limit: not for a command, whose warm-up has warmup_steps and takes a "
                "third of measured_seconds; leave it, or the protocol steady, out"
            )
    if wrong:
        raise RequestError(sorted(wrong))
    return Plan(config, protocol)


def _literals(namespace: Mapping[str, Any]) -> Values:
    """Return the public names with plain literals, which stand for parameters."""
    values = {}
    for name, value in namespace.items():
        is_literal = value is None or isinstance(value, str | int | float | list | tuple | dict)
        # Papermill pastes a name into the notebook: one that is no identifier may be code.
        is_of_user = name.startswith("_") and name.isidentifier()
        # IPython defines In and Out.
        if is_literal and not is_of_user and name not in ("In", "Out"):
            values[name] = value
    return values


def _needs_number_of_devices(values: Values) -> bool:
    """Return whether the number of devices follows from the machine that measures."""
    device, gpus = values.get("device"), values.get("gpus")
    if is_open("device", device):
        return gpus is None
    return device != "cpu" and not gpus


def _model_config(model: str, values: Values, skip_checks: Collection[CheckScope]) -> Config:
    framework = values.get("framework", usual_framework())
    gpus = _default_gpus(values, framework, skip_checks)
    return resolve(_without_protocol(values) | {"model": model}, gpus)


def _script_config(values: Values, skip_checks: Collection[CheckScope]) -> Config:
    # As Python, which takes the folder of the file that a link leads to.
    script = stored_path(values["script"])
    content = read_script(script)
    framework = values.get("framework") or content.frameworks[0]
    gpus = _default_gpus(values, framework, skip_checks)
    return resolve_script(_without_protocol(values) | {"script": str(script)}, content, gpus)


def _command_config(values: Values, skip_checks: Collection[CheckScope]) -> Config:
    directory = stored_path(values.get("directory") or str(Path.cwd()))
    log_file = values.get("log_file")
    try:
        words = with_flags(values["command"], values.get("flags") or "")
        files = files_of(words, directory, log_file and stored_path(log_file))
        content = read_command(words, files, directory)
    except (OSError, ValueError) as error:
        raise RequestError([f"command: {error}"]) from None
    framework = values.get("framework") or COMMANDS_FRAMEWORK
    devices = content.devices or _default_gpus(values, framework, skip_checks)
    wrong = []
    if devices > 1 and not content.devices:
        wrong.append(f"gpus: {devices} are visible; set how many the command uses")
    if "machine" not in skip_checks:
        wrong += missing_program(words[0], directory)
    if wrong:
        raise RequestError(wrong)
    request = _without_protocol(values) | {"directory": str(directory)}
    return resolve_command(request, content, devices)


def _without_protocol(values: Values) -> Values:
    return {name: value for name, value in values.items() if name not in PROTOCOL_PARAMETERS}


def _default_gpus(values: Values, framework: str, skip_checks: Collection[CheckScope]) -> int:
    """Return the number of devices per node of a request that leaves it open: all of the
    requested type, by default GPUs, that this machine has."""
    if "machine" in skip_checks or values.get("gpus") is not None:
        return 0
    device = "gpu" if is_open("device", values.get("device")) else values["device"]
    try:
        return len(visible_devices(framework, device, interpreter_path(values.get("python"))))
    except OSError:
        # The checks of this machine say why.
        return 1


def _protocol(values: Values, config: Config) -> Protocol:
    """Return the protocol of valid values. Raises ValidationError if they contradict each
    other."""
    steps = {name: values[name] for name in PROTOCOL_PARAMETERS if name in values}
    name = steps.pop("protocol", None)
    if is_open("protocol", name):
        name = "published" if config.accelerated else "quick"
    return Protocol.named(name, **steps)


WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None}


def typed(name: str, value: str) -> Any:
    """Convert a `value` from the command line to the parameter's type, if possible. A relative
    path starts in the working directory."""
    if value in WORDS:
        return WORDS[value]
    if name in select(is_path=True):
        return with_absolute_paths({name: value})[name]
    every = parameters(CommandWork) | parameters(ScriptWork) | parameters()
    if name in every and (isinstance(every[name].default, str) or name == COMMAND):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
