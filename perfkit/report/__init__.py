"""What notebooks and pages show. Reads results; the numbers are computed elsewhere.

section.py      text, tables and figures that need nothing but a notebook viewer
style.py        how charts look
pages.py        a notebook with its outputs, as a page
measurement.py  the sections of a measurement's page, with the charts of its raw steps
comparison.py   the sections of the pages of interleaved comparisons and of series
audit.py        the sections of an audit's page
summary.py      the sections of the summary
published.py    the sections of the page of published tables
site.py         writes pages: one, or all of an outputs folder with their index
"""

from dataclasses import replace
from functools import wraps
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any

from perfkit.config import resolved_path
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
"""What notebooks call, by its module."""
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["set_language", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Import on first use: a page of one measurement needs no published tables. The section
    that a function returns knows in which folder its page is: links start there."""
    if name not in _HOME:
        raise AttributeError(f"module 'perfkit.report' has no attribute {name!r}")
    found = getattr(import_module(f"perfkit.report.{_HOME[name]}"), name)
    if not isfunction(found):
        return found

    @wraps(found)
    def linked(shown: Any) -> Any:
        folder = getattr(shown, "folder", shown)
        place = resolved_path(str(folder)) if isinstance(folder, str | Path) else None
        return replace(found(shown), page_folder=place)

    return linked
