"""Reproducible reports on deep-learning training throughput.

plan = perfkit.plan("resnet50", {"batch_size": 8})
measurement = perfkit.measure(plan.config, plan.protocol)
frame = perfkit.load("outputs")
"""

from importlib import import_module
from typing import Any

_HOME = {
    "Comparison": "analysis.comparison",
    "ComparisonError": "analysis.comparison",
    "Config": "core.config",
    "Plan": "core.request.plan",
    "Protocol": "core.config",
    "RequestError": "core.request",
    "ScriptConfig": "core.script_config",
    "StepTimer": "core.timing.step_timer",
    "compare": "analysis.comparison",
    "plan": "core.request.plan",
    "measure": "core.driver.measure",
    "Measurement": "core.results.store",
    "ResultError": "core.results.store",
    "load": "core.results.outputs",
    "published": "analysis.published",
    "load_steps": "core.results.frames",
    "time_trainer": "core.timing.huggingface",
}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __dir__() -> list[str]:
    """Include names that are not imported yet, for completion."""
    return [*globals(), *_HOME]


def __getattr__(name: str) -> Any:
    """Import on first use: the supervisor and the CLI start without pandas and pydantic."""
    if name in _HOME:
        return getattr(import_module(f"perfkit.{_HOME[name]}"), name)
    raise AttributeError(f"module 'perfkit' has no attribute {name!r}")
