"""The Chinese catalogue covers every shown message and nothing else."""

import ast
import re
import string

import nbformat
import pytest
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po
from made import measured, stored, write_all
from markupsafe import Markup
from matplotlib.font_manager import FontProperties, findfont, get_font

from perfkit.analysis.published import published
from perfkit.analysis.published.layouts import LAYOUTS
from perfkit.analysis.warning_types import SEVERITIES
from perfkit.analysis.warnings import checked_aspects
from perfkit.core.config import parameters
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.paths import ROOT
from perfkit.core.results.schema import Option
from perfkit.core.system.environment import FACTS
from perfkit.report import style
from perfkit.report.measurement import write_measurement
from perfkit.report.site import write_summary
from perfkit.report.summary import Summary
from perfkit.report.text import language
from perfkit.report.text.names import fact_name

METHODS = [("**.j2", "jinja2.ext:babel_extract")]
OPTIONAL = "cpu_time steal_time cpu_clock cpu_temperature cpu_throttling cpu_energy gpus"
OPTIONAL += " gpu_clock gpu_temperature gpu_throttling gpu_energy gpu_memory accelerators"
"""Telemetry that a machine may lack."""
NAMES = re.compile(
    "Paddle|PyTorch|JAX|TensorFlow|MXNet|OneFlow|ResNet-50|VGG-16|BERT-base|GPT-2 124M|[AV]100|"
    "FP32|AMP|auto|SHA-256|[GC]PU|(images|sequences|tokens|samples)/s"
)
"""Latin words that Chinese headings keep."""
ENGLISH, CHINESE = re.compile("[A-Za-z]{2}"), re.compile("[\u4e00-\u9fff]")
KEYWORDS = dict.fromkeys(("_", "N_", "gettext")) | {"ngettext": (1, 2)}


@pytest.fixture(scope="module")
def catalogue():
    with (language.CATALOGUES / "zh.po").open("rb") as stream:
        return {message.id: message.string for message in read_po(stream) if message.id}


@pytest.fixture(scope="module")
def templates():
    """The messages in templates."""
    options = {"**.j2": {"trimmed": "true", "silent": "false"}}
    found = extract_from_dir(ROOT / "perfkit", METHODS, options, KEYWORDS, comment_tags=())
    return {message for _file, _line, message, _comments, _context in found}


def code():
    """Yield the messages in Python files."""
    for path in (ROOT / "perfkit").rglob("*.py"):
        yield from marked(ast.parse(path.read_text(encoding="utf-8")))


def marked(module):
    """Yield the messages in a module. Babel would miss messages within f-strings and mistake
    parts of expressions for messages."""
    for call in ast.walk(module):
        match call:
            case ast.Call(
                ast.Name("ngettext") | ast.Attribute(attr="ngettext"),
                [ast.Constant(one), ast.Constant(many), _],
            ):
                yield one, many
            case ast.Call(ast.Name(name), [ast.Constant(str(text))]) if name in KEYWORDS:
                yield text


def headings():
    """Return the notebooks' headings and markdown that pages show."""
    texts = set()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        if path.stem != "explore":
            for cell in nbformat.read(path, 4).cells:
                is_shown = "introduction" not in cell.metadata.get("tags", [])
                if cell.cell_type == "markdown" and is_shown:
                    texts.add(cell.source.lstrip("# "))
    return texts


def looked_up():
    """Return messages from data: parameters, facts, the published tables, logs."""
    cells = published()
    facts = {*FACTS, "data_disk", *OPTIONAL.split()}
    facts |= {fact for framework in FRAMEWORKS.values() for fact in framework.facts}
    with language.in_language("en"):
        messages = {fact_name(fact) for fact in facts}
    messages |= {meaning for _default, meaning in parameters().values()}
    messages |= {*cells["note"].dropna(), *cells["statistic"].dropna()}
    messages |= {layout.corner for layout in LAYOUTS.values()}
    messages |= {*Option.model_fields["state"].annotation.__args__}
    messages |= {*checked_aspects(measured([1.0]), ())}
    messages |= {*SEVERITIES}
    return messages | {"complete", "partial", "failed", "not stated"}


def test_template_messages_with_a_percent_sign_have_a_variable(templates):
    # Jinja doubles the sign in every message, but only undoubles it if there are variables.
    texts = [str(message) for message in templates]
    assert len(texts) > 10
    assert [text for text in texts if "%" in text and "%(" not in text] == []


def test_every_message_is_translated_and_every_translation_is_used(catalogue, templates):
    assert {*catalogue} == templates | {*code()} | headings() | looked_up()
    translations = catalogue.values()
    assert all(all(text) if isinstance(text, tuple) else text for text in translations)


def test_translations_keep_placeholders(catalogue):
    def placeholders(text):
        named = re.findall(r"%\((\w+)\)[#.\d]*[a-z]", text)
        return {*named, *(name for _, name, _, _ in string.Formatter().parse(text) if name)}

    for message, translated in catalogue.items():
        singular = message if isinstance(message, str) else message[-1]
        chinese = translated if isinstance(translated, str) else translated[0]
        assert placeholders(chinese) == placeholders(singular), message


def test_the_chart_font_has_every_character_of_the_catalogue(catalogue):
    font = get_font(findfont(FontProperties(family=style._font())))
    texts = [text for pair in catalogue.items() for text in pair]
    characters = {c for text in texts for c in "".join(text)} - {"\n"}
    assert {c for c in characters if not font.get_char_index(ord(c))} == set()


def test_a_language_applies_only_within_its_block():
    def warnings():
        texts = "%(num)d warning", "%(num)d warnings"
        return [language.ngettext(*texts, count) for count in (1, 2)]

    with language.in_language("zh"):
        assert (language.gettext("Repeats"), language.gettext("")) == ("各次重复", "")
        assert warnings() == ["%(num)d 项警告"] * 2
        with language.in_language("en"):
            assert language.gettext("Repeats") == "Repeats"
        assert language.current() == "zh"
    assert language.current() == "en"
    assert warnings() == ["%(num)d warning", "%(num)d warnings"]
    with pytest.raises(
        ValueError, match="'fr' is not a language of this report; use 'en' or 'zh'"
    ):
        language.set_language("fr")


@pytest.fixture(scope="module")
def pages(tmp_path_factory, processes):
    """The Chinese pages of a measurement with steps, the summary and its parts, by name."""
    outputs = tmp_path_factory.mktemp("outputs")
    made = stored(outputs / "made")
    write_measurement(made)
    falling = [[100.0, 101.0, 102.0, 103.0, 104.0, 105.0, 106.0]] * 9 + [[50.0] * 7]
    write_all(outputs, *(measured(values) for values in falling))
    folders = {name: outputs / name for name in ("summary", "published", "history")}
    for folder in folders.values():
        folder.mkdir()
    write_summary(Summary.read(outputs), "zh")
    folders["made"] = made.folder
    return {name: (folder / "report.zh.html").read_text() for name, folder in folders.items()}


def texts(page, elements):
    """Return the texts of these elements of a page, except those marked as English."""
    page = re.sub(r'<(\w+)[^>]* lang="en".*?</\1>', "", page, flags=re.DOTALL)
    found = re.findall(rf"<({elements})\b[^>]*>(.*?)</\1>", page, flags=re.DOTALL)
    return {Markup(text).striptags().rstrip("¶") for _element, text in found}


@pytest.mark.parametrize("name", ["made", "summary", "published", "history"])
def test_chinese_pages_have_no_english_headings_or_sentences(pages, name, catalogue):
    found = texts(pages[name], "h1|h2|h3|summary|th|caption")
    assert len(found) > 10
    sources = {*published()["source"]}
    foreign = {text for text in found - sources if not CHINESE.search(text)}
    assert {text for text in foreign if ENGLISH.search(NAMES.sub("", text))} == set()
    assert '<html lang="zh-Hans">' in pages[name]
    assert name != "made" or re.search("<text[^>]*>[^<]*[\u4e00-\u9fff]", pages[name])
    found = texts(pages[name], "td|p|li|text|strong|small")
    assert len(found) > 10
    # A single word may also be a parameter's name.
    messages = {text for text in catalogue if isinstance(text, str) and " " in text}
    assert found & messages == set()
