"""The current language and its catalogue.

`languages/<language>.po` translates the English text of notebooks, templates and charts.
Failures, and foreign text in results (facts, labels), are not translated.
"""

import gettext as standard
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

LANGUAGES = {"en": "English", "zh": "中文"}
CATALOGUES = Path(__file__).parent / "languages"

_current = ["en"]


def set_language(language: str) -> None:
    """Show everything in `language`, a key of LANGUAGES, from now on."""
    if language not in LANGUAGES:
        known = " or ".join(map(repr, LANGUAGES))
        raise ValueError(f"lang: {language!r} is not a language of this report; use {known}")
    _current[-1] = language


@contextmanager
def in_language(language: str) -> Iterator[None]:
    """Show everything in `language` within the block."""
    _current.append("en")
    try:
        set_language(language)
        yield
    finally:
        _current.pop()


def current() -> str:
    return _current[-1]


def translations() -> standard.NullTranslations:
    """Return the catalogue of the current language."""
    return _translation(current())


def gettext(text: str) -> str:
    # The empty text is the key of the catalogue's header.
    return translations().gettext(text) if text else ""


def ngettext(singular: str, plural: str, count: int) -> str:
    return translations().ngettext(singular, plural, count)


def enumerated(texts: Iterable[str]) -> str:
    """Return the texts in one line, separated as the language separates items."""
    return gettext(", ").join(texts)


def labelled(label: str, text: str) -> str:
    """Return a text after its label: "input: synthetic"."""
    return gettext("%(label)s: %(text)s") % {"label": label, "text": text}


@cache
def _translation(language: str) -> standard.NullTranslations:
    if language == "en":
        return standard.NullTranslations()
    # Babel is needed only here; a machine without a network may not have it.
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    compiled = io.BytesIO()
    with (CATALOGUES / f"{language}.po").open("rb") as stream:
        write_mo(compiled, read_po(stream, locale=language))
    compiled.seek(0)
    return standard.GNUTranslations(compiled)


def file_name(stem: str, language: str = "") -> str:
    """Return a page's file name in `language` (default: the current language): `report.html` in
    English, `report.zh.html` in Chinese."""
    language = language or current()
    return f"{stem}.html" if language == "en" else f"{stem}.{language}.html"
