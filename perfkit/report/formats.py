"""The known log formats, and how to define another, as a section: `perfkit audit --formats`."""

from collections.abc import Iterator
from dataclasses import fields
from typing import get_args

from perfkit.audit import formats, records
from perfkit.audit.formats import LogFormat, Semantics
from perfkit.report.elements import bullets, output, paragraph
from perfkit.report.section import Section

COVERS = {
    "window": "mean since the last print",
    "running": "running mean since step {}",
    "rolling": "mean over the log's own window",
    "step": "the last step alone",
}
READER = {"in": ", data wait included", "apart": ", data wait left out", None: ""}
STEPS = {"batch": "micro-batches", "update": "updates", "epoch": "epochs"}
CUSTOM = (
    "--format-regex is a Python regular expression that matches a printed line. Its groups "
    "are named as below, with units in the names: <step> is short for (?P<step>…) with digits, "
    "<rate> with a number (12,810 or 12.8k), <seconds> with a time (51.2 ms or 1:02:03), <at> "
    "with date and time, which need no group at the beginning of a line."
)
EXAMPLE = """  perfkit audit train.log --format-regex 'it <step> .* <rate> img/s' \\
    --format-options 'rate_of=all covers=window counts_from=1 unit=images/s'"""
OTHERS = (
    "Lines of no known format are read by their names: a step, and a time or a rate "
    "(step: 10, loss: 2.5, dt: 93 ms), also in dictionaries, JSON lines and tables."
)


def formats_section() -> Section:
    """Return the known formats with what a line of each means, then the groups and options of
    --format-regex."""
    section = paragraph("Known formats; of several in a file, the first is used.")
    section += bullets(_known()) + paragraph(OTHERS) + paragraph(CUSTOM) + output(EXAMPLE)
    groups = [f"{name}: {meaning}" for name, meaning in formats.COLUMNS.items()]
    section += paragraph("Groups:") + bullets(groups)
    return section + paragraph("Options:") + bullets(_options())


def _known() -> Iterator[str]:
    for name in dict.fromkeys(form.name for form in formats.FORMATS):
        form = next(form for form in formats.FORMATS if form.name == name)
        yield f"{name}: {_meaning(form)}"
    for record in records.FORMATS:
        names = ", ".join(record.columns.values())
        yield f"{record.name}: {f'fields {names}' if names else 'reported figures'}"


def _meaning(form: LogFormat) -> str:
    if not form.has_steps:
        return "closing figures"
    semantics = form.semantics
    of = "one device" if semantics.rate_of == "device" else "all devices"
    covers = COVERS[semantics.covers].format(semantics.since)
    start = "" if semantics.counts_from is None else f" from {semantics.counts_from}"
    steps = f"{STEPS[semantics.step]}{start}"
    return f"{form.unit} of {of}, {covers}{READER[semantics.reader]}; {steps}"


def _options() -> Iterator[str]:
    for option in fields(Semantics):
        if option.name != "source":
            allowed = " | ".join(map(str, _allowed(option.type)))
            kind = "true | false" if option.type is bool else "a number"
            yield f"{option.name}: {allowed or kind} (default: {option.default})".lower()
    yield "unit: text (default: samples/s)"
    yield "framework: text"


def _allowed(kind: object) -> list[object]:
    """Return the values of a Literal, also within `Literal | None`."""
    values: list[object] = []
    for argument in get_args(kind):
        values += [*get_args(argument)] or [argument]
    return [value for value in values if isinstance(value, (int, str))]
