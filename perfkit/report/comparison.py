"""A comparison, of stored measurements or of interleaved repeats, as a section."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from perfkit.analysis.comparison.interleaved import disagreements
from perfkit.analysis.comparison.keys import (
    KEYS,
    Differences,
    KeyValue,
    format_pair,
    rarely_telling,
    telling,
)
from perfkit.analysis.comparison.stored import (
    ComparedNumber,
    Comparison,
    InterleavedComparison,
    PairResult,
    SelectedComparison,
    Selection,
    Unmeasured,
    Variant,
    read_comparison,
)
from perfkit.analysis.ratios import Method, Turn
from perfkit.analysis.script_arguments import arguments_text, own_options
from perfkit.analysis.verdicts import are_few
from perfkit.analysis.warnings import severity, worst_first
from perfkit.measuring.format import (
    amount,
    minute,
    number,
    percent,
    plain,
    rate_text,
)
from perfkit.measuring.paths import outputs_path
from perfkit.measuring.statements import N_
from perfkit.report.blocks import Inline, NumberHeading
from perfkit.report.elements import (
    bullets,
    code,
    command,
    foreign,
    joined,
    link,
    more,
    note,
    paragraph,
    part,
    severity_mark,
    strong,
    table,
    title,
    verdict_mark,
)
from perfkit.report.links import Site
from perfkit.report.profile import profile_difference
from perfkit.report.section import Section, folded, picture
from perfkit.report.style import ForestRow, forest
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext
from perfkit.report.text.names import (
    comparison_title,
    peak_share,
    variant_name,
    variant_names,
)
from perfkit.report.text.wording import device_name, long_title
from perfkit.report.verdicts import (
    WORDS,
    caution_words,
    ratio_words,
    verdict_line,
    verdict_name,
    verdict_words,
)
from perfkit.report.words import machine_words
from perfkit.training.frameworks import FRAMEWORKS

MOST_NAMES = 10
"""Most measurements without a partner that are listed; the JSON has all."""
METHODS: dict[Method, str] = {
    "pairs": N_(
        "The repeats were interleaved: a ratio is the median of the ratios of repeat k to "
        "repeat k, which ran directly before or after it; its interval lies between two of "
        "these and holds for any distribution. Drift slower than a pair affects both repeats "
        "and cancels."
    ),
    "Hodges-Lehmann": "B / A is the median of all ratios of a repeat of B to a repeat of A "
    "(Hodges and Lehmann), not the ratio of the medians; its interval is that of the "
    "Mann-Whitney test. The repeats were not interleaved: the interval does not cover drift of "
    "the machine between A and B.",
    "median": "The published number has no interval: B / A has the interval of the measured "
    "median alone. Facts that the source does not state, such as versions, may differ.",
}
"""How a ratio is computed; pages have interleaved pairs alone."""
PAIR_NAMES: dict[str, Callable[[KeyValue], str]] = {
    "model": lambda model: long_title(str(model)),
    "framework": lambda framework: FRAMEWORKS[str(framework)].display_name,
    "precision": str,
    "device": lambda device: str(device).upper(),
    "topology": str,
    "batch_size": lambda size: f"batch {size}",
    "input": str,
}
"""Keys that name a pair, the most important first, and their text."""


# Stored measurements.


def selected_comparison(comparison: SelectedComparison) -> Section:
    """The verdict on B beside A, or a table of several pairs, and in what they differ."""
    pairs = comparison.pairs
    section = Section()
    if len(pairs) == 1:
        section += _single_pair(pairs[0], comparison)
    elif pairs:
        section += paragraph(strong(_counts(comparison))) + _pairs_table(comparison)
    section += bullets(_notes(comparison))
    for each in comparison.failed:
        section += paragraph(_without_number(each))
    section += _alone("A", comparison.alone_a) + _alone("B", comparison.alone_b)
    section += _selected("A", comparison.a) + _selected("B", comparison.b)
    return section + _method(comparison)


def _single_pair(pair: PairResult, comparison: SelectedComparison) -> Section:
    """Return the verdict on a pair, its numbers, and the machine's rates beside them."""
    section = _verdict(comparison, pair, "A", "B")
    section += paragraph(_pair_name(pair.keys, PAIR_NAMES))
    rows = [_side_row("A", pair.a), _side_row("B", pair.b)]
    headings = ["", "Measurement", "Throughput", "Repeats", "Warnings"]
    section += table(rows, headings, as_cards=True)
    for rate in pair.rates:
        ratio = ratio_words(rate, comparison.level)
        section += paragraph(f"{rate.name} of the machine: {ratio}")
    return section + paragraph(machine_words(pair.rates))


def _side_row(name: str, side: ComparedNumber) -> list[Any]:
    throughput = rate_text(side.value, side.unit, *(side.interval or ()))
    repeats = _repeats(side) or "published"
    return [name, side.name, throughput, repeats, _warnings(side) if side.n else ""]


def _repeats(side: ComparedNumber) -> str:
    """Return the number of repeats, of those requested if some lack; empty for a published
    number."""
    if side.status == "partial":
        return f"{side.n} of {side.repeats}"
    return str(side.n or "")


def _counts(comparison: SelectedComparison) -> str:
    """Return how many pairs have each verdict."""
    counts = Counter(pair.verdict for pair in comparison.pairs)
    parts = []
    for verdict in WORDS:
        if verdict in counts:
            parts.append(f"{counts[verdict]} {verdict_name(verdict, comparison.threshold)}")
    regressed = sum(pair.regressed for pair in comparison.pairs)
    regressions = f"{amount(regressed, 'regression')} over {percent(comparison.threshold)}"
    return f"{len(comparison.pairs)} pairs: {', '.join(parts)}; {regressions}"


def _pairs_table(comparison: SelectedComparison) -> Section:
    """Return a row for each pair."""
    rows: list[list[Any]] = []
    names = _pair_names(comparison.pairs)
    for name, pair in zip(names, comparison.pairs, strict=True):
        numbers = [number(pair.a.value), number(pair.b.value)]
        words = verdict_words(pair, comparison.level, comparison.threshold)
        verdict = joined([verdict_mark(pair.verdict), words])
        rows.append([name, *numbers, ratio_words(pair, comparison.level), verdict])
    units = sorted({pair.a.unit for pair in comparison.pairs})
    headings = ["Pair", "A", "B", "B / A", "Verdict"]
    medians = note(f"A and B are medians in {', '.join(units)}.")
    return table(rows, headings, as_cards=True) + medians


def _pair_names(pairs: list[PairResult]) -> list[str]:
    """Return each pair's name by the keys in which they differ, or by its measurements if that
    doesn't tell them apart."""
    keys = []
    for key in dict.fromkeys([*PAIR_NAMES, *KEYS]):
        values = {pair.keys.get(key) for pair in pairs}
        if len(values) > 1:
            keys.append(key)
    every = [str(pair.keys.get("arguments") or "") for pair in pairs]
    names = [_pair_name(_with_own_arguments(pair.keys, every), keys) for pair in pairs]
    if len({*names}) < len(pairs):
        return [f"{pair.a.name} | {pair.b.name}" for pair in pairs]
    return names


def _pair_name(values: Mapping[str, KeyValue], keys: Iterable[str]) -> str:
    """Return these keys of a pair as a short name."""
    names = []
    for key in keys:
        value = values.get(key)
        if value is not None:
            names.append(PAIR_NAMES[key](value) if key in PAIR_NAMES else f"{key} {value}")
    return plain(", ".join(names))


def _with_own_arguments(
    keys: Mapping[str, KeyValue], every: list[str]
) -> Mapping[str, KeyValue]:
    """Return the keys of a pair of scripts with the arguments that not `every` pair has."""
    if "arguments" not in keys:
        return keys
    own = own_options(str(keys["arguments"] or ""), every)
    return {**keys, "arguments": arguments_text(" ".join(own)) or "–"}


def _notes(comparison: SelectedComparison) -> list[Inline]:
    """Return in what the pairs differ and what casts doubt on them, each once with the number
    of its pairs."""
    pairs = comparison.pairs
    counts: Counter[Inline] = Counter()
    for pair in pairs:
        counts.update(_differences(telling(pair.across | pair.differs)))
        counts.update(_rarely_telling(pair))
        if len(pairs) > 1:
            caution = caution_words({"A": pair.a, "B": pair.b})
            told = [_same_work(pair), machine_words(pair.rates), caution]
            counts.update(filter(None, told))
    notes: list[Inline] = []
    for text, count in counts.items():
        of_all = f"({count} of {len(pairs)} pairs)" if len(pairs) > 1 else ""
        notes.append(joined([text, of_all]))
    return notes


def _without_number(failed: Unmeasured) -> str:
    """Return why a measurement has no number, and whether that is a regression."""
    text = f"{failed.side} {failed.name} has no number: {failed.reason}"
    if failed.partner:
        other = "B" if failed.side == "A" else "A"
        text += f"; {other} has the number, from {failed.partner}"
    if failed.regressed:
        text += ": a regression"
    return text


def _alone(side: str, names: list[str]) -> Section:
    """Return the measurements of a side that have no partner."""
    if not names:
        return Section()
    listed = paragraph(f"{len(names)} of {side} without a partner, not compared:")
    return listed + bullets(names[:MOST_NAMES]) + more(len(names) - MOST_NAMES, "--json")


def _selected(side: str, selection: Selection) -> Section:
    """Return what a name stood for if that is not a single measurement, and what was left
    out."""
    section = Section()
    if selection.count > 1:
        section += note(f"{side}: {selection.name} ({selection.taken_as}, {selection.count})")
    for reason in selection.left_out:
        section += note(foreign(f"left out: {reason}"))
    return section


# Interleaved repeats.


@dataclass(frozen=True)
class ComparisonPage:
    """A stored comparison, its folder, and the site that its page is part of."""

    folder: Path
    comparison: InterleavedComparison
    site: Site

    @classmethod
    def read(cls, folder: str | Path, site: Site | None = None) -> "ComparisonPage":
        """Read the comparison in a folder. Raises ResultError for a folder without a
        comparison."""
        place = outputs_path(folder)
        return cls(place, read_comparison(place), site or Site(place.parent.parent))


def page(shown: str | Path | ComparisonPage) -> Section:
    """The verdict on each variant, a forest plot of the ratios, the variants' numbers, and the
    evidence folded. Raises ResultError for a folder without a comparison."""
    of_page = shown if isinstance(shown, ComparisonPage) else ComparisonPage.read(shown)
    found = of_page.comparison
    section = title(comparison_facts(of_page)[0])
    for pair in found.pairs:
        section += _verdict(found, pair, *_sides(found, pair))
    if not found.pairs:
        section += paragraph(strong(_("No ratio yet: no pair of repeats can be compared.")))
    for variant in found.variants:
        section += _shortfall(found, variant)
    if not found.complete:
        words = _("the command at the end of this page continues the comparison.")
        section += paragraph(Markup("%s: %s") % (strong(_("partial")), words))
    section += _disagreement(of_page) + _forest(found) + _variants(of_page)
    section += _profile_differences(of_page)
    if found.pairs:
        differ = _("In what the variants differ")
        section += _method(found) + folded(_("All pairs"), _all_pairs(found))
        section += folded(differ, _all_differences(found))
    section += paragraph(_("To repeat this comparison, with -p label NAME to measure anew:"))
    section += command(found.command)
    return section.on_page_in(of_page.folder)


def comparison_facts(page: ComparisonPage) -> tuple[str, str]:
    """Return the page's title, and the time of the comparison with its device if known."""
    found = page.comparison
    words = [comparison_title(found)]
    made = [minute(found.created)]
    if found.pairs:
        keys = found.pairs[0].keys
        words += _work(keys)
        if "device" in keys:
            facts = {f"environment.{name}": value for name, value in keys.items()}
            made.append(device_name(facts | keys))
    variants = ", ".join(variant_names(found))
    return f"{' · '.join(words)}: {variants}", " · ".join(made)


def _work(keys: dict[str, KeyValue]) -> list[str]:
    """Return precision, batch size, topology and input, as far as all variants agree in them.
    A dash stands for several batch sizes; a script has the samples per step that it told."""
    batch: str | None = _("batch %(size)s") % {"size": keys.get("batch_size", "–")}
    if "unit" in keys:
        batch = _told_batch(keys)
    words = [keys.get("precision"), batch, keys.get("topology"), keys.get("input")]
    return [plain(str(word)) for word in words if word is not None]


def _told_batch(keys: dict[str, KeyValue]) -> str | None:
    """Return the samples per step of a rank of all variants; None if they differ."""
    count = keys.get("samples_per_step")
    if count is None:
        return None
    return _("%(count)s %(unit)s per step") % {"count": f"{count:,}", "unit": keys["unit"]}


def _sides(found: InterleavedComparison, pair: PairResult) -> tuple[str, str]:
    """Return the names of the base and of the pair's variant."""
    return variant_name(found.base, found), variant_name(found.variant_of(pair), found)


def _shortfall(found: InterleavedComparison, variant: Variant) -> Section:
    """Return why a variant lacks repeats or a ratio; empty if it lacks nothing."""
    complete = variant.number.n if variant.number else 0
    if complete == found.repeats and not (variant.failure or variant.differs):
        return Section()
    count = ngettext(
        "%(n)s of %(all)s repeat is complete.",
        "%(n)s of %(all)s repeats are complete.",
        found.repeats,
    )
    texts: list[Inline] = [
        Markup("%s:") % strong(variant_name(variant, found)),
        count % {"n": complete, "all": found.repeats},
    ]
    if variant.failure:
        failure = foreign(variant.failure.line())
        texts.append(Markup("%s: %s") % (strong(_("failed")), failure))
    if variant.differs:
        words = _("Not compared. Settings that must agree with the base differ:")
        texts += [strong(words), joined(_differences(variant.differs), "; ")]
    return paragraph(*texts)


def _disagreement(page: ComparisonPage) -> Section:
    """Return why the ratios no longer follow from the measurements; empty if they do."""
    reasons = disagreements(page.comparison, page.site.outputs)
    if not reasons:
        return Section()
    words = _(
        "The measurements have changed since this comparison was made; the command below "
        "repeats it."
    )
    return paragraph(strong(words)) + bullets(reasons, "en")


def _forest(found: InterleavedComparison) -> Section:
    """Return the chart of all ratios; empty without any."""
    rows = []
    for pair in found.pairs:
        variant = found.variant_of(pair)
        name = variant_name(variant, found)
        rows.append(ForestRow(name, variant, pair, found.level, found.threshold))
    if not rows:
        return Section()
    base = variant_name(found.base, found)
    label = _("throughput / throughput of %(base)s") % {"base": base}
    narrow = partial(forest, rows, label, narrow=True)
    return picture(forest(rows, label), label, narrow)


def _variants(page: ComparisonPage) -> Section:
    """Return throughput, share of the highest measured peak, if known, and warnings."""
    rows = [_variant_row(variant, page) for variant in page.comparison.variants]
    headings = [_("Variant"), _("Throughput"), _("Repeats")]
    headings += [NumberHeading(_("Share of highest peak")), _("Warnings")]
    return table(rows, headings, as_cards=True)


def _variant_row(variant: Variant, page: ComparisonPage) -> list[Any]:
    name = variant_name(variant, page.comparison)
    if variant is page.comparison.base:
        name = f"{name} ({_('base')})"
    address = page.site.address(variant.id)
    # The page lies in comparisons/<name>.
    cells: list[Any] = [link(f"../{address}" if address else "", name)]
    result = variant.number
    if result:
        cells += [rate_text(result.value, result.unit, *(result.interval or ())), result.n]
    else:
        cells += [None] * 2
    share = variant.share_of_peak
    cells.append("" if share is None else peak_share([share]))
    cells.append(_warnings(result) if result else None)
    return cells


def _profile_differences(page: ComparisonPage) -> Section:
    """Return the operators that account most for the difference of each profiled variant from
    the base."""
    found, section = page.comparison, Section()
    for pair in found.pairs:
        variant = found.variant_of(pair)
        outputs = page.site.outputs
        operators = profile_difference(outputs / found.base.id, outputs / variant.id)
        words = _("Operators that account most for the difference of %(variant)s")
        section += part(words % {"variant": variant_name(variant, found)}, operators)
    return section


def _warnings(result: ComparedNumber) -> Markup:
    """Return the warnings of a number, or that it has too few repeats to tell."""
    codes = worst_first(result.warnings)
    if not codes and are_few(result.n or 0):
        return joined([severity_mark("undecided"), _("can't tell")])
    return joined([severity_mark(severity(codes)), ", ".join(codes) or _("none")])


def _all_pairs(found: InterleavedComparison) -> Section:
    rows = []
    for pair in found.pairs:
        name = variant_name(found.variant_of(pair), found)
        rows += [[name, *_turn_cells(turn)] for turn in pair.turns]
    headings = [_("Variant"), _("Pair"), _("Throughput of the base"), _("Throughput")]
    return table(rows, [*headings, _("Ratio"), _("Started (UTC)"), _("Interleaved")])


def _turn_cells(turn: Turn) -> list[Any]:
    numbers = [number(turn.a), number(turn.b), number(turn.ratio)]
    # Date and time of the base's repeat, the time alone of the variant's.
    started = f"{(turn.a_began or '–')[:19]} / {(turn.b_began or '')[11:19]}"
    in_turn = _("yes") if turn.in_turn else _("no")
    return [turn.repeat, *numbers, started, in_turn]


def _all_differences(found: InterleavedComparison) -> Section:
    section = Section()
    for pair in found.pairs:
        names = " | ".join(_sides(found, pair))
        differences = _differences(telling(pair.across | pair.differs))
        section += paragraph(names) + bullets([*differences, *_rarely_telling(pair)])
    return section


# Both.


def _verdict(found: Comparison, pair: PairResult, base: str, other: str) -> Section:
    """Return the verdict on a pair, and behind it what speaks against trusting it."""
    line = verdict_line(pair, found.level, found.threshold, base, other)
    doubts: list[Inline] = [caution_words({base: pair.a, other: pair.b})]
    if pair.out_of_turn:
        words = _("Not interleaved, judging by the start times: pair %(repeats)s.")
        doubts.append(words % {"repeats": ", ".join(map(str, pair.out_of_turn))})
    behind = [*filter(None, [*doubts, _same_work(pair)])]
    end = "." if behind else ""
    return paragraph(verdict_mark(pair.verdict), strong(f"{line}{end}"), *behind)


def _same_work(pair: PairResult) -> Inline:
    """Return whether two frameworks are known to do the same work, with the command that
    verifies it; empty for a single framework."""
    work = pair.same_work
    if not work:
        return ""
    match work.state:
        case "verified":
            words = _("Same work: verified (%(made)s).")
        case "not the same":
            words = _("They do different work: see the measurements' pages (%(made)s).")
        case "not verified":
            words = _("Same work: not verified.")
    text = words % {"made": minute(work.created or "")}
    is_open = work.state == "not verified" and work.command
    return joined([text, code(work.command) if is_open else ""])


def _differences(differs: Differences) -> list[Markup]:
    texts = []
    for key, values in differs.items():
        texts.append(joined([code(key), format_pair(key, *values)]))
    return texts


def _rarely_telling(pair: PairResult) -> list[Markup]:
    """Return the names of differences that rarely explain a ratio, as one item; none without
    any."""
    keys = [*rarely_telling(pair.across), *rarely_telling(pair.differs)]
    if not keys:
        return []
    words = _("%(keys)s: rarely explains a ratio; the JSON has the values")
    return [Markup(words) % {"keys": joined(map(code, keys), ", ")}]


def _method(found: Comparison) -> Section:
    """Return how the ratios are computed and judged, folded."""
    methods = dict.fromkeys(pair.method for pair in found.pairs)
    words = _(
        "Faster or slower: the interval, at a level of at least %(level)s, excludes 1. No "
        "difference over %(threshold)s: it lies within that. A regression: slower by more than "
        "%(threshold)s."
    )
    facts = {"level": percent(found.level, 4), "threshold": percent(found.threshold)}
    section = bullets([*(_(METHODS[method]) for method in methods), words % facts])
    if len(found.pairs) > 1:
        words = _(
            "Of %(pairs)s pairs that do not differ at all, up to %(chance)s on average are "
            "called faster or slower."
        )
        chance = number(len(found.pairs) * (1 - found.level), 2)
        section += note(words % {"pairs": len(found.pairs), "chance": chance})
    return folded(_("Method"), section)
