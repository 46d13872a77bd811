"""What importers store in English, as a Chinese page has it."""

import pytest

from perfkit.audit.recorded import LONGEST, PHRASES, recorded
from perfkit.text.language import in_language


@pytest.mark.parametrize(
    ("text", "chinese"),
    [
        ("line 12", "第 12 行"),
        ("a.log, its name", "a.log，其文件名"),
        (
            "given by hand; a, b.log, line 3 says amp",
            "手工给出；a, b.log，第 3 行所说为 amp",
        ),
        (
            "precision is amp by its name, but pure_fp16 by line 1",
            "precision：按其文件名为 amp，按第 1 行却为 pure_fp16",
        ),
        ("a running mean since step 5", "自第 5 步起的累计平均"),
        ("what nobody thought of", "what nobody thought of"),
        ("", ""),
    ],
)
def test_a_stored_sentence_is_shown_in_the_language_that_is_spoken(text, chinese):
    assert recorded(text) == text
    with in_language("zh"):
        assert recorded(text) == chinese


def test_a_text_too_long_for_a_phrase_is_left_as_it_is():
    text = "x is y by z" + " by z" * LONGEST
    with in_language("zh"):
        assert recorded(text) == text


def test_every_phrase_is_found_to_be_itself():
    with in_language("zh"):
        assert [phrase for phrase in PHRASES if recorded(phrase) == phrase] == []
