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

__all__ = sorted(_HOME)  # noqa: PLE0605


def __dir__() -> list[str]:
    """Include names that are not imported yet, for completion."""
    return [*globals(), *_HOME]


def __getattr__(name: str) -> Any:
    """Import on first use: the supervisor and the CLI start without pandas and pydantic."""
    if name in _HOME:
        return getattr(import_module(f"perfkit.{_HOME[name]}"), name)
    raise AttributeError(f"module 'perfkit' has no attribute {name!r}")


def _show(comparison: Any) -> None:
    """Display a comparison as the command prints it; as usual where the extra `report` is not
    installed."""
    try:
        page = import_module("perfkit.report.comparison")
    except ModuleNotFoundError:
        print(repr(comparison))
    else:
        page.selected_comparison(comparison)._ipython_display_()


def _register_display() -> None:
    """Have the IPython that runs this process, if one does, show comparisons as sections."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell:
        displays = shell.display_formatter.ipython_display_formatter
        home = "perfkit.analysis.comparison.stored"
        displays.for_type_by_name(home, "SelectedComparison", _show)


_register_display()
