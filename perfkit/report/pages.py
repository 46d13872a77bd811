"""A page is the notebook with its outputs, converted by nbconvert.

The cells tagged `show` of the suite's notebooks are evaluated from what is stored, without a
kernel, so that a page comes out the same right after the measurement, after a crash, or on
another machine years later. A notebook of the user's own has cells besides, whose outputs are
taken from its last run.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from nbconvert import TemplateExporter
from nbconvert.preprocessors.sanitize import SanitizeHTML
from nbformat import NotebookNode

from perfkit import report
from perfkit.comparison.keys import beside
from perfkit.config import ROOT
from perfkit.models import MODELS
from perfkit.report.section import Section, markup, severity_mark, table
from perfkit.report.style import COLOURS, INK
from perfkit.results.store import NOTEBOOK, write_atomically
from perfkit.statistics import median
from perfkit.text import format, language, messages
from perfkit.text.language import gettext as _

TAGS = (
    "a abbr b blockquote br caption code dd details div dl dt em h1 h2 h3 h4 hr i li ol p pre "
    "small span strong sub summary sup table tbody td th thead tr ul"
)
"""Elements that an output of a cell of the user's own may have."""
ATTRIBUTES = {"a": ["href"], "td": ["colspan", "rowspan"], "th": ["colspan", "rowspan"]}
UNSEEN = re.compile(r"<(style|script)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
OWN = "perfkit_own"
"""The metadata of a stored notebook of the user's own."""
HEAD_LENGTH = 4096
"""How far into a page the warnings in its head are looked for, in characters."""
WARNINGS_IN_HEAD = re.compile(r'<meta name="warnings" content="([\w ]*)">')
TEMPLATE_FOLDER = Path(__file__).parent / "templates"
STYLE = (TEMPLATE_FOLDER / "style.css").read_text(encoding="utf-8")
SCRIPT = (TEMPLATE_FOLDER / "script.js").read_text(encoding="utf-8")
DIGEST = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{DIGEST}'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)
"""The policy allows the style and the very script that a page has in it, and no request."""
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
TEMPLATES.filters |= {"translated": language.gettext, "variant_name": format.variant_name}
TEMPLATES.globals |= {
    "COLOURS": COLOURS,
    "INK": INK,
    "MODELS": MODELS,
    "beside": beside,
    "coded": messages.coded,
    "file_name": language.file_name,
    "language": language,
    "mark": severity_mark,
    "median": median,
    "page": {"style": Markup(STYLE), "script": Markup(SCRIPT), "policy": Markup(POLICY)},
    "sentence": messages.sentence,
    "severity": messages.severity,
    "table": lambda *cells: Markup(table(*cells).html),
    "text": format,
    "worst_first": messages.worst_first,
}


def render(template: str, macro: str, **context: Any) -> Section:
    """The macro of templates/<template>.html.j2 as a section."""
    module = TEMPLATES.get_template(f"{template}.html.j2").module
    return markup(getattr(module, macro)(**context))


def evaluated(
    notebook: NotebookNode,
    names: Mapping[str, Any],
    parameters: Mapping[str, Any],
    *,
    png: bool,
    heading: str = "",
) -> NotebookNode:
    """A copy of the notebook whose parameters have these values and whose show cells have
    their outputs, with headings in the current language. A cell tagged `show` is one
    expression over `names`; other cells keep their outputs. With `png`, figures are PNG too,
    for a notebook that is kept; `heading` takes the place of the first heading."""
    cells = []
    for cell in notebook.cells:
        copy = NotebookNode(cell)
        tags = _tags(cell)
        if cell.cell_type == "markdown":
            marks, _space, text = cell.source.partition(" ")
            copy.source = f"{marks} {_(text)}"
            if marks == "#" and heading:
                _first, line_end, rest = cell.source.partition("\n")
                copy.source, heading = f"# {heading}{line_end}{rest}", ""
        elif "parameters" in tags:
            copy.source = "\n".join(f"{name} = {v!r}" for name, v in parameters.items())
        elif "show" in tags:
            section = eval(compile(cell.source, "show", "eval"), {"report": report, **names})
            copy.outputs = [nbformat.from_dict(one) for one in section.outputs(png=png)]
        cells.append(copy)
    return NotebookNode(notebook | {"cells": cells})


@cache
def suite_notebook(name: str) -> NotebookNode:
    """notebooks/<name>.ipynb of the checkout."""
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def keep_own_notebook(executed: Path, folder: Path) -> None:
    """Keep a notebook of the user's own, after its run, as the source of the page there."""
    notebook = nbformat.read(executed, as_version=4)
    notebook.metadata[OWN] = True
    write_atomically(folder / NOTEBOOK, nbformat.writes(notebook))


def source_notebook(folder: Path, name: str) -> NotebookNode:
    """The notebook of the page in the folder: notebooks/<name>.ipynb or, if that in the folder
    is the user's own, that one, its outputs without scripts and the like. Of its cells only
    those of the suite's notebook are tagged `show`, and may be evaluated: it may come from
    anywhere."""
    suite = suite_notebook(name)
    try:
        text = (folder / NOTEBOOK).read_text(encoding="utf-8")
        # To read it as a notebook takes longer than all the rest of a page.
        if f'"{OWN}"' not in text:
            return suite
        notebook = nbformat.reads(text, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError):
        return suite
    known = {cell.source for cell in suite.cells if "show" in _tags(cell)}
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source not in known:
            cell.metadata["tags"] = [tag for tag in _tags(cell) if tag != "show"]
        for output in cell.get("outputs", []):
            if html := output.get("data", {}).get("text/html"):
                # The sanitizer takes the elements away, and would leave what is in them.
                output.data["text/html"] = re.sub(UNSEEN, "", html)
    sanitizer = SanitizeHTML(enabled=True, strip=True, tags=TAGS.split(), attributes=ATTRIBUTES)
    return sanitizer.preprocess(notebook, {})[0]


def _tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


@cache
def _exporter() -> TemplateExporter:
    """Not nbconvert's HTMLExporter, which parses and mends each page anew. Without
    preprocessors, each of which has the whole notebook validated."""
    return TemplateExporter(
        template_name="notebook",
        template_file="index.html.j2",
        file_extension=".html",
        extra_template_basedirs=[str(TEMPLATE_FOLDER)],
        default_preprocessors=[],
    )


PLANNED: set[Path] = set()
"""The folders that will have a page when the whole site is written."""


def has_page(folder: Path) -> bool:
    """Whether the folder has a page in the current language or, while the whole site is
    written, will have it, so that others may link to it."""
    return folder in PLANNED or (folder / language.file_name("report")).exists()


def site_links(outputs: Path, folder: Path, here: str = "") -> list[tuple[str, str]]:
    """The header's links from a page in `folder` to the site's pages that there are, as name
    and address; the address of the page `here` itself is empty."""
    places = {
        "index": (_("All measurements"), "index", ""),
        "summary": (_("Summary"), "summary/report", ""),
        "published": (_("Published tables"), "published/report", ""),
        "history": (_("History"), "history/report", ""),
        "comparisons": (_("Comparisons"), "index", "#comparisons"),
        "audits": (_("Audits"), "index", "#audits"),
    }
    root = "../" * len(folder.relative_to(outputs).parts)
    found = []
    for place, (name, stem, anchor) in places.items():
        exists = (outputs / place).is_dir() if anchor else has_page(outputs / place)
        if exists or place in {here, "index"}:
            address = f"{root}{language.file_name(stem)}{anchor}"
            found.append((name, "" if place == here else address))
    return found


def write_page(
    folder: Path,
    shown: NotebookNode | Markup,
    *,
    outputs: Path,
    here: str = "",
    files: Sequence[str] = (),
    keep: bool = False,
    **page: Any,
) -> None:
    """Write report.html, in the current language, of an evaluated notebook (inputs hidden) or
    of HTML into `folder`, which lies below `outputs`. It links to those of the `files` that
    exist. The notebook is kept beside it if asked for. `here` is that of `site_links`, `page`
    has more for layout.html.j2: its title, when and on what it was `made`, and `facts` for the
    page's head, by name."""
    if isinstance(shown, NotebookNode):
        content = Markup(_exporter().from_notebook_node(shown)[0])
    else:
        content = shown
    text = TEMPLATES.get_template("layout.html.j2").render(
        page,
        stem="report",
        links=site_links(outputs, folder, here),
        files=[n for n in files if (folder / n).exists() or (keep and n == NOTEBOOK)],
        content=content,
    )
    write_atomically(folder / language.file_name("report"), text)
    if keep and isinstance(shown, NotebookNode):
        for output in (output for cell in shown.cells for output in cell.get("outputs", [])):
            if "image/png" in output.data:
                # Viewers show either, and no SVG in a notebook that is not trusted.
                del output.data["image/svg+xml"]
        write_atomically(folder / NOTEBOOK, nbformat.writes(shown))


def write_unreadable(folder: Path, outputs: Path, reason: str) -> None:
    """Put the reason in the place of the pages that a result had while it could be read."""
    for code in language.LANGUAGES:
        if (folder / language.file_name("report", code)).exists():
            with language.in_language(code):
                title = _("This result can't be read")
                shown = Markup("<h1>%s</h1>\n<p>%s</p>") % (title, reason)
                write_page(folder, shown, outputs=outputs, title=title)


def page_warnings(page: Path) -> list[str] | None:
    """The codes of the warnings on a measurement's page, the worst first, as they are stored in
    its head: to judge the steps again takes all raw files. None where they are unknown."""
    if not page.exists():
        return None
    with page.open(encoding="utf-8", errors="replace") as stream:
        found = WARNINGS_IN_HEAD.search(stream.read(HEAD_LENGTH))
    codes = found[1].split() if found else ["unknown"]
    return messages.worst_first(codes) if {*codes} <= {*messages.WARNINGS} else None
