"""Checks before a measurement, without training."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from perfkit.core.config import Config, Protocol
from perfkit.core.driver.cluster import ClusterLauncher, remove_abandoned
from perfkit.core.driver.failures import NodeError
from perfkit.core.format import amount
from perfkit.core.paths import stored_path
from perfkit.core.refusals import Mebibytes
from perfkit.core.request.checks import sample_count
from perfkit.core.request.plan import Plan
from perfkit.core.request.requested_script import without_timer
from perfkit.core.request.requirements import read_environment
from perfkit.core.results.failures import Failure
from perfkit.core.script_config import AnyConfig, ScriptConfig
from perfkit.core.statements import Statement
from perfkit.core.system.gpus import forbidden_count
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.training.models import model_of

MOST_SECONDS = 60
"""Longest wait for the nodes."""
ABANDONED_SECONDS = 3600.0
"""No check of nodes takes this long."""
FREE_BYTES = 100 * 2**20


class Diagnostic(Statement):
    """What was found out about one subject: that it is well, that it is absent but maybe not
    needed, or that it failed, and what to do about it."""

    classes: ClassVar = {}
    outcome: ClassVar[Literal["well", "absent", "failed"]] = "well"
    subject: str


class FactRead(Diagnostic):
    code = "fact_read"
    sentence = "%(value)s"
    value: str


class FactAbsent(Diagnostic):
    code = "fact_absent"
    outcome = "absent"
    sentence = "%(reason)s"
    reason: str


class GpusForbidden(Diagnostic):
    code = "gpus_forbidden"
    outcome = "absent"
    sentence = "this process has no permission to use %(gpus)s of this machine"
    subject: str = "gpus"
    forbidden: int

    def parts(self) -> dict[str, Any]:
        return {"gpus": amount(self.forbidden, "GPU")}


class NoDataNeeded(Diagnostic):
    code = "no_data_needed"
    sentence = "none needed: synthetic input"
    subject: str = "data"


class DataRead(Diagnostic):
    code = "data_read"
    subject: str = "data"
    count: int
    sample: Literal["image", "sequence"]
    folder: str

    def english(self) -> str:
        return "%(samples)s in %(folder)s"

    def parts(self) -> dict[str, Any]:
        return {"samples": amount(self.count, self.sample)}


class ScriptRead(Diagnostic):
    code = "script_read"
    subject: str = "script"
    script: str
    framework: str
    modules: list[str]
    """local modules"""

    def english(self) -> str:
        if not self.modules:
            return "%(script)s trains with %(framework)s; it imports no local modules"
        return "%(script)s trains with %(framework)s; local modules: %(modules)s"


class TimerNotImported(Diagnostic):
    code = "timer_not_imported"
    outcome = "absent"
    sentence = "%(notice)s"
    subject: str = "timer"
    notice: str


class EnoughSpace(Diagnostic):
    code = "enough_space"
    sentence = "%(free)s free, %(needed)s needed"
    subject: str = "outputs"
    free: Mebibytes
    needed: Mebibytes


class DiskTooFull(Diagnostic):
    code = "disk_too_full"
    outcome = "failed"
    sentence = (
        "%(free)s free, %(needed)s needed; free disk space, or choose another "
        "folder: -p outputs_dir FOLDER"
    )
    subject: str = "outputs"
    free: Mebibytes
    needed: Mebibytes


class NodeConnected(Diagnostic):
    code = "node_connected"
    interface: str
    differs: list[str]
    """facts in which the node differs from the first one"""

    def english(self) -> str:
        if not self.differs:
            return "connected by interface %(interface)s; differs in nothing"
        return "connected by interface %(interface)s; differs in %(differs)s"


class NodesReachEachOther(Diagnostic):
    code = "nodes_reach_each_other"
    sentence = "all nodes reach each other; ports are free"
    subject: str = "network"


class NodesUnreachable(Diagnostic):
    code = "nodes_unreachable"
    outcome = "failed"
    sentence = "%(problem)s"
    subject: str = "network"
    problem: str


class FolderUnusable(Diagnostic):
    code = "folder_unusable"
    outcome = "failed"
    sentence = "%(problem)s"
    subject: str = "nodes"
    problem: str


class NodesFailed(Diagnostic):
    code = "nodes_failed"
    outcome = "failed"
    sentence = "%(failure)s"
    failure: Failure


def examine_plan(plan: Plan) -> Iterator[Diagnostic]:
    """Check this machine and, for several nodes, all nodes."""
    config = plan.config
    yield from _software(config)
    forbidden = forbidden_count()
    if config.device == "gpu" and forbidden:
        yield GpusForbidden(forbidden=forbidden)
    if isinstance(config, ScriptConfig):
        yield from _script(config)
    else:
        yield _data(config)
    yield _space_for_outputs(config)
    if config.nodes > 1:
        shorter = {"timeout": min(config.timeout, MOST_SECONDS)}
        yield from _nodes(config.model_copy(update=shorter), plan.protocol)


def _software(config: AnyConfig) -> Iterator[Diagnostic]:
    environment = read_environment(config.framework, config.data_folder, config.interpreter)
    for fact in ("python", *FRAMEWORKS[config.framework].facts, "dali"):
        reading = environment[fact]
        if reading.missing:
            yield FactAbsent(subject=fact, reason=reading.missing)
        else:
            yield FactRead(subject=fact, value=str(reading.value))


def _script(config: ScriptConfig) -> Iterator[Diagnostic]:
    framework = FRAMEWORKS[config.framework].display_name
    yield ScriptRead(script=config.script, framework=framework, modules=config.modules)
    notice = without_timer(config)
    if notice:
        yield TimerNotImported(notice=notice.text())


def _data(config: Config) -> Diagnostic:
    if config.input == "synthetic":
        return NoDataNeeded()
    return DataRead(
        count=sample_count(config),
        sample=model_of(config).sample,
        folder=str(config.data_folder),
    )


def _space_for_outputs(config: AnyConfig) -> Diagnostic:
    free = _free_bytes(stored_path(config.outputs_dir))
    if free < FREE_BYTES:
        return DiskTooFull(free=free, needed=FREE_BYTES)
    return EnoughSpace(free=free, needed=FREE_BYTES)


def _free_bytes(path: Path) -> int:
    """Return the free space where a path lies, which need not exist yet."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def _nodes(config: AnyConfig, protocol: Protocol) -> Iterator[Diagnostic]:
    """Start the node programs as a measurement would, and let them try to reach each other."""
    outputs = stored_path(config.outputs_dir)
    try:
        outputs.mkdir(parents=True, exist_ok=True)
        remove_abandoned(outputs, ABANDONED_SECONDS)
        with ClusterLauncher(config, protocol, outputs) as launcher:
            for node in launcher.wait_for_nodes(lambda _text: None, try_each=True):
                differs = [*node.differs]
                yield NodeConnected(
                    subject=node.name, interface=node.interface, differs=differs
                )
            launcher.rendezvous_port()
            problems = launcher.unreachable()
            for problem in problems:
                yield NodesUnreachable(problem=problem)
            if not problems:
                yield NodesReachEachOther()
    except OSError as error:
        yield FolderUnusable(problem=str(error))
    except NodeError as error:
        subject = error.failure.code.replace("_", " ")
        yield NodesFailed(subject=subject, failure=error.failure)
