"""Sections of an interleaved comparison's page. They raise ResultError for a folder without a
comparison."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from perfkit.analysis.comparison.interleaved import disagreements
from perfkit.analysis.comparison.keys import (
    Differences,
    KeyValue,
    format_pair,
    rarely_telling,
    telling,
)
from perfkit.analysis.comparison.stored import (
    ComparedNumber,
    InterleavedComparison,
    PairResult,
    Variant,
    read_comparison,
)
from perfkit.analysis.ratios import Turn
from perfkit.analysis.verdicts import few_repeats
from perfkit.analysis.warnings import severity, worst_first
from perfkit.measuring.format import minute, number, one_line, percent, plain, rate_text
from perfkit.measuring.paths import outputs_path
from perfkit.report.elements import (
    NumberHeading,
    Text,
    bullets,
    code,
    foreign,
    joined,
    link,
    markup,
    note,
    paragraph,
    severity_mark,
    strong,
    table,
    verdict_mark,
)
from perfkit.report.links import Site
from perfkit.report.section import Section, folded, picture
from perfkit.report.style import ForestRow, forest
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext
from perfkit.report.text.names import device_name, peak_share, variant_name, variant_names
from perfkit.report.text.statements import sentence


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


Shown = str | Path | ComparisonPage
"""What a section shows: a comparison that was read, or its folder."""


def _page(shown: Shown) -> ComparisonPage:
    return shown if isinstance(shown, ComparisonPage) else ComparisonPage.read(shown)


def comparison_facts(page: ComparisonPage) -> tuple[str, str]:
    """Return the page's title, and the time of the comparison with its device if known."""
    comparison = page.comparison
    title = [comparison.short_title]
    made = [minute(comparison.created)]
    if comparison.pairs:
        keys = comparison.pairs[0].keys
        title += _work(keys)
        if "device" in keys:
            facts = {f"environment.{name}": value for name, value in keys.items()}
            made.append(device_name(facts | keys))
    variants = ", ".join(variant_names(comparison))
    return f"{' · '.join(title)}: {variants}", " · ".join(made)


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


# The verdicts.


def comparison_headline(shown: Shown) -> Section:
    """The verdict on each variant, a forest plot of the ratios, and failures."""
    page = _page(shown)
    comparison = page.comparison
    title, _made = comparison_facts(page)
    section = markup(Markup('<p class="title">%s</p>') % title)
    for pair in comparison.pairs:
        section += _verdict(comparison, pair)
    if not comparison.pairs:
        words = _("No ratio yet: no pair of repeats can be compared.")
        section += paragraph(strong(words))
    for variant in comparison.variants:
        section += _shortfall(comparison, variant)
    if not comparison.complete:
        words = _("the command at the end of this page continues the comparison.")
        section += paragraph(Markup("%s: %s") % (strong(_("partial")), words))
    words = _(
        "%(repeats)s repeats of each variant, alternating in one run. Faster or slower: an "
        "interval with a level of at least %(level)s excludes 1. No difference over "
        "%(threshold)s: it lies within that. A regression: slower by more than %(threshold)s."
    )
    section += note(
        words
        % {
            "repeats": comparison.repeats,
            "level": percent(comparison.level, 4),
            "threshold": percent(comparison.threshold),
        }
    )
    return section.on_page_in(page.folder) + _forest(comparison)


def _forest(comparison: InterleavedComparison) -> Section:
    """Return the chart of all ratios; empty without any."""
    rows = []
    for pair in comparison.pairs:
        variant = comparison.variant_of(pair)
        name = variant_name(variant, comparison)
        rows.append(ForestRow(name, variant, pair, comparison.level, comparison.threshold))
    if not rows:
        return Section()
    base = variant_name(comparison.base, comparison)
    label = _("throughput / throughput of %(base)s") % {"base": base}
    return picture(forest(rows, label), label)


def _verdict(comparison: InterleavedComparison, pair: PairResult) -> Section:
    """Return the verdict on a variant, its ratio, and what speaks against trusting it."""
    base = variant_name(comparison.base, comparison)
    variant = variant_name(comparison.variant_of(pair), comparison)
    statement = pair.statement(comparison.level, comparison.threshold, base, variant)
    caution = pair.caution(base, variant)
    texts: list[Text] = [verdict_mark(pair.verdict), strong(sentence(statement))]
    texts.append(_ratio(pair, comparison.level))
    if caution:
        texts.append(sentence(caution))
    if pair.out_of_turn:
        words = _(
            "Not interleaved, judging by the start times: pair %(repeats)s. The ratio includes "
            "the drift of the machine between the repeats of such a pair."
        )
        repeats = ", ".join(map(str, pair.out_of_turn))
        texts.append(strong(words % {"repeats": repeats}))
    return paragraph(*texts)


def _ratio(pair: PairResult, level: float) -> str:
    if not pair.has_level(level):
        return _("Ratio %(ratio)s; too few pairs to test.") % {"ratio": number(pair.ratio)}
    low, high = pair.interval
    words = _("Ratio %(ratio)s; %(level)s interval %(low)s – %(high)s from %(n)s pairs.")
    return words % {
        "ratio": number(pair.ratio),
        "level": percent(pair.interval_level, 4),
        "low": number(low),
        "high": number(high),
        "n": len(pair.turns),
    }


def _shortfall(comparison: InterleavedComparison, variant: Variant) -> Section:
    """Return why a variant lacks repeats or a ratio; empty if it lacks nothing."""
    complete = variant.number.n if variant.number else 0
    if complete == comparison.repeats and not (variant.failure or variant.differs):
        return Section()
    count = ngettext(
        "%(n)s of %(all)s repeat is complete.",
        "%(n)s of %(all)s repeats are complete.",
        comparison.repeats,
    )
    texts: list[Text] = [
        Markup("%s:") % strong(variant_name(variant, comparison)),
        count % {"n": complete, "all": comparison.repeats},
    ]
    if variant.failure:
        failure = foreign(variant.failure.line())
        texts.append(Markup("%s: %s") % (strong(_("failed")), failure))
    if variant.differs:
        words = _("Not compared. Settings that must agree with the base differ:")
        texts += [strong(words), joined(_differences(variant.differs), "; ")]
    return paragraph(*texts)


def _differences(differs: Differences) -> list[Markup]:
    texts = []
    for key, values in differs.items():
        texts.append(Markup("%s %s") % (code(key), format_pair(key, *values)))
    return texts


# The variants.


def comparison_variants(shown: Shown) -> Section:
    """Throughput, shares of the measured peaks, if any is known, and warnings per variant."""
    page = _page(shown)
    rows = [_variant_row(variant, page) for variant in page.comparison.variants]
    headings = [_("Variant"), _("Throughput"), _("Number of repeats")]
    headings += [NumberHeading(_("Share of measured peak"))]
    headings += [NumberHeading(_("Share of highest peak")), _("Warnings")]
    section = table(rows, headings, as_cards=True)
    if page.comparison.has_peaks:
        section += _about_peaks()
    return section.on_page_in(page.folder)


def _about_peaks() -> Section:
    return note(
        _(
            "The measured peak is the speed of the framework's matrix product in the same "
            "processes, after the window; the share is the median over repeats. The highest "
            "peak is the highest of all variants and repeats: relative to it, a variant with a "
            "low peak does not look efficient."
        )
    )


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
    shares = ["", ""]
    if page.comparison.has_peaks:
        shares = [peak_share([variant.of_own_peak]), peak_share([variant.of_highest_peak])]
    cells += shares
    cells.append(_warnings(result) if result else None)
    return cells


def _warnings(result: ComparedNumber) -> Markup:
    """Return the warnings of a variant, or that it has too few repeats to tell."""
    codes = worst_first(result.warnings)
    if not codes and few_repeats(result.n or 0):
        return Markup("%s %s") % (severity_mark("undecided"), _("can't tell"))
    names = ", ".join(codes) or _("none")
    return Markup("%s %s") % (severity_mark(severity(codes)), names)


# The pairs.


def comparison_pairs(shown: Shown) -> Section:
    """Work equivalence, agreement with the results, all pairs, differences, the command."""
    page = _page(shown)
    comparison = page.comparison
    section = Section()
    for pair in comparison.pairs:
        section += _work_equivalence(comparison, pair)
    section += _agreement(page)
    if comparison.pairs:
        section += folded(_("All pairs"), _all_pairs(comparison))
        section += folded(_("Differences between the variants"), _all_differences(comparison))
        section += folded(_("Settings that agree"), _agreeing(comparison.pairs))
    section += paragraph(_("To repeat this comparison:"))
    section += markup(Markup('<pre class="command">%s</pre>') % comparison.command)
    section += note(
        _(
            "The command reuses existing measurements and makes missing ones; with -p label "
            "NAME it measures everything anew."
        )
    )
    return section.on_page_in(page.folder)


def _work_equivalence(comparison: InterleavedComparison, pair: PairResult) -> Section:
    """Return whether the same work was verified; empty for a single framework."""
    work = pair.same_work
    if not work:
        return Section()
    if work.state == "verified":
        words = _(
            "Work equivalence of %(variant)s and %(base)s: <strong>verified</strong> in "
            "float32 and float64 (%(made)s). The measurements' pages show every check."
        )
    elif work.state == "not the same":
        words = _(
            "Work equivalence of %(variant)s and %(base)s: <strong>they do different "
            "work</strong>, as float32 and float64 show (%(made)s). The measurements' pages "
            "show where."
        )
    else:
        words = _(
            "Work equivalence of %(variant)s and %(base)s: <strong>not verified</strong>."
        )
    facts = {
        "variant": variant_name(comparison.variant_of(pair), comparison),
        "base": variant_name(comparison.base, comparison),
        "made": minute(work.created or ""),
    }
    texts: list[Text] = [Markup(words) % facts]
    if work.state == "not verified" and work.command:
        texts += [_("To verify it:"), code(work.command)]
    return paragraph(*texts)


def _agreement(page: ComparisonPage) -> Section:
    """Return whether the ratios still follow from the measurements."""
    reasons = disagreements(page.comparison, page.site.outputs)
    if reasons:
        words = _(
            "The measurements have changed since this comparison was made; the command below "
            "repeats it."
        )
        return paragraph(strong(words)) + bullets(reasons, "en")
    if page.comparison.pairs:
        return paragraph(_("The ratios agree with the measurements' results."))
    return Section()


def _all_pairs(comparison: InterleavedComparison) -> Section:
    rows = []
    for pair in comparison.pairs:
        name = variant_name(comparison.variant_of(pair), comparison)
        rows += [[name, *_turn_cells(turn)] for turn in pair.turns]
    headings = [_("Variant"), _("Pair"), _("Throughput of the base"), _("Throughput")]
    headings += [_("Ratio"), _("Started (UTC)"), _("Interleaved")]
    return table(rows, headings) + note(
        _(
            "A ratio divides repeat k of the variant by repeat k of the base, which ran "
            "directly before or after it; the result is the median of these ratios. The "
            "interval lies between two order statistics and covers the median of any "
            "distribution at the level given. Drift slower than a pair affects both repeats "
            "and cancels; faster drift does not."
        )
    )


def _turn_cells(turn: Turn) -> list[Any]:
    numbers = [number(turn.a), number(turn.b), number(turn.ratio)]
    # Date and time of the base's repeat, the time alone of the variant's.
    started = f"{(turn.a_began or '–')[:19]} / {(turn.b_began or '')[11:19]}"
    in_turn = _("yes") if turn.in_turn else _("no")
    return [turn.repeat, *numbers, started, in_turn]


def _all_differences(comparison: InterleavedComparison) -> Section:
    section = Section()
    base = variant_name(comparison.base, comparison)
    for pair in comparison.pairs:
        items = []
        across = telling(pair.across)
        for key, text in zip(across, _differences(across), strict=True):
            follows = _("follows from a variant's settings")
            reason = _("set by a variant") if key in comparison.named else follows
            items.append(Markup("%s (%s)") % (text, reason))
        for text in _differences(telling(pair.differs)):
            items.append(Markup("%s (%s)") % (text, _("not part of the work")))
        items += _rarely_telling(pair)
        names = f"{base} | {variant_name(comparison.variant_of(pair), comparison)}"
        section += paragraph(names) + bullets(items)
    return section


def _rarely_telling(pair: PairResult) -> list[Markup]:
    """Return the names of differences that rarely explain a ratio, as one item; none without
    any."""
    keys = [*rarely_telling(pair.across), *rarely_telling(pair.differs)]
    if not keys:
        return []
    words = _("%(keys)s: rarely explains a ratio; comparison.json has the values")
    return [Markup(words) % {"keys": joined(map(code, keys), ", ")}]


def _agreeing(pairs: Iterable[PairResult]) -> Section:
    """Return the settings in which the variants of all pairs agree."""
    first, *others = pairs
    items = []
    for key, value in first.keys.items():
        if all(key in pair.keys for pair in others):
            items.append(Markup("%s %s") % (code(key), one_line(value)))
    return bullets(items)
