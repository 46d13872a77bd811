"""The script of a request: its path, content and framework, and why it is refused."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from perfkit.core import refusals
from perfkit.core.config import RunConfig
from perfkit.core.parameters import FIELDS, SCRIPT_FIELDS, fields_of, is_open
from perfkit.core.paths import stored_path
from perfkit.core.refusals import NoSuchParameter, Refusal, nearest_name
from perfkit.core.request.script import UNREAD, ScriptContent, read_script
from perfkit.core.script_config import ScriptConfig
from perfkit.core.statements import Statement
from perfkit.timing.frameworks import OF_SCRIPTS

SUFFIX = ".py"


@dataclass(frozen=True)
class RequestedScript:
    """A script with the values of its request, whose paths are absolute."""

    content: ScriptContent
    values: dict[str, Any]


class Notice(Statement):
    """What may go wrong with a request that is not refused. English only, as refusals are."""

    classes: ClassVar = {}


class TimerNotImported(Notice):
    code = "timer_not_imported"
    sentence = (
        "%(script)s and its modules do not import perfkit, whose timer must be called in the "
        "training loop: timer = perfkit.StepTimer(samples_per_step=N), and timer.step(loss) "
        "after each step of the optimizer"
    )
    script: str


def without_timer(config: ScriptConfig) -> Notice | None:
    """Return a notice if neither the script nor a local module imports perfkit by a
    statement."""
    try:
        content = read_script(config.script_file)
    except OSError:
        # The measurement says that the script can't be read.
        return None
    if content.imports_perfkit:
        return None
    return TimerNotImported(script=config.file_name)


def not_a_parameter(name: str, kind: type[RunConfig]) -> Refusal:
    """Return the refusal of a name that is not a parameter of such a configuration."""
    if kind is ScriptConfig and name in FIELDS:
        return refusals.OfModelsOnly(parameter=name)
    if kind is not ScriptConfig and name in SCRIPT_FIELDS:
        return refusals.OfScriptsOnly(parameter=name)
    own = fields_of(kind)
    nearest = nearest_name(name, [*own, *FIELDS])
    if kind is ScriptConfig and nearest and nearest not in own:
        return refusals.OfModelsOnly(parameter=name, nearest=nearest)
    return NoSuchParameter.of(name, own)


def requested_script(values: Mapping[str, Any], refused: list[Refusal]) -> RequestedScript:
    """Read the script of a request, whose paths are absolute. What prevents this is appended to
    `refused`."""
    requested = dict(values)
    script = values.get("script")
    if not isinstance(script, str) or not script:
        refused.append(refusals.ScriptMissing())
        return RequestedScript(UNREAD, requested | {"script": "train.py"})
    # As Python, which takes the folder of the file that a link leads to.
    file = stored_path(script)
    requested["script"] = str(file)
    content = _content(file, refused)
    if is_open("framework", values.get("framework"), ScriptConfig):
        requested["framework"] = _framework(file, content, refused)
    return RequestedScript(content, requested)


def _content(file: Path, refused: list[Refusal]) -> ScriptContent:
    """Return what the script says; UNREAD if it is refused."""
    shown = str(file)
    is_other = file.suffix != SUFFIX or not file.is_file()
    if is_other and file.exists() and not file.is_dir():
        refused.append(refusals.NotAScript(script=shown))
        return UNREAD
    try:
        content = read_script(file)
    except OSError as error:
        nearest = nearest_name(file.name, _scripts_in(file.parent))
        refused.append(
            refusals.ScriptNotReadable(
                script=shown, reason=error.strerror or str(error), nearest=nearest
            )
        )
        return UNREAD
    if content.fault:
        refused.append(
            refusals.ScriptFault(
                script=shown,
                line=content.fault_line,
                fault=content.fault,
                python=platform.python_version(),
            )
        )
        return UNREAD
    return content


def _scripts_in(folder: Path) -> list[str]:
    try:
        return sorted(file.name for file in folder.glob(f"*{SUFFIX}"))
    except OSError:
        return []


def _framework(file: Path, content: ScriptContent, refused: list[Refusal]) -> str:
    """Return the framework that the script imports; the first of all if it is refused."""
    frameworks = content.frameworks
    if not frameworks:
        refused.append(
            refusals.FrameworkNotImported(script=file.name, frameworks=[*OF_SCRIPTS])
        )
        return UNREAD.frameworks[0]
    if len(frameworks) > 1:
        refused.append(refusals.SeveralFrameworks(script=file.name, frameworks=frameworks))
    return frameworks[0]
