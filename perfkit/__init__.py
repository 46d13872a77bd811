"""Reproducible reports on deep-learning training throughput.

plan = perfkit.plan("resnet50", {"batch_size": 8})
measurement = perfkit.measure(plan.config, plan.protocol)
frame = perfkit.load("outputs")
"""

from importlib import import_module
from typing import Any

_HOME = {
    "Comparison": "comparison",
    "ComparisonError": "comparison",
    "Config": "config",
    "Plan": "request.plan",
    "Protocol": "config",
    "RequestError": "request",
    "compare": "comparison",
    "plan": "request.plan",
    "measure": "driver.measure",
    "Measurement": "results.store",
    "ResultError": "results.store",
    "load": "results.outputs",
    "published": "reference",
    "load_steps": "results.frames",
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
