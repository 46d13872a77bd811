"""Reproducible reports on deep-learning training throughput.

plan = perfkit.plan("resnet50", {"batch_size": 8})
measurement = perfkit.measure(plan.config, plan.protocol)
frame = perfkit.load("outputs")
"""

import sys
from importlib import import_module
from typing import Any

_HOME = {
    "SelectedComparison": "analysis.comparison",
    "ComparisonError": "analysis.comparison",
    "Config": "measuring.config",
    "Plan": "measuring.request.plan",
    "Protocol": "measuring.protocol",
    "RequestError": "measuring.request",
    "StepTimer": "timing.step_timer",
    "compare": "analysis.comparison",
    "plan": "measuring.request.plan",
    "measure": "measuring.driver.measure",
    "Measurement": "measuring.results.store",
    "ResultError": "measuring.results.store",
    "load": "measuring.results.outputs",
    "published": "analysis.published",
    "load_steps": "measuring.results.frames",
    "time_trainer": "timing.huggingface",
}

DISPLAYED = {
    "analysis.comparison.stored": ["SelectedComparison"],
    "analysis.comparison.history": ["History"],
    "analysis.fleet.stored": ["Fleet"],
    "analysis.verification.stored": ["Verification"],
}
"""Module -> its results that display themselves in a notebook (report/displays.py)."""

__all__ = sorted(_HOME)  # noqa: PLE0605


def __dir__() -> list[str]:
    """Include names that are not imported yet, for completion."""
    return [*globals(), *_HOME]


def __getattr__(name: str) -> Any:
    """Import on first use: the supervisor and the CLI start without pandas and pydantic."""
    if name in _HOME:
        return getattr(import_module(f"perfkit.{_HOME[name]}"), name)
    raise AttributeError(f"module 'perfkit' has no attribute {name!r}")


def _show(result: Any) -> None:
    """Display a result; as usual where the extra `report` is not installed."""
    try:
        displays = import_module("perfkit.report.displays")
    except ModuleNotFoundError:
        print(repr(result))
    else:
        displays.show(result)


def _register_displays() -> None:
    """Have the IPython that runs this process, if one does, show results as sections."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if not shell:
        return
    displays = shell.display_formatter.ipython_display_formatter
    for module, names in DISPLAYED.items():
        for name in names:
            displays.for_type_by_name(f"perfkit.{module}", name, _show)


_register_displays()
