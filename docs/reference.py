"""Write the reference pages, the schema of result.json and the parameters cells of the model
notebooks from the code: `make docs`.

docs/reference/parameters.md   of every notebook: perfkit.config
docs/reference/cli.md          every command: perfkit.cli
docs/reference/python.md       what `import perfkit` gives
docs/reference/result.md       every field of result.json: perfkit.results.schema
docs/reference/formats.md      formats of logs: perfkit/logs/formats.toml
docs/result.schema.json        the same as JSON Schema
notebooks/<model>.ipynb        the cell of parameters, with their meanings as comments

`pages` and `notebooks` say what each file holds and write nothing; what has no description has
an empty one, which tests/test_docs.py finds.
"""

import inspect
import json
import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import nbformat

import perfkit
from perfkit.cli import main
from perfkit.cli.options import parameter_list
from perfkit.comparison.keys import ALIASES, KEYS, MAY_DIFFER
from perfkit.config import (
    ABOUT,
    PROTOCOL_PARAMETERS,
    PROTOCOLS,
    ROOT,
    Config,
    Protocol,
    choices,
    parameters,
)
from perfkit.frameworks import FRAMEWORKS
from perfkit.logs import formats
from perfkit.models import MODELS
from perfkit.request import PATTERNS
from perfkit.results.schema import Result
from perfkit.results.store import write_atomically

DOCS = ROOT / "docs"
PATTERN_WORDS = {
    Config.model_fields[name].metadata[0].pattern: words for name, words in PATTERNS.items()
}
Schema = dict[str, Any]


def pages() -> dict[Path, str]:
    """File -> what it holds when it is up to date."""
    folder = DOCS / "reference"
    return {
        folder / "parameters.md": parameters_page(),
        folder / "cli.md": cli_page(),
        folder / "python.md": python_page(),
        folder / "result.md": result_page(),
        folder / "formats.md": formats_page(),
        DOCS / "result.schema.json": json.dumps(Result.model_json_schema(), indent=1) + "\n",
    }


# Parameters.


def parameters_page() -> str:
    rows = [
        (f"`{name}`", f"`{default!r}`", allowed(name), meaning(name), *applies(name))
        for name, (default, _meaning) in parameters().items()
    ]
    protocols = [
        (
            f"`{name}`",
            *(str(values[key]) for key in ("warmup_steps", "measured_steps", "repeats")),
        )
        for name, values in PROTOCOLS.items()
    ]
    return page(
        "Parameters",
        "Of every notebook that measures, for `-p NAME VALUE` of papermill and perfkit, and of "
        "a parameters file. `None` leaves it to model, framework, machine. *New id*: whether "
        "another value makes another measurement, beside the one that is there. *To be "
        "compared*: what a comparison of two measurements does with it.",
        table(("name", "default", "allowed", "meaning", "new id", "to be compared"), rows),
        "## Protocols",
        table(("`protocol`", "warm-up steps", "measured steps", "repeats"), protocols),
        "## What models take",
        "The first is the default.",
        table(("model", "`input`", "`optimizer`", "`batch_size` on a CPU, a GPU"), of_models()),
        "## What frameworks take",
        "Empty: whatever there is. Others are refused before anything starts.",
        of_frameworks(),
    )


def allowed(name: str) -> str:
    """The values that a parameter may have."""
    if name == "protocol":
        return words(choices(name))
    model = Protocol if name in PROTOCOL_PARAMETERS else Config
    told = kind(model.model_json_schema()["properties"][name])
    default = "auto" if name == "repeats" else parameters()[name][0]
    unset = default in (None, "auto") and f"`{default}`" not in told
    return f"{told} or `{default}`" if unset else told


def meaning(name: str) -> str:
    """What a parameter is for, without the list of words that `parameters` adds."""
    field = Config.model_fields.get(name)
    return " ".join(str(field.description).split()) if field else parameters()[name][1]


def applies(name: str) -> tuple[str, str]:
    """Whether another value makes another measurement, and what a comparison does with it."""
    new = "yes" if ABOUT[name].identifies else "no"
    if name in MAY_DIFFER:
        return new, "may differ, is told"
    return new, "must agree" if name in (*KEYS, *ALIASES) else "not looked at"


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
    names = sorted({name for one in FRAMEWORKS.values() for name in one.supports})
    rows = [
        (f"`{name}`", *(words(one.supports.get(name, ())) for one in FRAMEWORKS.values()))
        for name in names
    ]
    return table(("parameter", *(f"`{name}`" for name in FRAMEWORKS)), rows)


# Formats of logs.

COVERS = {
    "window": "since the last print",
    "running": "running mean since step {}",
    "step": "the last step",
}
READER = {"in": "in it", "apart": "apart", None: "not known"}


def formats_page() -> str:
    """Every format that audit and import read, and the groups of one given by hand."""
    rows = []
    for one in formats.FORMATS:
        s = one.semantics
        means = [
            f"{one.unit or 'samples/s'} of {'a device' if s.rate_of == 'device' else 'all'}",
            COVERS[s.covers].format(s.since),
            f"{'micro-batches' if s.step == 'batch' else 'updates'} from {s.counts_from}",
            READER[s.reader],
        ]
        cells = means if one.has_steps else ["", "", "", ""]
        rows.append((one.name, one.framework, *cells, s.source))
    head = ("format", "framework", "rate", "a print is of", "counts", "data wait", "known from")
    groups = [(f"`{name}`", text) for name, text in formats.COLUMNS.items()]
    options = [
        (f"`{one.name}`", f"`{one.default}`")
        for one in fields(formats.Semantics)
        if one.default
    ]
    documents = ", ".join(one["name"] for one in formats.DOCUMENTS)
    return page(
        "Formats of logs",
        "What `perfkit audit` and `perfkit import` read, by a file's content; gzip and xz are "
        "unpacked. The first format that is found in a file is taken.",
        table(head, rows),
        f"Files that are one JSON object or one table: {documents}.",
        "## A format of your own",
        "`--format-regex` is a regular expression (Python's) that matches a printed line; its "
        "groups are named by what they hold, with the unit in the name. `<step>` is short for "
        "`(?P<step>…)` with digits, `<rate>` with a number, `<at>` with date and time. "
        "`--format-options` says what they mean, `unit` and `framework` too:",
        block(
            "perfkit audit train.log --format-regex 'it <step> .* <rate> img/s, <seconds> s' "
            "\\\n  --format-options 'rate_of=all covers=window counts_from=1 reader=in "
            "unit=images/s'"
        ),
        table(("group", "what it holds"), groups),
        table(("option", "default"), options),
    )


# The parameters cell of the model notebooks.

WIDTH = 96
"""Columns of a line: `ruff format` breaks longer lines, which papermill then can't parse."""
CHANGED_MOST = ("framework", "batch_size", "gpus")
GROUPS = {
    "framework": "The work",
    "device": "Where it runs",
    "input": "Input",
    "timeout": "Results",
    "protocol": "Protocol",
}
"""The first parameter of a group, in the order of `parameters` -> the group's heading."""


def notebooks() -> dict[Path, str]:
    """The model notebooks, as they are but for the parameters cell."""
    found = {}
    for model in MODELS:
        path = ROOT / "notebooks" / f"{model}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        (cell,) = (c for c in notebook.cells if "parameters" in c.metadata.get("tags", ()))
        cell.source = parameters_cell()
        found[path] = nbformat.writes(notebook) + "\n"
    return found


def parameters_cell() -> str:
    """Every parameter with its default and its meaning, which papermill's --help-notebook
    shows too; those that are changed most often first."""
    lines = ["# Changed most often", *map(parameter_line, CHANGED_MOST)]
    for name in parameters():
        if name in GROUPS:
            lines += ["", f"# {GROUPS[name]}"]
        if name not in CHANGED_MOST:
            lines.append(parameter_line(name))
    return "\n".join(lines)


def parameter_line(name: str) -> str:
    """`name = default  # meaning`: the beginning of its description and its choices, then what
    None and auto stand for and the other clauses, as far as the line has room for them."""
    default = parameters()[name][0]
    assignment = f"{name} = {json.dumps(default) if isinstance(default, str) else default}"
    # papermill parses no line with a second equals sign.
    first, *others = meaning(name).replace("=", " ").split("; ")
    allowed = choices(name) if name in Config.model_fields else ()
    if name == "framework":
        # The others are those of imported logs.
        allowed, others = tuple(FRAMEWORKS), []
    ending = f" ({' | '.join(allowed)})" if allowed else ""
    shorter = [(first, ending), (first.partition(": ")[0], ending), (first, "")]
    first, ending = next(
        text for text in shorter if len(f"{assignment}  # {''.join(text)}") <= WIDTH
    )
    kept: list[str] = []
    for clause in sorted(others, key=lambda one: not one.startswith(("None: ", "auto: "))):
        longer = [one for one in others if one in (*kept, clause)]
        if len(f"{assignment}  # {'; '.join([first, *longer])}{ending}") <= WIDTH:
            kept = longer
    return f"{assignment}  # {'; '.join([first, *kept])}{ending}"


# Commands.


def cli_page() -> str:
    commands = [main, *main.commands.values()]
    context = click.Context(main, info_name="perfkit", **main.context_settings)
    told = [part for command in commands for part in of_command(command, context)]
    return page("Commands", "As `perfkit COMMAND --help` has it.", *told)


def of_command(command: click.Command, context: click.Context) -> list[str]:
    """Heading, usage, help, options and exit statuses of one command."""
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
    r"""Help as Markdown: what follows click's mark \b keeps its lines."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(
        block(part.removeprefix("\b\n")) if part.startswith("\b") else part for part in parts
    )


# Python.


def python_page() -> str:
    told = [part for name in perfkit.__all__ for part in of_name(name)]
    introduction = (
        "What `import perfkit` gives; anything else may change. Paths are text or `Path`."
    )
    return page("Python", introduction, *told)


def of_name(name: str) -> list[str]:
    """Heading, signature and docstring of one public name; of a class, its members too."""
    thing = getattr(perfkit, name)
    fields = getattr(thing, "model_fields", None)
    if fields is not None:
        return [f"## {name}", paragraphs(thing.__doc__), of_fields(thing), members(thing)]
    if inspect.isclass(thing) and issubclass(thing, Exception):
        base = ", ".join(one.__name__ for one in thing.__bases__)
        return [f"## {name}", f"An exception, of `{base}`.", paragraphs(thing.__doc__)]
    shown = block(f"perfkit.{name}{signature(thing)}")
    return [f"## {name}", shown, paragraphs(thing.__doc__), members(thing)]


def of_fields(model: Any) -> str:
    """Where the fields of a model are described."""
    if model is Config:
        return "Its fields are the [parameters](parameters.md), and `model`."
    if model is Protocol:
        return "Its fields are the [parameters](parameters.md); `name` is `protocol`."
    names = ", ".join(f"`{name}`" for name in model.model_fields)
    return f"Its fields: {names}; [what they hold](../results.md#perfkit-compare)."


def members(thing: object) -> str:
    """Public methods and properties of a class, each with its docstring."""
    if not inspect.isclass(thing):
        return ""
    rows = []
    for name, member in vars(thing).items():
        made = getattr(member, "__func__", member)
        if name.startswith("_") or not (inspect.isfunction(made) or isinstance(made, property)):
            continue
        shown = name if isinstance(made, property) else f"{name}{signature(made)}"
        rows.append((f"`{shown}`", " ".join((made.__doc__ or "").split())))
    return table(("member", ""), rows)


def signature(function: Any) -> str:
    """Its signature, with the short names of types and without `self`."""
    told = inspect.signature(function, eval_str=True)
    kept = [one for name, one in told.parameters.items() if name not in ("self", "cls")]
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", str(told.replace(parameters=kept)))


# result.json.


def result_page() -> str:
    told = []
    for name, model in models(Result.model_json_schema()).items():
        about = paragraphs(model.get("description"))
        told += [f"## {name}", about, of_config() if name == "Config" else of_model(model)]
    return page(
        "result.json",
        "One measurement is a [Result](#result). Times are in seconds, memory is in bytes; "
        "`None`, `True`, `False` are JSON's null, true and false. All fields are written; in "
        "a file without one that may lack, it counts as null or empty. How the numbers come "
        "about: [what is stored](../results.md); for programs: "
        "[JSON Schema](../result.schema.json).",
        *told,
    )


def of_config() -> str:
    return "`model`, and [parameters](parameters.md) in which nothing is left open."


def of_model(model: Schema) -> str:
    """The fields of one model, in their order."""
    required = model.get("required", [])
    rows = [
        (f"`{name}`", kind(one), one.get("description", ""), "" if name in required else "yes")
        for name, one in model["properties"].items()
    ]
    return table(("field", "type", "meaning", "may lack"), rows)


def models(schema: Schema) -> dict[str, Schema]:
    """Name -> schema, each after the one that first names it."""
    found = {"Result": schema}
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
    """The type that a JSON Schema allows, in words."""
    match schema:
        case {"anyOf": several}:
            return " or ".join(map(kind, several))
        case {"$ref": place}:
            name = place.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"enum": values}:
            told = words(values)
        case {"const": value}:
            told = words([value])
        case {"pattern": pattern}:
            told = PATTERN_WORDS[pattern]
        case {"prefixItems": items}:
            told = f"[{', '.join(map(kind, items))}]"
        case {"type": "array"}:
            told = f"list of {kind(schema['items'])}"
        case {"type": "object", "additionalProperties": True}:
            told = "by name"
        case {"type": "object"}:
            told = f"by name: {kind(schema['additionalProperties'])}"
        case _:
            bounds = [f"{sign} {schema[key]}" for key, sign in BOUNDS.items() if key in schema]
            told = " ".join([TYPES[schema["type"]], ", ".join(bounds)]).strip()
    return told


# Markdown.


def page(title: str, *parts: str) -> str:
    written = "<!-- Written by `make docs` from the code; change it there. -->"
    return "\n\n".join([f"# {title}", written, *filter(None, parts)]) + "\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; empty without rows."""
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
