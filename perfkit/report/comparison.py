"""The sections of an interleaved comparison's page; each raises ResultError without one."""

from functools import partial
from pathlib import Path

from perfkit.comparison.interleaved import disagreements
from perfkit.comparison.stored import InterleavedComparison, read_comparison
from perfkit.comparison.text import verdict_sentence
from perfkit.config import resolved_path
from perfkit.models import MODELS
from perfkit.report.pages import has_page, render
from perfkit.report.section import Section, picture
from perfkit.report.style import forest
from perfkit.text import format
from perfkit.text.language import gettext as _

_text = partial(render, "comparison")


def comparison_facts(folder: str | Path) -> tuple[str, str]:
    """The page's title; when the comparison was made and, if there is a pair, on what."""
    _outputs, c = _read(folder)
    words, made = [MODELS[c.model].short_name], [format.minute(c.created)]
    for keys in (pair.keys for pair in c.pairs[:1]):
        batch = _("batch %(size)s") % {"size": keys.get("batch_size", "–")}
        known = [keys.get(name) for name in ("precision", "topology", "input")]
        words += [str(word) for word in (known[0], batch, *known[1:]) if word is not None]
        facts = {f"environment.{name}": value for name, value in keys.items()}
        made += [format.device_name(facts | keys)] if "device" in keys else []
    variants = ", ".join(map(format.variant_name, c.variants))
    return f"{' · '.join(words)}: {variants}", " · ".join(made)


def comparison_headline(folder: str | Path) -> Section:
    """Each variant against the base, in a sentence and in a forest plot, or what went wrong."""
    _outputs, c = _read(folder)
    text = _text("headline", c, comparison_facts(folder)[0], verdict_sentence)
    variants = [(c.variant_of(pair), pair) for pair in c.pairs]
    rows = [(format.variant_name(variant), variant, pair) for variant, pair in variants]
    base = _("throughput / throughput of %(base)s") % {"base": format.variant_name(c.base)}
    return text + picture(forest(rows, base), base) if rows else text


def comparison_variants(folder: str | Path) -> Section:
    """Throughput, shares of the measured peaks and warnings of each variant."""
    outputs, c = _read(folder)
    pages = [variant.id for variant in c.variants if has_page(outputs / variant.id)]
    return _text("variants", c, pages)


def comparison_pairs(folder: str | Path) -> Section:
    """Work equivalence, agreement with the results, every pair, differences, the command."""
    outputs, c = _read(folder)
    return _text("pairs", c, disagreements(c, outputs))


def _read(folder: str | Path) -> tuple[Path, InterleavedComparison]:
    """The folder of outputs, and the comparison in this folder of it."""
    place = resolved_path(str(folder))
    return place.parent.parent, read_comparison(place)
