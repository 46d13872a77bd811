"""Checks before a measurement, without training."""

import shutil
from collections.abc import Iterator
from typing import Literal, NamedTuple

from perfkit.core.config import Config, Protocol
from perfkit.core.driver.cluster import ClusterLauncher, remove_abandoned
from perfkit.core.driver.failures import NodeError
from perfkit.core.format import amount
from perfkit.core.paths import stored_path
from perfkit.core.request.checks import sample_count
from perfkit.core.request.plan import Plan
from perfkit.core.request.requested_script import without_timer
from perfkit.core.request.requirements import read_environment
from perfkit.core.script_config import AnyConfig, ScriptConfig
from perfkit.core.system.gpus import forbidden_count
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.training.models import model_of

MOST_SECONDS = 60
"""Longest wait for the nodes."""
ABANDONED_SECONDS = 3600.0
"""No check of nodes takes this long."""
FREE_MEBIBYTES = 100


class Diagnostic(NamedTuple):
    """What was found out about one subject: that it is well, that it is absent but maybe not
    needed, or that it failed, and what to do about it."""

    outcome: Literal["well", "absent", "failed"]
    subject: str
    text: str


def examine_plan(plan: Plan) -> Iterator[Diagnostic]:
    """Check this machine and, for several nodes, all nodes."""
    config = plan.config
    yield from _software(config)
    forbidden = forbidden_count()
    if config.device == "gpu" and forbidden:
        forbidden_gpus = amount(forbidden, "GPU")
        problem = f"this process has no permission to use {forbidden_gpus} of this machine"
        yield Diagnostic("absent", "gpus", problem)
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
            yield Diagnostic("absent", fact, reading.missing)
        else:
            yield Diagnostic("well", fact, str(reading.value))


def _script(config: ScriptConfig) -> Iterator[Diagnostic]:
    framework = FRAMEWORKS[config.framework].display_name
    modules = "it imports no local modules"
    if config.modules:
        modules = f"local modules: {', '.join(config.modules)}"
    yield Diagnostic("well", "script", f"{config.script} trains with {framework}; {modules}")
    notice = without_timer(config)
    if notice:
        yield Diagnostic("absent", "timer", notice)


def _data(config: Config) -> Diagnostic:
    if config.input == "synthetic":
        return Diagnostic("well", "data", "none needed: synthetic input")
    samples = amount(sample_count(config), model_of(config).sample)
    return Diagnostic("well", "data", f"{samples} in {config.data_folder}")


def _space_for_outputs(config: AnyConfig) -> Diagnostic:
    folder = stored_path(config.outputs_dir)
    # It need not exist yet.
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 2**20
    text = f"{free:,.0f} MiB free, {FREE_MEBIBYTES} MiB needed"
    if free >= FREE_MEBIBYTES:
        return Diagnostic("well", "outputs", text)
    advice = "free disk space, or choose another folder: -p outputs_dir FOLDER"
    return Diagnostic("failed", "outputs", f"{text}; {advice}")


def _nodes(config: AnyConfig, protocol: Protocol) -> Iterator[Diagnostic]:
    """Start the node programs as a measurement would, and let them try to reach each other."""
    outputs = stored_path(config.outputs_dir)
    try:
        outputs.mkdir(parents=True, exist_ok=True)
        remove_abandoned(outputs, ABANDONED_SECONDS)
        with ClusterLauncher(config, protocol, outputs) as launcher:
            for node in launcher.wait_for_nodes(lambda _text: None, try_each=True):
                differs = ", ".join(node.differs) or "nothing"
                text = f"connected by interface {node.interface}; differs in {differs}"
                yield Diagnostic("well", node.name, text)
            launcher.rendezvous_port()
            problems = launcher.unreachable()
            for problem in problems:
                yield Diagnostic("failed", "network", problem)
            if not problems:
                text = "all nodes reach each other; ports are free"
                yield Diagnostic("well", "network", text)
    except OSError as error:
        yield Diagnostic("failed", "nodes", str(error))
    except NodeError as error:
        subject = error.failure.code.replace("_", " ")
        yield Diagnostic("failed", subject, error.failure.reason)
