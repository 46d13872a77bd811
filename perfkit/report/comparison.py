"""The sections of an interleaved comparison's page; each raises ResultError without one."""

from functools import partial
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from perfkit.comparison.keys import beside
from perfkit.comparison.live.stored import LiveComparison, LiveSide, read_comparison
from perfkit.comparison.live.verdict import disagreements
from perfkit.config import resolved_path
from perfkit.models import MODELS
from perfkit.report.pages import has_page, render
from perfkit.report.section import Section, columns, picture, severity_mark, table
from perfkit.report.style import forest
from perfkit.statistics import fewest_values
from perfkit.text import format, language, messages
from perfkit.text.language import gettext as _


def comparison_facts(folder: str | Path) -> tuple[str, str]:
    """The page's title; when the comparison was made and, if there is a pair, on what."""
    c = _read(folder)[1]
    facts = [{f"environment.{k}": v for k, v in p.keys.items()} | p.keys for p in c.pairs[:1]]
    made = " · ".join([format.minute(c.created), *map(format.device_name, facts)])
    words = [MODELS[c.model].short_name]
    for keys in (pair.keys for pair in c.pairs[:1]):
        words += [
            str(keys[name]) for name in ("precision", "topology", "input") if name in keys
        ]
        words.insert(2, _("batch %(size)s") % {"size": keys.get("batch_size", "–")})
    variants = ", ".join(map(variant_name, c.sides))
    return f"{' · '.join(words)}: {variants}", made


def comparison_headline(folder: str | Path) -> Section:
    """Each variant against the base, in a sentence and in a forest plot, or what went wrong."""
    c, (title, _made) = _read(folder)[1], comparison_facts(folder)
    text = _text(part="headline", c=c, title=title, enough=fewest_values(c.level))
    rows = [(variant_name(c.side_of(pair)), c.side_of(pair), pair) for pair in c.pairs]
    label = _("throughput / throughput of %(base)s") % {"base": variant_name(c.base)}
    return text + picture(forest(rows, label), label) if rows else text


def comparison_variants(folder: str | Path) -> Section:
    """Throughput, shares of the measured peaks and warnings of each variant."""
    outputs, c = _read(folder)
    page = language.file_name("report", language.current())

    def linked(side: LiveSide, *_number: object) -> str:
        name = variant_name(side) + (f" ({_('base')})" if side is c.base else "")
        link = Markup('<a href="../../%s/%s">%s</a>') % (quote(side.id), page, name)
        return link if has_page(outputs / side.id) else name

    cells = {
        _("Variant"): linked,
        _("Throughput"): lambda s, n: n and f"{format.number(n.value)} {n.unit}",
        _("Interval"): lambda s, n: n and format.interval(*n.interval or (None, None)),
        _("Level"): lambda s, n: n and format.percent(n.interval_level, 4),
        _("Repeats"): lambda s, n: n and n.n,
        _("Share of measured peak"): lambda s, n: format.peak_share(s.of_own_ceiling),
        _("Share of highest peak"): lambda s, n: format.peak_share(s.of_highest_ceiling),
        _("Warnings"): lambda s, n: n and _warnings(n.warnings),
    }
    sides = [(side, side.number) for side in c.sides]
    return table(columns(sides, cells)) + _text(part="peak", c=c)


def _warnings(codes: list[str]) -> Markup:
    mark = severity_mark(messages.severity(codes))
    return Markup("%s %s") % (mark, ", ".join(messages.worst_first(codes)) or _("none"))


def comparison_pairs(folder: str | Path) -> Section:
    """Work equivalence, agreement with the results, every pair, differences, the command."""
    outputs, c = _read(folder)
    cells = {
        _("Variant"): lambda v, t: v,
        _("Pair"): lambda v, t: t.repeat,
        _("Throughput of the base"): lambda v, t: format.number(t.a),
        _("Throughput"): lambda v, t: format.number(t.b),
        _("Ratio"): lambda v, t: format.number(t.ratio),
        _("Started (UTC)"): lambda v, t: f"{t.a_began or '–':.19} / {(t.b_began or '')[11:19]}",
        _("Interleaved"): lambda v, t: _("yes") if t.in_turn else _("no"),
    }
    turns = [(variant_name(c.side_of(pair)), turn) for pair in c.pairs for turn in pair.turns]
    every = Markup(table(columns(turns, cells)).html)
    return _text(part="pairs", c=c, every=every, trouble=disagreements(c, outputs))


def _read(folder: str | Path) -> tuple[Path, LiveComparison]:
    """The folder of outputs, and the comparison in this folder of it."""
    place = resolved_path(str(folder))
    return place.parent.parent, read_comparison(place)


def variant_name(side: LiveSide) -> str:
    """PyTorch for framework=torch; any other variant as it was typed."""
    only = side.values.get("framework") if len(side.values) == 1 else None
    return format.FRAMEWORK_NAMES.get(str(only), side.name)


_text = partial(render, "comparison.html.j2", name=variant_name, text=format, beside=beside)
