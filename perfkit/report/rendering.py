"""The templates of pages, and what they may use."""

import base64
import hashlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from perfkit.analysis.warnings import MeasurementWarning, severity, worst_first
from perfkit.report import elements
from perfkit.report.text import language

FOLDER = Path(__file__).parent / "templates"
INDENT_OR_COMMENT = re.compile(r"^ *(//.*\n|\n)?", re.MULTILINE)
"""Parts of style and scripts that serve only readers of the source."""
HEAD_LENGTH = 4096
"""Bytes at the start of a page that are searched for the warnings in its head."""
WARNINGS_IN_HEAD = re.compile(r'<meta name="warnings" content="([\w ]*)">')


def _source(name: str) -> str:
    """Return a style sheet or a script as it is put into pages."""
    text = (FOLDER / name).read_text("utf-8")
    return INDENT_OR_COMMENT.sub("", text)


def _digest(script: str) -> str:
    """Return a script's digest as a policy names it."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


STYLE = _source("style.css")
SCRIPT = _source("script.js")
INDEX_SCRIPT = _source("index.js")
POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; "
    f"script-src {_digest(SCRIPT)} {_digest(INDEX_SCRIPT)}; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)
"""Content-Security-Policy: inline style, the pages' own scripts by digest, no requests."""


def page_warnings(folder: Path) -> list[str] | None:
    """Return the warning codes stored in the head of a measurement's page, worst first; None if
    unknown. Deriving them from the raw files again would be slow."""
    try:
        with (folder / "report.html").open("rb") as stream:
            head = stream.read(HEAD_LENGTH).decode(errors="replace")
    except OSError:
        return None
    named = WARNINGS_IN_HEAD.search(head)
    if not named:
        return None
    codes = named[1].split()
    if not {*codes} <= {*MeasurementWarning.classes}:
        return None
    return worst_first(codes)


def warnings_mark(codes: Collection[str]) -> Markup:
    """Return the mark of the most severe of these warnings, which names all; empty without
    any."""
    if not codes:
        return Markup()
    mark = elements.severity_mark(severity(codes))
    layout = Markup('<span data-column="%s" title="%s">%s</span>')
    return layout % (language.gettext("Warnings"), ", ".join(codes), mark)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("perfkit.report"),
        extensions=["jinja2.ext.i18n"],
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.install_gettext_callables(language.gettext, language.ngettext, newstyle=True)  # type: ignore[attr-defined]
    environment.policies["ext.i18n.trimmed"] = True
    environment.globals |= {
        "style": Markup(STYLE),
        "script": Markup(SCRIPT),
        "index_script": Markup(INDEX_SCRIPT),
        "policy": Markup(POLICY),
    }
    return environment


TEMPLATES = _environment()


def render_page(template: str, **values: Any) -> str:
    """Render the whole of templates/<template>.html.j2 with these values."""
    return TEMPLATES.get_template(f"{template}.html.j2").render(values)
