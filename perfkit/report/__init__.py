"""Sections of notebooks and pages. This package reads results; it computes no numbers.

section.py      text, tables and figures as outputs of a notebook cell
style.py        style of the charts
pages.py        HTML pages from notebooks
measurement.py  sections of a measurement's page
step_charts.py  charts of its raw steps
words.py        its number and warnings in words
comparison.py   sections of the pages of interleaved comparisons and of the history
audit.py        sections of an audit's page
summary.py      sections of the summary
published.py    sections of the page of published tables
site.py         writes one page, or all pages of an outputs folder with their index
"""

from dataclasses import replace
from functools import wraps
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any

from perfkit.text.language import set_language

_NAMES = {
    "measurement": "plan headline step_times warnings repeats limits telemetry parameters "
    "work_equivalence effective_settings environment method raw_files",
    "comparison": "comparison_headline comparison_variants comparison_pairs history_overview "
    "history_series",
    "audit": "audit_headline audit_waterfall audit_claims audit_findings audit_logs",
    "summary": "Summary fastest ratios throughput_by_batch scaling bottlenecks "
    "beside_published left_out",
    "published": "published_tables",
    "site": "publish publish_summary publish_published publish_history publish_comparison "
    "publish_audit",
}
"""Module -> names that notebooks use."""
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["set_language", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Import the name on first use: a measurement's page needs no published tables. Sections
    get the folder of their page, to which links are relative."""
    if name not in _HOME:
        raise AttributeError(f"module 'perfkit.report' has no attribute {name!r}")
    found = getattr(import_module(f"perfkit.report.{_HOME[name]}"), name)
    if not isfunction(found):
        return found

    @wraps(found)
    def linked(shown: Any) -> Any:
        folder = getattr(shown, "folder", shown)
        place = Path(folder) if isinstance(folder, str | Path) else None
        return replace(found(shown), page_folder=place)

    return linked
