"""Write the reference pages, the schema of result.json and the parameters cells of the model
notebooks from the code: `make docs`.

docs/reference/parameters.md   parameters of every notebook: perfkit.core.config
docs/reference/cli.md          commands: perfkit.cli
docs/reference/python.md       public names of `import perfkit`
docs/reference/result.md       fields of result.json: perfkit.core.results.schema
docs/reference/files.md        fields of the other JSON files: comparisons, diagnoses, audits …
docs/reference/raw-files.md    lines of the raw files: perfkit.core.results.events
docs/reference/formats.md      log formats: perfkit/audit/formats.toml
docs/reference/warnings.md     warnings: perfkit.analysis.warning_types
docs/reference/failures.md     failures: perfkit.core.results.failures
docs/reference/findings.md     findings of an audit: perfkit.audit.statements
docs/result.schema.json        JSON Schema of result.json
notebooks/<model>.ipynb        the parameters cell, with meanings as comments

`pages` and `notebooks` return the content of each file and write nothing. A missing description
is empty, which tests/test_docs.py finds.
"""

import ast
import inspect
import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import nbformat
from pydantic import BaseModel, TypeAdapter

import perfkit
from perfkit.analysis.comparison.keys import ALIASES, KEYS, MAY_DIFFER
from perfkit.analysis.comparison.stored import Comparison, InterleavedComparison
from perfkit.analysis.diagnosis.stored import Diagnosis
from perfkit.analysis.verification.stored import Verification
from perfkit.analysis.warning_types import MeasurementWarning
from perfkit.audit import formats
from perfkit.audit.audit import Audit
from perfkit.audit.statements import Finding
from perfkit.cli import main
from perfkit.cli.options import parameter_list
from perfkit.core.config import (
    ABOUT,
    PROTOCOL_PARAMETERS,
    PROTOCOLS,
    Config,
    Protocol,
    choices,
    parameters,
)
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.models import MODELS
from perfkit.core.paths import ROOT
from perfkit.core.request import PATTERNS
from perfkit.core.results.events import RANK_EVENTS, TELEMETRY_EVENTS
from perfkit.core.results.failures import Failure
from perfkit.core.results.schema import Result
from perfkit.core.results.store import write_atomically
from perfkit.core.statements import Statement

DOCS = ROOT / "docs"
OTHER_FILES = (Comparison, InterleavedComparison, Diagnosis, Verification, Audit)
PATTERN_WORDS = {
    Config.model_fields[name].metadata[0].pattern: words for name, words in PATTERNS.items()
}
Schema = dict[str, Any]


def pages() -> dict[Path, str]:
    """Return the up-to-date content of each file."""
    folder = DOCS / "reference"
    return {
        folder / "parameters.md": parameters_page(),
        folder / "cli.md": cli_page(),
        folder / "python.md": python_page(),
        folder / "result.md": result_page(),
        folder / "files.md": files_page(),
        folder / "raw-files.md": raw_files_page(),
        folder / "formats.md": formats_page(),
        folder / "warnings.md": warnings_page(),
        folder / "failures.md": failures_page(),
        folder / "findings.md": findings_page(),
        DOCS / "result.schema.json": json.dumps(Result.model_json_schema(), indent=1) + "\n",
    }


# Parameters.


def parameters_page() -> str:
    rows = [
        (f"`{name}`", f"`{default!r}`", allowed(name), meaning(name), *applies(name))
        for name, (default, _meaning) in parameters().items()
    ]
    protocols = [
        (f"`{name}`", p.warmup_words, str(p.measured_steps), str(p.repeats))
        for name, p in ((name, Protocol.named(name)) for name in PROTOCOLS)
    ]
    return page(
        "Parameters",
        "Parameters of all measuring notebooks, for `-p NAME VALUE` of papermill and perfkit "
        "and for parameters files. `None`: chosen by model, framework, machine. *New id*: "
        "whether another value makes another measurement. *In a comparison*: how a comparison "
        "of two measurements treats the parameter.",
        table(("name", "default", "allowed", "meaning", "new id", "in a comparison"), rows),
        "## Protocols",
        table(("`protocol`", "warm-up steps", "measured steps", "repeats"), protocols),
        "## Values by model",
        "The first value is the default.",
        table(("model", "`input`", "`optimizer`", "`batch_size` on a CPU, a GPU"), of_models()),
        "## Values by framework",
        "An empty cell allows every value. Other values are refused before anything starts.",
        of_frameworks(),
    )


def allowed(name: str) -> str:
    """Return the values that a parameter may have, as Markdown."""
    if name == "protocol":
        return words(choices(name))
    model = Protocol if name in PROTOCOL_PARAMETERS else Config
    text, default = kind(model.model_json_schema()["properties"][name]), parameters()[name][0]
    also = {"auto"} if name in ("repeats", "warmup_steps") else set()
    also |= {default} & {None, "auto"}
    return " or ".join([text, *sorted(f"`{a}`" for a in also if f"`{a}`" not in text)])


def meaning(name: str) -> str:
    """Return the description of a parameter, without the choices that `parameters` adds."""
    field = Config.model_fields.get(name)
    return " ".join(str(field.description).split()) if field else parameters()[name][1]


def applies(name: str) -> tuple[str, str]:
    """Return whether another value makes another id, and how a comparison treats it."""
    new = "yes" if ABOUT[name].identifies else "no"
    if name in MAY_DIFFER:
        return new, "may differ, is listed"
    return new, "must agree" if name in (*KEYS, *ALIASES) else "ignored"


def of_models() -> list[tuple[str, ...]]:
    return [
        (
            f"`{name}`",
            words(model.inputs),
            words(model.optimizers),
            f"{model.cpu_batch_size}, {model.gpu_batch_size}",
        )
        for name, model in MODELS.items()
    ]


def of_frameworks() -> str:
    names = sorted({name for framework in FRAMEWORKS.values() for name in framework.supports})
    rows = [
        (f"`{name}`", *(words(f.supports.get(name, ())) for f in FRAMEWORKS.values()))
        for name in names
    ]
    return table(("parameter", *(f"`{name}`" for name in FRAMEWORKS)), rows)


# Log formats.

COVERS = {
    "window": "since the last print",
    "running": "running mean since step {}",
    "step": "the last step",
}
READER = {"in": "included", "apart": "separate", None: "unknown"}


def formats_page() -> str:
    rows = []
    for form in formats.FORMATS:
        s = form.semantics
        semantics = [
            f"{form.unit or 'samples/s'} of {'a device' if s.rate_of == 'device' else 'all'}",
            COVERS[s.covers].format(s.since),
            f"{'micro-batches' if s.step == 'batch' else 'updates'} from {s.counts_from}",
            READER[s.reader],
        ]
        cells = semantics if form.has_steps else [""] * len(semantics)
        rows.append((form.name, form.framework, *cells, s.source))
    head = ("format", "framework", "rate", "a print covers", "counts", "data wait", "source")
    groups = [(f"`{name}`", text) for name, text in formats.COLUMNS.items()]
    options = [
        (f"`{name}`", f"`{part['default']}`", kind(part).partition(" or ")[0])
        for name, part in TypeAdapter(formats.Semantics).json_schema()["properties"].items()
        if name != "source"
    ]
    options += [("`unit`", "`samples/s`", "text"), ("`framework`", "", "text")]
    documents = "; ".join(dict.fromkeys(document["name"] for document in formats.DOCUMENTS))
    return page(
        "Log formats",
        "`perfkit audit` detects a file's format by its content and takes the first format "
        "found; gzip and xz are unpacked.",
        table(head, dict.fromkeys(rows)),
        f"Files that are one JSON object or one table: {documents}.",
        "## Custom formats",
        "`--format-regex` is a Python regular expression that matches a printed line. Its "
        "groups are named as below, with units in the names. `<step>` is short for "
        "`(?P<step>…)` with digits, `<rate>` with a number, `<at>` with date and time. "
        "`--format-options` sets their meaning, `unit` and `framework`:",
        block(
            "perfkit audit train.log --format-regex 'it <step> .* <rate> img/s, <seconds> s' "
            "\\\n  --format-options 'rate_of=all covers=window counts_from=1 reader=in "
            "unit=images/s'"
        ),
        table(("group", "content"), groups),
        table(("option", "default", "allowed"), options),
    )


# Warnings.


def warnings_page() -> str:
    rows = []
    for code, warning in MeasurementWarning.classes.items():
        assert issubclass(warning, MeasurementWarning)
        when = " ".join(str(warning.__doc__).split())
        sentence = warning.sentence.replace("%%", "%")
        rows.append((f"`{code}`", warning.severity, when, sentence))
    return page(
        "Warnings",
        "The most severe first. An error means that the number can't be trusted, a caution "
        "that it may be inaccurate. A sentence has values in place of `%(name)s`.",
        table(("code", "severity", "when", "sentence"), rows),
    )


# Failures.


def failures_page() -> str:
    rows = []
    for code, failure in Failure.classes.items():
        when = " ".join(str(failure.__doc__).split())
        rows.append((f"`{code}`", when, words(failure.model_fields)))
    return page(
        "Failures",
        "The fields are in `params`, as far as they are known.",
        table(("code", "when", "fields"), rows),
        of_failure_fields(),
    )


def field_descriptions(statement: type[Statement]) -> dict[str, str]:
    """Return the docstrings of a statement's fields. Pydantic would read them at every start of
    a worker."""
    descriptions = {}
    for base in reversed(statement.__mro__):
        if issubclass(base, Statement):
            (definition,) = ast.parse(inspect.getsource(base)).body
            assert isinstance(definition, ast.ClassDef)
            for field, docstring in pairwise(definition.body):
                if isinstance(field, ast.AnnAssign) and isinstance(docstring, ast.Expr):
                    description = ast.literal_eval(docstring.value)
                    descriptions[ast.unparse(field.target)] = " ".join(description.split())
    return descriptions


def of_failure_fields() -> str:
    """Return a table of the fields of all failures, with each of their meanings."""
    meanings: dict[str, list[str]] = {}
    for failure in Failure.classes.values():
        descriptions = field_descriptions(failure)
        for name in failure.model_fields:
            of_name = meanings.setdefault(name, [])
            description = descriptions.get(name)
            if description and description not in of_name:
                of_name.append(description)
    rows = [(f"`{name}`", "; ".join(texts)) for name, texts in meanings.items()]
    return table(("field", "meaning"), rows)


# Findings of an audit.


def findings_page() -> str:
    rows = []
    for code, finding in Finding.classes.items():
        when = " ".join(str(finding.__doc__).split())
        rows.append((f"`{code}`", when, finding.sentence))
    return page(
        "Findings of an audit",
        "Findings are observations, not necessarily mistakes. A sentence has values in place "
        "of `%(name)s`.",
        table(("code", "when", "sentence"), rows),
    )


# The parameters cell of the model notebooks.

WIDTH = 96
"""Line length: `ruff format` breaks longer lines, which papermill then can't parse."""
CHANGED_MOST = ("framework", "batch_size", "gpus")
GROUPS = {
    "framework": "The work",
    "device": "Where it runs",
    "input": "Input",
    "timeout": "Results",
    "protocol": "Protocol",
}
"""First parameter of each group, in the order of `parameters` -> heading of the group."""


def notebooks() -> dict[Path, str]:
    """Return the model notebooks with a new parameters cell."""
    found = {}
    for model in MODELS:
        path = ROOT / "notebooks" / f"{model}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        (cell,) = (c for c in notebook.cells if "parameters" in c.metadata.get("tags", ()))
        cell.source = parameters_cell()
        found[path] = nbformat.writes(notebook) + "\n"
    return found


def parameters_cell() -> str:
    """Return all parameters with defaults and meanings, the most often changed first.
    papermill's --help-notebook shows these lines too."""
    lines = ["# Changed most often", *map(parameter_line, CHANGED_MOST)]
    for name in parameters():
        if name in GROUPS:
            lines += ["", f"# {GROUPS[name]}"]
        if name not in CHANGED_MOST:
            lines.append(parameter_line(name))
    return "\n".join(lines)


def parameter_line(name: str) -> str:
    """Return `name = default  # meaning`: start of the description and choices, then the
    clauses for None and auto and other clauses, as far as they fit on the line."""
    default = parameters()[name][0]
    assignment = f"{name} = {json.dumps(default) if isinstance(default, str) else default}"
    # papermill parses no line with a second equals sign.
    first, *others = meaning(name).replace("=", " ").split("; ")
    allowed = choices(name) if name in Config.model_fields else ()
    ending = f" ({' | '.join(allowed)})" if allowed else ""
    starts = [first, first.partition(": ")[0], first.partition(", ")[0]]
    # A start that ends within brackets would be garbled.
    shorter = [(text, ending) for text in starts if text.count("(") == text.count(")")]
    shorter.append((first, ""))
    first, ending = next(
        text for text in shorter if len(f"{assignment}  # {''.join(text)}") <= WIDTH
    )
    kept: list[str] = []
    for clause in sorted(others, key=lambda text: not text.startswith(("None: ", "auto: "))):
        longer = [text for text in others if text in (*kept, clause)]
        if len(f"{assignment}  # {'; '.join([first, *longer])}{ending}") <= WIDTH:
            kept = longer
    return f"{assignment}  # {'; '.join([first, *kept])}{ending}"


# Commands.


def cli_page() -> str:
    commands = [main, *main.commands.values()]
    context = click.Context(main, info_name="perfkit", **main.context_settings)
    parts = [part for command in commands for part in of_command(command, context)]
    return page("Commands", "The text of `perfkit COMMAND --help`.", *parts)


def of_command(command: click.Command, context: click.Context) -> list[str]:
    """Return heading, usage, help, options and exit statuses of one command."""
    name = "perfkit" if command is main else f"perfkit {command.name}"
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    records = [
        option.get_help_record(context)
        for option in command.get_params(context)
        if isinstance(option, click.Option)
    ]
    options = [(f"`{record[0]}`", record[1]) for record in records if record]
    parts = [
        f"## {name}",
        block(usage),
        paragraphs(command.help),
        table(("option", ""), options),
    ]
    epilog = command.epilog or ""
    if parameter_list() in epilog:
        parts.append("`-p` takes any of the [parameters](parameters.md).")
    return [*parts, paragraphs(epilog.replace(parameter_list(), ""))]


def paragraphs(text: str | None) -> str:
    r"""Return help text as Markdown; paragraphs with click's mark \b keep their line breaks."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(
        block(part.removeprefix("\b\n")) if part.startswith("\b") else part for part in parts
    )


# Python.


def python_page() -> str:
    parts = [part for name in perfkit.__all__ for part in of_name(name)]
    about = (
        "The public names of `import perfkit`; all others may change. Paths are text or `Path`."
    )
    return page("Python", about, *parts)


def of_name(name: str) -> list[str]:
    """Return heading, signature and docstring of a public name, and the members of a class."""
    thing = getattr(perfkit, name)
    fields = getattr(thing, "model_fields", None)
    if fields is not None:
        return [f"## {name}", paragraphs(thing.__doc__), of_fields(thing), members(thing)]
    if inspect.isclass(thing) and issubclass(thing, Exception):
        bases = ", ".join(base.__name__ for base in thing.__bases__)
        return [f"## {name}", f"An exception; base: `{bases}`.", paragraphs(thing.__doc__)]
    shown = block(f"perfkit.{name}{signature(thing)}")
    return [f"## {name}", shown, paragraphs(thing.__doc__), members(thing)]


def of_fields(model: Any) -> str:
    if model is Config:
        return "Its fields are the [parameters](parameters.md), and `model`."
    if model is Protocol:
        return "Its fields are the [parameters](parameters.md); `name` is `protocol`."
    names = ", ".join(f"`{name}`" for name in model.model_fields)
    return f"Its fields: {names}; [meanings](files.md#{model.__name__.lower()})."


def members(thing: object) -> str:
    """Return a table of the public methods and properties of a class with their docstrings."""
    if not inspect.isclass(thing):
        return ""
    rows = []
    for name, member in vars(thing).items():
        plain = getattr(member, "__func__", member)
        is_property = isinstance(plain, property)
        if name.startswith("_") or not (inspect.isfunction(plain) or is_property):
            continue
        shown = name if is_property else f"{name}{signature(plain)}"
        rows.append((f"`{shown}`", " ".join((plain.__doc__ or "").split())))
    return table(("member", ""), rows)


def signature(function: Any) -> str:
    """Return the signature, with short names of types and without `self`."""
    full = inspect.signature(function, eval_str=True)
    kept = [part for name, part in full.parameters.items() if name not in ("self", "cls")]
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", str(full.replace(parameters=kept)))


# result.json.


def result_page() -> str:
    return page(
        "result.json",
        "One measurement is a [Result](#result). Times are in seconds, memory is in bytes; "
        "`None`, `True`, `False` are JSON's null, true and false. All fields are written; an "
        "optional field that a file lacks counts as null or empty. How numbers are computed: "
        "[stored files](../results.md); for programs: [JSON Schema](../result.schema.json).",
        *of_models_in(models(Result)),
    )


def raw_files_page() -> str:
    return page(
        "Raw files",
        "One JSON object per line, appended as it happens. Times are in seconds.",
        "## repeats/<k>/rank<r>.jsonl",
        "`effective` has the fields of [Effective](result.md#effective) and is read from one "
        "batch before training.",
        of_events(RANK_EVENTS),
        "## repeats/<k>/telemetry.jsonl",
        "The driver samples the first node twice a second. After a failed write the file ends "
        "and the measurement continues.",
        of_events(TELEMETRY_EVENTS),
    )


def of_events(events: Iterable[type]) -> str:
    """Return a table of events with their fields."""
    rows = []
    for event in events:
        schema = TypeAdapter(event).json_schema()
        fields = schema["properties"]
        name = f"`{fields.pop('event')['const']}`"
        rows.append((name, "", schema["description"]))
        for field, described in fields.items():
            rows.append(("", f"`{field}`", described["description"]))
    return table(("event", "field", "meaning"), rows)


def files_page() -> str:
    every: dict[str, Schema] = {}
    for root in OTHER_FILES:
        every |= models(root)
    return page(
        "Other JSON files",
        "[Comparison](#comparison): `perfkit compare --json`. "
        "[InterleavedComparison](#interleavedcomparison): `comparison.json`. "
        "[Diagnosis](#diagnosis): `diagnosis.json`. [Verification](#verification): "
        "`verified/*.json`. [Audit](#audit): `audit.json` and `perfkit audit --json`. "
        "How numbers are computed: [stored files](../results.md). `None`, `True`, `False` are "
        "JSON's null, true and false. An optional field may be missing.",
        *of_models_in(every),
    )


def of_models_in(every: Mapping[str, Schema]) -> list[str]:
    """Return a section for each model."""
    parts = []
    for name, model in every.items():
        about = paragraphs(model.get("description"))
        parts += [f"## {name}", about, of_config() if name == "Config" else of_model(model)]
    return parts


def of_config() -> str:
    return "`model`, and the [parameters](parameters.md) with every field set."


def of_model(model: Schema) -> str:
    """Return a table of the fields of one model, in their order."""
    required = model.get("required", [])
    rows = [
        (f"`{key}`", kind(part), part.get("description", ""), "" if key in required else "yes")
        for key, part in model["properties"].items()
    ]
    return table(("field", "type", "meaning", "optional"), rows)


def models(root: type[BaseModel]) -> dict[str, Schema]:
    """Return the schemas by name, each after the schema that first refers to it."""
    schema = root.model_json_schema()
    found = {root.__name__: schema}
    waiting = [schema]
    while waiting:
        named = re.findall(r'"#/\$defs/(\w+)"', json.dumps(waiting.pop(0)["properties"]))
        for name in named:
            if name not in found:
                found[name] = schema["$defs"][name]
                waiting.append(found[name])
    return found


TYPES = {
    "null": "`None`",
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`True`, `False`",
}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def kind(schema: Schema) -> str:
    """Return the type that a JSON Schema allows, in words."""
    match schema:
        case {"anyOf": several}:
            return " or ".join(map(kind, several))
        case {"$ref": place}:
            name = place.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"enum": values}:
            text = words(values)
        case {"const": value}:
            text = words([value])
        case {"pattern": pattern}:
            text = PATTERN_WORDS[pattern]
        case {"prefixItems": items}:
            text = f"[{', '.join(map(kind, items))}]"
        case {"type": "array"}:
            text = f"list of {kind(schema['items'])}"
        case {"type": "object", "additionalProperties": True}:
            text = "by name"
        case {"type": "object"} if "additionalProperties" not in schema:
            text = "by name"
        case {"type": "object"}:
            text = f"by name: {kind(schema['additionalProperties'])}"
        case _:
            bounds = [f"{sign} {schema[key]}" for key, sign in BOUNDS.items() if key in schema]
            text = " ".join([TYPES[schema["type"]], ", ".join(bounds)]).strip()
    return text


# Markdown.


def page(title: str, *parts: str) -> str:
    written = "<!-- Written by `make docs` from the code; change it there. -->"
    return "\n\n".join([f"# {title}", written, *filter(None, parts)]) + "\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table, or an empty text without rows."""
    lines = [[*map(cell, row)] for row in rows]
    if not lines:
        return ""
    head = [*head]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines])


def cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", r"\|").replace("<", "&lt;")


def block(text: str) -> str:
    return f"```text\n{text}\n```"


def words(values: Iterable[object]) -> str:
    return ", ".join(f"`{value}`" for value in values)


if __name__ == "__main__":
    (DOCS / "reference").mkdir(exist_ok=True)
    for path, text in (pages() | notebooks()).items():
        write_atomically(path, text)
