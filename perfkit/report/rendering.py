"""Templates to HTML: everything is escaped that a template does not itself write."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from perfkit.statistics import median
from perfkit.words import language, wording
from perfkit.words.recorded import recorded

FOLDER = Path(__file__).parent / "templates"

TEMPLATES = Environment(
    loader=PackageLoader("perfkit.report"),
    extensions=["jinja2.ext.i18n"],
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.install_gettext_callables(language.gettext, language.ngettext, newstyle=True)  # type: ignore[attr-defined]
TEMPLATES.policies["ext.i18n.trimmed"] = True
TEMPLATES.filters |= {
    "traits": wording.traits,
    "interval_words": wording.interval_words,
    "number": wording.number,
    "protocol_name": wording.protocol_name,
    "percent": wording.percent,
    "changes": wording.changes,
    "median": median,
    "fact_name": wording.fact_name,
    "measurement_title": wording.title,
    "translated": language.gettext,
    "recorded": recorded,
}


@dataclass(frozen=True)
class Section:
    """HTML of one section; displays itself in a notebook."""

    html: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return Markup(self.html).striptags()


def render(template: str, **context: Any) -> Section:
    return Section(TEMPLATES.get_template(template).render(context))


def write_out(template: str, **context: Any) -> str:
    """A whole page from `template`, with the site's style, script and policy.

    The policy allows the style and the very script that the page has in it, and no request.
    """
    style, script = (FOLDER / "style.css").read_text(), (FOLDER / "script.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return TEMPLATES.get_template(template).render(
        context,
        style=Markup(style),
        script=Markup(script),
        policy=Markup(policy),
        language=language.current(),
        languages=language.LANGUAGES,
        file_name=language.file_name,
    )
