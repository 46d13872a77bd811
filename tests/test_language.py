"""The Chinese catalogue covers every shown message and nothing else."""

import ast
import re
import string
from typing import get_args

import nbformat
import pandas as pd
import pytest
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po
from made.results import measured, script_measured, stored, write_all
from markupsafe import Markup
from matplotlib.font_manager import FontProperties, findfont, get_font

from perfkit.analysis.published import published
from perfkit.analysis.published.layouts import LAYOUTS
from perfkit.analysis.warnings import MeasurementChecks
from perfkit.measuring.paths import ROOT
from perfkit.measuring.results.effective import Option
from perfkit.measuring.statements import Severity
from perfkit.measuring.system.environment import FACTS
from perfkit.report import style
from perfkit.report.cells import HIDDEN
from perfkit.report.measurement import write_measurement
from perfkit.report.site import write_summary
from perfkit.report.summarized import Summary
from perfkit.report.text import language
from perfkit.report.text.wording import fact_name
from perfkit.training.frameworks import FRAMEWORKS

METHODS = [("**.j2", "jinja2.ext:babel_extract")]
NAMES = re.compile(
    "Paddle|PyTorch|JAX|TensorFlow|MXNet|OneFlow|ResNet-50|VGG-16|BERT-base|GPT-2|Llama|"
    "fp32|[AV]100|G?B[23]00|MI35[05]X|FP32|BF16|FP8|FP4|AMP|auto|SHA-256|[GC]PU|(images|sequences|tokens|samples)/s"
)
"""Latin words that Chinese headings keep."""
ENGLISH = re.compile("[A-Za-z]{2}")
CHINESE = re.compile("[\u4e00-\u9fff]")
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
        module = ast.parse(path.read_text(encoding="utf-8"))
        yield from marked(module)


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
        if path.stem == "explore":
            continue
        for cell in nbformat.read(path, 4).cells:
            is_hidden = HIDDEN & {*cell.metadata.get("tags", [])}
            if cell.cell_type == "markdown" and not is_hidden:
                texts.add(cell.source.lstrip("# "))
    return texts


def looked_up():
    """Return messages from data: facts, the published tables, checks."""
    messages = {"complete", "partial", "failed", "not stated", *get_args(Severity)}
    facts = {*FACTS, "data_disk"}
    for framework in FRAMEWORKS.values():
        facts |= {*framework.facts}
    with language.in_language("en"):
        for fact in facts:
            messages.add(fact_name(fact))
    for layout in LAYOUTS.values():
        messages.add(layout.corner)
    cells = published()
    for column in ("note", "statistic"):
        messages |= {*cells[column].dropna()}
    messages |= {*get_args(Option.model_fields["state"].annotation)}
    for result in (measured([1.0]), script_measured([1.0])):
        messages |= {*MeasurementChecks(result, [], pd.DataFrame()).aspects}
    return messages


def test_template_messages_with_a_percent_sign_have_a_variable(templates):
    # Jinja doubles the sign in every message, but only undoubles it if there are variables.
    assert templates
    for message in templates:
        text = str(message)
        assert "%" not in text or "%(" in text


def test_every_message_is_translated_and_every_translation_is_used(catalogue, templates):
    messages = templates | {*code()} | headings() | looked_up()
    assert {*catalogue} == messages
    for message, translated in catalogue.items():
        assert translated, message
        for text in translated:
            assert text, message


def test_translations_keep_placeholders(catalogue):
    def placeholders(text):
        names = {*re.findall(r"%\((\w+)\)[#.\d]*[a-z]", text)}
        for _literal, name, _format, _conversion in string.Formatter().parse(text):
            if name:
                names.add(name)
        return names

    for message, translated in catalogue.items():
        if isinstance(message, tuple):
            _singular, english = message
            (chinese,) = translated
        else:
            english = message
            chinese = translated
        assert placeholders(chinese) == placeholders(english), message


def test_the_chart_font_has_every_character_of_the_catalogue(catalogue):
    path = findfont(FontProperties(family=style.chinese_font()))
    font = get_font(path)
    characters = set()
    for message, translated in catalogue.items():
        characters |= {*"".join(message), *"".join(translated)}
    missing = set()
    for character in characters - {"\n"}:
        if not font.get_char_index(ord(character)):
            missing.add(character)
    assert missing == set()


def test_an_unknown_language_is_refused():
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
    steady = measured([100.0, 101.0, 102.0, 103.0, 104.0, 105.0, 106.0])
    fallen = measured([50.0] * 7)
    write_all(outputs, *[steady] * 9, fallen)
    folders = {"made": made.folder}
    for name in ("summary", "published", "history"):
        folder = outputs / name
        folder.mkdir()
        folders[name] = folder
    write_summary(Summary.read(outputs), "zh")
    pages = {}
    for name, folder in folders.items():
        page = folder / "report.zh.html"
        pages[name] = page.read_text()
    return pages


def texts(page, elements):
    """Return the texts of these elements of a page, except those marked as English."""
    page = re.sub(r'<(\w+)[^>]* lang="en".*?</\1>', "", page, flags=re.DOTALL)
    texts = set()
    for element in re.finditer(rf"<({elements})\b[^>]*>(.*?)</\1>", page, flags=re.DOTALL):
        text = Markup(element[2]).striptags()
        texts.add(text.rstrip("¶"))
    assert len(texts) >= 5
    return texts


PAGES = pytest.mark.parametrize("name", ["made", "summary", "published", "history"])


@PAGES
def test_chinese_pages_have_no_english_headings(pages, name):
    headings = texts(pages[name], "h1|h2|h3|summary|th|caption")
    sources = {*published()["source"]}
    english = set()
    for heading in headings - sources:
        without_names = NAMES.sub("", heading)
        if ENGLISH.search(without_names) and not CHINESE.search(heading):
            english.add(heading)
    assert english == set()


@PAGES
def test_chinese_pages_have_no_english_sentences(pages, name, catalogue):
    sentences = texts(pages[name], "td|p|li|text|strong|small")
    # A single word may also be a parameter's name.
    messages = {text for text in catalogue if isinstance(text, str) and " " in text}
    assert sentences & messages == set()


def test_charts_of_a_chinese_page_are_chinese(pages):
    assert re.search("<text[^>]*>[^<]*[\u4e00-\u9fff]", pages["made"])
