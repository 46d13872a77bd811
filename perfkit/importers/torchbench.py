"""torchbench's results, one JSON object: `{"name": …, "environ": {…}, "metrics": {…: 1.5}}`."""

from typing import Any

from perfkit.importers.form import Contents, Document, told
from perfkit.importers.log import Meaning, Step


def _read(document: dict[str, Any]) -> Contents | None:
    metrics = document.get("metrics")
    if not (isinstance(metrics, dict) and {"name", "environ"} <= document.keys()):
        return None
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    figures = [told(name, repr(value), "", 1) for name, value in numbers.items()]
    return Contents(facts={"framework": "torch"}, told=figures)


DOCUMENT = Document(
    name="torchbench",
    meaning=Meaning(
        rate_of="all",
        covers=Step(),
        counts_from=1,
        reader=None,
        source="pytorch/benchmark, userbenchmark/ADDING_USERBENCHMARKS.md; a metric's name is "
        "all that says what it is",
    ),
    read=_read,
)
