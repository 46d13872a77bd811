"""Everything that is shown has its Chinese, and the catalogue has nothing else."""

import re
import string

import nbformat
import pytest
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po
from made import measured
from matplotlib.font_manager import FontProperties, findfont, get_font

from perfkit.analysis.sanity import looked_at
from perfkit.comparison.verdict import Verdict
from perfkit.config import ROOT, parameters
from perfkit.nodes.environment import FACTS
from perfkit.report import charts
from perfkit.request.frameworks import FRAMEWORKS
from perfkit.results.schema import Option
from perfkit.tables.cells import SHAPES
from perfkit.tables.published import published
from perfkit.words import language
from perfkit.words.recorded import PHRASES
from perfkit.words.wording import fact_name

METHODS = [("**.py", "python"), ("**.j2", "jinja2.ext:babel_extract")]
UNTOLD = "cpu_time stolen cpu_clock cpu_temperature cpu_throttling cpu_energy gpus gpu_clock"
UNTOLD += " gpu_temperature gpu_throttling gpu_energy"
"""What a machine may not tell of its conditions."""
KEYWORDS = {"_": None, "gettext": None, "ngettext": (1, 2)}


@pytest.fixture(scope="module")
def catalogue():
    with (language.CATALOGUES / "zh.po").open("rb") as stream:
        return {message.id: message.string for message in read_po(stream) if message.id}


def written():
    """The messages that code and templates have in them."""
    options = {"**.j2": {"trimmed": "true", "silent": "false"}}
    found = extract_from_dir(ROOT / "perfkit", METHODS, options, KEYWORDS, comment_tags=())
    return {message for _file, _line, message, _comments, _context in found}


def headings():
    """The text of the notebooks' markdown that pages are made of, and their pages' titles."""
    named = {ROOT / "notebooks" / f"{name}.ipynb" for name in ("resnet50", "vgg16", "bert")}
    named |= {
        ROOT / "notebooks" / f"{name}.ipynb"
        for name in ("summary", "bench", "comparison", "audit")
    }
    cells = [cell for path in named for cell in nbformat.read(path, 4).cells]
    return {cell.source.lstrip("# ") for cell in cells if cell.cell_type == "markdown"}


def looked_up():
    """The messages that come from elsewhere: parameters, facts, the published tables, logs."""
    cells = published()
    facts = {*FACTS, "data_disk", *UNTOLD.split()}
    facts |= {fact for framework in FRAMEWORKS.values() for fact in framework.facts}
    with language.spoken("en"):
        messages = {fact_name(fact) for fact in facts}
    messages |= {meaning for _default, meaning in parameters().values()}
    messages |= {*cells["note"].dropna(), *cells["statistic"].dropna()}
    messages |= {shape.corner for shape in SHAPES.values()}
    messages |= {*Option.model_fields["state"].annotation.__args__}
    messages |= {*looked_at(measured([1.0]), ())}
    messages |= {*Verdict.__args__, *PHRASES}
    return messages | {"complete", "partial", "failed"}


def test_a_message_with_a_percent_sign_has_a_variable():
    # Jinja doubles the sign in every message, and takes one of two out only with variables.
    templates = ROOT / "perfkit" / "report" / "templates"
    found = extract_from_dir(templates, METHODS, {"**.j2": {"trimmed": "true"}}, KEYWORDS)
    texts = [str(message) for _file, _line, message, _comments, _context in found]
    assert len(texts) > 100
    assert [text for text in texts if "%" in text and "%(" not in text] == []


def test_every_message_is_translated_and_every_translation_is_used(catalogue):
    assert {*catalogue} == written() | headings() | looked_up()
    translations = catalogue.values()
    assert all(all(text) if isinstance(text, tuple) else text for text in translations)


def test_a_translation_has_the_placeholders_of_its_message(catalogue):
    def placeholders(text):
        named = re.findall(r"%\((\w+)\)[sd]", text)
        return {*named, *(name for _, name, _, _ in string.Formatter().parse(text) if name)}

    for message, translated in catalogue.items():
        singular = message if isinstance(message, str) else message[-1]
        chinese = translated if isinstance(translated, str) else translated[0]
        assert placeholders(chinese) == placeholders(singular), message


def test_the_charts_font_has_every_character_of_the_catalogue(catalogue):
    font = get_font(findfont(FontProperties(family=charts.font())))
    texts = [text for pair in catalogue.items() for text in pair]
    characters = {c for text in texts for c in "".join(text)} - {"\n"}
    assert {c for c in characters if not font.get_char_index(ord(c))} == set()


def test_a_language_is_spoken_within_its_block_only():
    with language.spoken("zh"):
        assert language.gettext("Repeats") == "各次重复"
        with language.spoken("en"):
            assert language.gettext("Repeats") == "Repeats"
        assert language.current() == "zh"
    assert language.current() == "en"


def test_empty_text_stays_empty_in_every_language():
    with language.spoken("zh"):
        assert language.gettext("") == ""


def test_an_unknown_language_is_refused_with_those_there_are():
    with pytest.raises(
        ValueError, match="'fr' is no language of this report; it is 'en' or 'zh'"
    ):
        language.speak("fr")


def test_one_and_many_are_told_apart_where_the_language_does():
    def told(count):
        return language.ngettext("%(count)s GPU", "%(count)s GPUs", count)

    assert (told(1), told(2)) == ("%(count)s GPU", "%(count)s GPUs")
    with language.spoken("zh"):
        assert told(1) == told(2) == "%(count)s 个 GPU"
