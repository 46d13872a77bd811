"""HTML pages from the headings, text and outputs of notebooks, with nbconvert's filters.

Sections of cells tagged `show` in the suite's notebooks are made from stored results, without a
kernel: a page is the same right after the measurement, after a crash, and on another machine
years later. A user's notebook may have more cells; their outputs are those of its last run.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nbformat
from click import unstyle
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from nbformat import NotebookNode

from perfkit import report
from perfkit.analysis.comparison import blocks
from perfkit.analysis.comparison.keys import format_pair
from perfkit.analysis.comparison.verdicts import VERDICTS as PAIR_VERDICTS
from perfkit.analysis.diagnosis import FILE as DIAGNOSIS
from perfkit.analysis.diagnosis import VERDICTS, read_diagnosis
from perfkit.analysis.published import FRAMEWORK_NAMES, labels
from perfkit.analysis.published.matches import difference_words
from perfkit.analysis.warning_types import MeasurementWarning, severity, worst_first
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.models import find_model, model_named, model_of
from perfkit.core.paths import ROOT
from perfkit.core.results.frames import topology_size
from perfkit.core.results.store import (
    NOTEBOOK,
    ResultError,
    open_stored,
    read_file,
    write_atomically,
)
from perfkit.core.statistics import median
from perfkit.core.steady import PUBLISHED_STEPS
from perfkit.report.audit_text import claim_counts
from perfkit.report.section import LEFT, RIGHT, Section, markup, severity_mark, table
from perfkit.report.style import INK
from perfkit.report.text import language, names
from perfkit.report.text.language import file_name
from perfkit.report.text.language import gettext as _
from perfkit.report.text.statements import sentence

TAGS = {
    *("a", "abbr", "b", "blockquote", "br", "caption", "code", "dd", "details", "div", "dl"),
    *("dt", "em", "h1", "h2", "h3", "h4", "hr", "i", "img", "li", "ol", "p", "pre", "small"),
    *("span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "th", "thead", "tr"),
    "ul",
}
"""HTML elements allowed in text and outputs of a user's cells."""
ATTRIBUTES = {
    "*": {"class", "id"},
    "a": {"href"},
    "img": {"alt", "src"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan"},
}
"""Attributes allowed in these elements."""
LINK_SCHEMES = {"http", "https", "mailto"}
"""Schemes allowed in links; images, which the page's policy keeps to `data`, have it too."""
IGNORED_IN_ADDRESSES = re.compile(r"[\x00-\x20]")
"""Characters that browsers ignore in the scheme of an address."""
SHOWN_TYPES = {"text/html", "text/plain", "image/png"}
"""Types of a user's output that pages show."""
ALIGNED = re.compile(f'(<t[dh]) style="(?:{LEFT}|({RIGHT}))"')
"""A table cell with the inline style that it needs in a notebook, without a style sheet."""
SHOW_CELL = re.compile(r"report\.(\w+)\((\w+)\)")
"""Source of a show cell: a function of perfkit.report, called with one name."""
OWN = "perfkit_own"
"""Metadata key that marks a stored notebook as the user's."""
HEAD_LENGTH = 4096
"""Bytes at the start of a page that are searched for the warnings in its head."""
WARNINGS_IN_HEAD = re.compile(r'<meta name="warnings" content="([\w ]*)">')
INDENT_OR_COMMENT = re.compile(r"^ *(//.*\n|\n)?", re.MULTILINE)
"""Parts of style and scripts that serve only readers of the source."""
STYLE, SCRIPT, INDEX_SCRIPT = (
    INDENT_OR_COMMENT.sub("", (Path(__file__).parent / "templates" / name).read_text("utf-8"))
    for name in ("style.css", "script.js", "index.js")
)
DIGESTS = " ".join(
    f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    for script in (SCRIPT, INDEX_SCRIPT)
)
POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src {DIGESTS}; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)
"""Content-Security-Policy: inline style, the pages' own scripts by digest, no requests."""
TEMPLATES = Environment(
    loader=PackageLoader("perfkit.report"),
    extensions=["jinja2.ext.i18n", "jinja2.ext.do"],
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.install_gettext_callables(language.gettext, language.ngettext, newstyle=True)  # type: ignore[attr-defined]
TEMPLATES.policies["ext.i18n.trimmed"] = True
TEMPLATES.filters |= {"translated": language.gettext, "variant_name": names.variant_name}


@dataclass(frozen=True)
class Site:
    """The pages of an outputs folder, for links between them. While all pages are being
    written, `planned` has the folders below `outputs` that get one. `diagnosed` has the ids of
    measurements with synthetic input -> the folders of the diagnoses that used them."""

    outputs: Path
    planned: frozenset[str] = frozenset()
    diagnosed: Mapping[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, outputs: Path, planned: Iterable[Path] = ()) -> "Site":
        """Return the site in `outputs` with the diagnoses stored there."""
        diagnosed: dict[str, list[str]] = {}
        for file in sorted(outputs.glob(f"*/{DIAGNOSIS}")):
            with suppress(ResultError):
                if diagnosis := read_diagnosis(file.parent):
                    diagnosed.setdefault(diagnosis.synthetic_id, []).append(file.parent.name)
        names = frozenset(folder.relative_to(outputs).as_posix() for folder in planned)
        return cls(outputs, names, diagnosed)

    def has_page(self, folder: str) -> bool:
        """Whether the folder below `outputs` has a page in the current language, or will."""
        page = self.outputs / folder / file_name("report")
        return folder in self.planned or page.exists()

    def address(self, folder: str) -> str:
        """Return the address of the page in this folder below `outputs`, relative to the page
        in a sibling folder; empty if there is no page."""
        return f"../{quote(folder)}/{file_name('report')}" if self.has_page(folder) else ""


def sanitized(html: str) -> str:
    """Return a user's HTML without scripts, styles, and elements, attributes and addresses that
    are not allowed."""
    # Most pages have no user's cells and need no sanitizer.
    import nh3

    return nh3.clean(
        html,
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=_without_data_link,
        url_schemes=LINK_SCHEMES | {"data"},
        link_rel=None,
    )


def _without_data_link(_element: str, attribute: str, value: str) -> str | None:
    """Return an attribute's value, but None for a link to a document within the link, which
    could have scripts. Addresses have an allowed scheme or none."""
    address = IGNORED_IN_ADDRESSES.sub("", value).lower()
    return None if attribute == "href" and address.startswith("data:") else value


def markdown2html(source: str) -> str:
    """Convert Markdown of a user's cell and sanitize the result: sanitizing the source would
    escape its quotations and code."""
    # The import takes longer than the conversion, and most pages have no such cell.
    from nbconvert.filters import markdown2html

    return sanitized(str(markdown2html(source)))


TEMPLATES.filters |= {"markdown2html": markdown2html, "strip_ansi": unstyle}


def render(
    template: str, macro: str, page_folder: Path | None, *values: Any, **named: Any
) -> Section:
    """Render a macro of templates/<template>.html.j2 with these values, for a page in
    `page_folder`."""
    module = TEMPLATES.get_template(f"{template}.html.j2").module
    return markup(getattr(module, macro)(*values, **named), page_folder)


def page_warnings(page: Path) -> list[str] | None:
    """Return the warning codes stored in the head of a measurement's page, worst first; None if
    unknown. Deriving them from the raw files again would be slow."""
    try:
        with open_stored(page) as stream:
            found = WARNINGS_IN_HEAD.search(stream.read(HEAD_LENGTH).decode(errors="replace"))
    except OSError:
        return None
    codes = found[1].split() if found else ["unknown"]
    return worst_first(codes) if {*codes} <= {*MeasurementWarning.classes} else None


FUNCTIONS = (
    *(difference_words, file_name, format_pair, labels, median),
    *(sentence, severity, worst_first),
    *(claim_counts, page_warnings, topology_size),
)
"""Functions that templates call by name."""
TEMPLATES.globals |= {function.__name__: function for function in FUNCTIONS} | {
    "FRAMEWORKS": FRAMEWORKS,
    "FRAMEWORK_NAMES": FRAMEWORK_NAMES,
    "INK": INK,
    "find_model": find_model,
    "model_named": model_named,
    "model_of": model_of,
    "PAIR_VERDICTS": PAIR_VERDICTS,
    "PUBLISHED_STEPS": PUBLISHED_STEPS,
    "VERDICTS": VERDICTS,
    "language": language,
    "mark": severity_mark,
    "page": {
        "style": Markup(STYLE),
        "script": Markup(SCRIPT),
        "index_script": Markup(INDEX_SCRIPT),
        "policy": Markup(POLICY),
    },
    "row_title": blocks.title,
    "table": lambda *cells: Markup(table(*cells).html),
    "text": names,
}


@cache
def suite_notebook(name: str) -> NotebookNode:
    """Read notebooks/<name>.ipynb of the checkout."""
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def keep_own_notebook(executed: Path, folder: Path) -> None:
    """Store a user's executed notebook as the source of the page in `folder`."""
    notebook = nbformat.read(executed, as_version=4)
    notebook.metadata[OWN] = True
    write_atomically(folder / NOTEBOOK, nbformat.writes(notebook))


def source_notebook(folder: Path, name: str) -> NotebookNode:
    """Return the notebook that is the source of the page in `folder`: the user's notebook
    stored there, its outputs sanitized, or else notebooks/<name>.ipynb. A user's notebook may
    come from anywhere, so only cells with the source of a suite's cell keep the tag `show`,
    which has them called."""
    suite = suite_notebook(name)
    try:
        text = read_file(folder / NOTEBOOK).decode()
        # Parsing the notebook would take longer than the rest of the page.
        if f'"{OWN}"' not in text:
            return suite
        notebook = nbformat.reads(text, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError):
        return suite
    known = {cell.source for cell in suite.cells if "show" in _tags(cell)}
    for cell in notebook.cells:
        if cell.source not in known:
            cell.metadata["tags"] = [tag for tag in _tags(cell) if tag != "show"]
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data = _sanitized_data(output.data)
    return notebook


def _sanitized_data(data: NotebookNode) -> NotebookNode:
    """Return the data of a user's output in the types that pages show, its HTML sanitized."""
    shown = NotebookNode({name: data[name] for name in data if name in SHOWN_TYPES})
    if "text/html" in shown:
        shown["text/html"] = sanitized(shown["text/html"])
    return shown


def _tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def write_notebook(
    folder: Path,
    notebook: NotebookNode,
    names: Mapping[str, Any],
    parameters: Mapping[str, Any],
    heading: str,
    *,
    keep: bool,
    **page: Any,
) -> None:
    """Write the page of a notebook by `write_page`, without inputs, in the current language.

    Cells tagged `show`, each a call with one of `names`, are called; other cells keep their
    outputs. `heading` replaces the first heading. With `keep`, also writes the notebook into
    the folder, with these parameters and its figures as PNG."""
    cells = []
    for cell in notebook.cells:
        copy, tags = NotebookNode(cell), _tags(cell)
        if cell.cell_type == "markdown":
            marks, _space, text = cell.source.partition(" ")
            copy.source = f"{marks} {_(text)}"
            if marks == "#" and heading:
                _first, line_end, rest = cell.source.partition("\n")
                copy.source, heading = f"# {heading}{line_end}{rest}", ""
        elif "parameters" in tags:
            copy.source = "\n".join(f"{name} = {v!r}" for name, v in parameters.items())
        elif cell.cell_type == "code" and "show" in tags:
            outputs = _shown(cell.source, names).outputs(png=keep)
            copy.outputs = [nbformat.from_dict(output) for output in outputs]
        cells.append(copy)
    content = TEMPLATES.get_template("notebook.html.j2").render(cells=cells)
    by_style_sheet = ALIGNED.sub(
        lambda cell: cell[1] + (' class="right"' if cell[2] else ""), content.lstrip()
    )
    if keep:
        for output in (output for cell in cells for output in cell.get("outputs", [])):
            if "image/png" in output.data:
                # Viewers show no SVG in untrusted notebooks.
                del output.data["image/svg+xml"]
        kept = NotebookNode(notebook | {"cells": cells})
        write_atomically(folder / NOTEBOOK, nbformat.writes(kept))
    write_page(folder, Markup(by_style_sheet), **page)


def _shown(source: str, names: Mapping[str, Any]) -> Section:
    """Return the section of a show cell, such as `report.headline(measurement)`."""
    call = SHOW_CELL.fullmatch(source)
    assert call, f"not a show cell: {source}"
    function, argument = call.groups()
    section: Section = getattr(report, function)(names[argument])
    return section


def write_page(
    folder: Path,
    content: Markup,
    *,
    site: Site,
    here: str = "",
    files: Sequence[str] = (),
    **page: Any,
) -> None:
    """Write HTML as report.html, in the current language, into a `folder` of the site.
    `here` is the page's entry in the site's navigation. The page links to the `files` that
    exist. `page` has further variables of layout.html.j2: `title`, `made` (time and devices)
    and `facts` (meta elements by name)."""
    text = TEMPLATES.get_template("layout.html.j2").render(
        page,
        stem="report",
        here=here,
        site=site,
        folder=folder,
        files=[name for name in files if (folder / name).exists()],
        content=content,
    )
    write_atomically(folder / file_name("report"), text)


def write_unreadable(folder: Path, site: Site, reason: str) -> None:
    """Write the reason why a result can't be read as its page, to which other pages link."""
    for code in language.LANGUAGES:
        with language.in_language(code):
            title = _("This result can't be read")
            shown = Markup("<h1>%s</h1>\n<p>%s</p>") % (title, reason)
            write_page(folder, shown, site=site, title=title)
