"""Write the reference pages, the schema of result.json and the parameters cells of the model
notebooks from the code: `make docs`.

docs/reference/parameters.md   parameters of every notebook: perfkit.measuring.config
docs/reference/cli.md          commands: perfkit.cli
docs/reference/python.md       public names of `import perfkit`
docs/reference/warnings.md     warnings: perfkit.analysis.warnings
docs/result.schema.json        JSON Schema of result.json: perfkit.measuring.results.schema
notebooks/<model>.ipynb        the parameters cell, with meanings as comments

`pages` and `notebooks` return the content of each file and write nothing.
"""

import inspect
import json
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import click
import nbformat
from pydantic import BaseModel

import perfkit
from perfkit.analysis.comparison.keys import ALIASES, KEYS, MAY_DIFFER
from perfkit.analysis.warnings import MeasurementWarning
from perfkit.cli import main
from perfkit.cli.options import exit_statuses
from perfkit.measuring.config import Config
from perfkit.measuring.parameters import (
    ABOUT,
    EVERY_FIELD,
    PROTOCOL_PARAMETERS,
    Parameter,
    choices,
    models_with,
    parameters,
)
from perfkit.measuring.paths import ROOT
from perfkit.measuring.protocol import PROTOCOLS, Protocol
from perfkit.measuring.request.described import described
from perfkit.measuring.request.values import PATTERNS
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import write_atomically
from perfkit.measuring.work import (
    COMMAND,
    KINDS,
    SCRIPT,
    CommandWork,
    Kind,
    ModelWork,
    ScriptWork,
)
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.training.models import MODELS

DOCS = ROOT / "docs"
PATTERN_WORDS = {}
for name, meaning_of_pattern in PATTERNS.items():
    (constraint, *_others) = EVERY_FIELD[name].metadata
    PATTERN_WORDS[constraint.pattern] = meaning_of_pattern
Schema = dict[str, Any]


def pages() -> dict[Path, str]:
    """Return the up-to-date content of each file."""
    folder = DOCS / "reference"
    return {
        folder / "parameters.md": parameters_page(),
        folder / "cli.md": cli_page(),
        folder / "python.md": python_page(),
        folder / "warnings.md": warnings_page(),
        DOCS / "result.schema.json": json.dumps(Result.model_json_schema(), indent=1) + "\n",
    }


# Parameters.

SHARED = [name for name in Config.model_fields if name != "framework"]
SHARED += PROTOCOL_PARAMETERS
"""Parameters that a script has as models have them."""


def parameters_page() -> str:
    return page(
        "Parameters",
        "Parameters of the notebooks of built-in models, for `-p NAME VALUE` of papermill and "
        "perfkit and for parameters files. `None`, where it is the default: chosen by model, "
        "framework, machine. "
        "Relative paths start in the working directory; `outputs` and what is below it, from "
        "anywhere in the checkout, at its top.",
        of_parameters(),
        "## Parameters of a script",
        "`notebooks/script.ipynb` has these, and of those above the ones from `device` to "
        "`python` except `disable_tuning`, and from `timeout` on.",
        of_parameters(ScriptWork, left_out=SHARED),
        "## Parameters of a command",
        "`notebooks/command.ipynb` has these, and those that a script has besides its own, "
        "without `launcher`, `hosts`, `port` and `cpu_tuning`.",
        of_parameters(CommandWork, left_out=SHARED),
        "## Other values",
        of_other_values(),
        "## Protocols",
        of_protocols(),
        "## Values by model",
        "The first value is the default.",
        of_models(),
        "## Values by framework",
        "An empty cell allows every value. Other values are refused before anything starts.",
        of_frameworks(),
    )


def of_parameters(work: Kind = ModelWork, left_out: Collection[str] = ()) -> str:
    """Return a table of the parameters of such a work, without those `left_out`."""
    rows = []
    for name, parameter in parameters(work).items():
        if name in left_out:
            continue
        default = f"`{parameter.default!r}`"
        rows.append((f"`{name}`", default, allowed(name, work), parameter.meaning))
    return table(("name", "default", "allowed", "meaning"), rows)


def of_other_values() -> str:
    """Return what another value of a parameter does to a measurement and to a comparison."""
    same_id, listed, ignored = [], [], []
    for name in dict.fromkeys(
        [*parameters(), *parameters(ScriptWork), *parameters(CommandWork)]
    ):
        if not ABOUT[name].identifies:
            same_id.append(name)
        if name in MAY_DIFFER:
            listed.append(name)
        elif name not in KEYS and name not in ALIASES:
            ignored.append(name)
    return (
        f"Another value makes another measurement, except of {words(same_id)}. Measurements "
        f"that are compared must agree in all parameters, except in {words(listed)}, which are "
        f"listed if they differ, and in {words(ignored)}."
    )


def allowed(name: str, work: Kind = ModelWork) -> str:
    """Return the values that a parameter may have, as Markdown."""
    if name == "protocol":
        return words(choices(name))
    model: type[BaseModel] = Config
    for place in (work, Protocol):
        if name in place.model_fields:
            model = place
    text = kind(model.model_json_schema()["properties"][name])
    return f"{text} or `auto`" if name in ("repeats", "warmup_steps") else text


def of_protocols() -> str:
    rows = []
    for name in PROTOCOLS:
        protocol = Protocol.named(name)
        seconds = f"{protocol.measured_seconds:g}"
        steps = (protocol.warmup_words, protocol.measured_words, seconds)
        rows.append((f"`{name}`", *steps, str(protocol.repeats)))
    head = ("`protocol`", "warm-up steps", "measured steps", "`measured_seconds`", "repeats")
    return table(head, rows)


def of_models() -> str:
    rows = []
    for name, model in MODELS.items():
        batch_sizes = f"{model.cpu_batch_size}, {model.gpu_batch_size}"
        own = [parameter for parameter in parameters() if name in of_some_models(parameter)]
        rows.append(
            (
                f"`{name}`",
                words(model.inputs),
                words(model.optimizers),
                batch_sizes,
                words(own),
            )
        )
    head = ("model", "`input`", "`optimizer`", "`batch_size` on a CPU, a GPU", "also has")
    return table(head, rows)


def of_some_models(parameter: str) -> tuple[str, ...]:
    """Return the models that take a parameter; empty if all do."""
    takers = models_with(parameter)
    return () if len(takers) == len(MODELS) else tuple(takers)


def of_frameworks() -> str:
    """Return a table of the values that each framework supports, by parameter."""
    names: set[str] = set()
    for framework in FRAMEWORKS.values():
        names |= framework.supports.keys()
    rows = []
    for name in sorted(names):
        row = [f"`{name}`"]
        for framework in FRAMEWORKS.values():
            values = framework.supports.get(name, ())
            row.append(words(values))
        rows.append(row)
    return table(["parameter", *(f"`{name}`" for name in FRAMEWORKS)], rows)


TYPES = {
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
            return " or ".join(kind(one) for one in several if one != {"type": "null"})
        case {"enum": values}:
            text = words(values)
        case {"pattern": pattern}:
            text = PATTERN_WORDS[pattern]
        case {"type": "integer", "minimum": least, "maximum": most}:
            text = f"{least} to {most}"
        case _:
            bounds = [f"{sign} {schema[key]}" for key, sign in BOUNDS.items() if key in schema]
            text = " ".join([TYPES[schema["type"]], ", ".join(bounds)]).strip()
    return text


# Warnings.


def warnings_page() -> str:
    rows = []
    for code, warning in MeasurementWarning.classes.items():
        when = " ".join(str(warning.__doc__).split())
        rows.append((f"`{code}`", warning.severity, when))
    return page(
        "Warnings",
        "The most severe first. Error: the number is wrong. Caution: it may not hold, or may "
        "not be compared with others. Notice: it is right, and something about it is worth "
        "knowing.",
        table(("code", "severity", "when"), rows),
    )


# The parameters cell of the model notebooks.

WIDTH = 96
"""Line length: `ruff format` breaks longer lines, which papermill then can't parse."""
CHANGED_MOST = dict.fromkeys(MODELS, ("framework", "batch_size", "gpus"))
CHANGED_MOST[SCRIPT] = ("script", "arguments", "gpus")
CHANGED_MOST[COMMAND] = ("command", "flags", "gpus")
"""Notebook -> the parameters at the top of its cell."""
GROUPS = {
    "precision": "The work",
    "input": "Input",
    "framework": "Where it runs",
    "timeout": "Results",
    "protocol": "Protocol",
}
"""First parameter of each group, in the order of `described` -> heading of the group."""


def notebooks() -> dict[Path, str]:
    """Return the measuring notebooks with a new parameters cell."""
    contents = {}
    for name in (*MODELS, *KINDS):
        path = ROOT / "notebooks" / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if "parameters" in cell.metadata.get("tags", ()):
                cell.source = parameters_cell(name)
        contents[path] = nbformat.writes(notebook) + "\n"
    return contents


def parameters_cell(work: str) -> str:
    """Return the parameters that a model, or a script, takes, with types, defaults and
    meanings, the most often changed first; papermill's --help-notebook shows these lines."""
    every = {parameter.name: parameter for parameter in described(work)}
    lines = ["# Changed most often"]
    lines += [parameter_line(every[name]) for name in CHANGED_MOST[work]]
    for name, parameter in every.items():
        if name in GROUPS:
            lines += ["", f"# {GROUPS[name]}"]
        if name not in CHANGED_MOST[work]:
            lines.append(parameter_line(parameter))
    return "\n".join(lines)


def parameter_line(parameter: Parameter) -> str:
    """Return `name: type = default  # meaning`: start of the meaning and choices, then the
    clauses for None and auto and other clauses, as far as they fit on the line."""
    default = parameter.default
    if isinstance(default, str):
        default = json.dumps(default)
    assignment = f"{parameter.name}: {parameter.type} = {default}"
    # papermill parses no line with a second equals sign.
    first, *others = [clause.replace("=", " ") for clause in parameter.clauses]
    others.sort(key=lambda clause: not clause.startswith(("None: ", "auto: ")))
    start, ending = start_and_ending(first, parameter.choices, len(assignment))
    clauses = [start]
    for clause in others:
        longer = [*clauses, clause]
        if len(with_comment(assignment, longer, ending)) <= WIDTH:
            clauses = longer
    return with_comment(assignment, clauses, ending)


def start_and_ending(
    clause: str, choices_of_work: tuple[str, ...], width: int
) -> tuple[str, str]:
    """Return the start of a parameter's first clause and its choices in brackets: as much of
    both as fits beside `width` characters."""
    choices_in_brackets = ""
    if choices_of_work:
        choices_in_brackets = f" ({' | '.join(choices_of_work)})"
    until_colon, _colon, _rest = clause.partition(": ")
    until_comma, _comma, _rest = clause.partition(", ")
    for start in (clause, until_colon, until_comma):
        # A start that ends within brackets would be garbled.
        is_whole = start.count("(") == start.count(")")
        if is_whole and width + len(f"  # {start}{choices_in_brackets}") <= WIDTH:
            return start, choices_in_brackets
    return clause, ""


def with_comment(assignment: str, clauses: list[str], ending: str) -> str:
    return f"{assignment}  # {'; '.join(clauses)}{ending}"


# Commands.


def cli_page() -> str:
    context = click.Context(main, info_name="perfkit", **main.context_settings)
    parts = of_command("perfkit", main, context)
    for name, command in main.commands.items():
        parts += of_command(f"perfkit {name}", command, context)
    return page("Commands", "The text of `perfkit COMMAND --help`.", *parts)


def of_command(name: str, command: click.Command, context: click.Context) -> list[str]:
    """Return heading, usage, help, options and exit statuses of one command."""
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts = [
        f"## {name}",
        block(usage),
        paragraphs(command.help),
        of_options(command, context),
    ]
    epilog = command.epilog or ""
    if command is not main and epilog.endswith(exit_statuses()):
        # Those of `perfkit` itself.
        epilog = epilog.removesuffix(exit_statuses())
    return [*parts, paragraphs(epilog)]


def of_options(command: click.Command, context: click.Context) -> str:
    """Return a table of the options of a command."""
    rows = []
    for option in command.get_params(context):
        record = None
        if isinstance(option, click.Option) and "--help" not in option.opts:
            record = option.get_help_record(context)
        if record:
            names, about = record
            rows.append((f"`{names}`", about))
    return table(("option", ""), rows)


def paragraphs(text: str | None) -> str:
    r"""Return help text as Markdown; paragraphs with click's mark \b keep their line breaks."""
    parts = []
    for part in inspect.cleandoc(text or "").split("\n\n"):
        if part.startswith("\b"):
            parts.append(block(part.removeprefix("\b\n")))
        else:
            parts.append(part)
    return "\n\n".join(parts)


# Python.


def python_page() -> str:
    parts = []
    for name in perfkit.__all__:
        parts += of_name(name)
    about = (
        "The public names of `import perfkit`; all others may change. Paths are text or "
        "`Path`; relative ones start in the working directory."
    )
    return page("Python", about, *parts)


def of_name(name: str) -> list[str]:
    """Return heading, signature and docstring of a public name, and the members of a class."""
    thing = getattr(perfkit, name)
    heading = f"## {name}"
    docstring = paragraphs(thing.__doc__)
    if hasattr(thing, "model_fields"):
        return [heading, docstring, of_fields(thing)]
    if inspect.isclass(thing) and issubclass(thing, Exception):
        bases = ", ".join(base.__name__ for base in thing.__bases__)
        return [heading, f"An exception; base: `{bases}`.", docstring]
    call = block(f"perfkit.{name}{signature(thing)}")
    return [heading, call, docstring, members(thing)]


def of_fields(model: Any) -> str:
    if model is Config:
        return (
            "Its fields are `work` and the [parameters](parameters.md) of how it runs; those "
            "of a model, or of a script, are fields of `work`."
        )
    if model is Protocol:
        return "Its fields are the [parameters](parameters.md); `name` is `protocol`."
    names = ", ".join(f"`{name}`" for name in model.model_fields)
    return f"Its fields: {names}."


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
        text = name
        if not is_property:
            text += signature(plain)
        docstring = plain.__doc__ or ""
        rows.append((f"`{text}`", " ".join(docstring.split())))
    return table(("member", ""), rows)


def signature(function: Any) -> str:
    """Return the signature, with short names of types and without `self`."""
    signature = inspect.signature(function, eval_str=True)
    parameters = []
    for name, parameter in signature.parameters.items():
        if name not in ("self", "cls"):
            parameters.append(parameter)
    text = str(signature.replace(parameters=parameters))
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", text)


# Markdown.


def page(title: str, *parts: str) -> str:
    written = "<!-- Written by `make docs` from the code; change it there. -->"
    return "\n\n".join([f"# {title}", written, *filter(None, parts)]) + "\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table, or an empty text without rows."""
    lines = []
    for row in rows:
        cells = [cell(text) for text in row]
        lines.append(f"| {' | '.join(cells)} |")
    if not lines:
        return ""
    columns = [*head]
    rule = ["---"] * len(columns)
    return "\n".join([f"| {' | '.join(columns)} |", f"| {' | '.join(rule)} |", *lines])


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
