"""Statements: typed fields, a sentence for each case, stored as code and fields."""

import json
from typing import ClassVar

import pytest
from babel.messages.pofile import read_po
from pydantic import BaseModel, ValidationError

from perfkit.analysis.warnings import MeasurementWarning
from perfkit.audit.statements import Finding
from perfkit.measuring.statements import N_, Digits3, Repeats, Share, Statement
from perfkit.report.text import language


class Doubt(Statement):
    """A family of the tests."""

    classes: ClassVar = {}


class Slow(Doubt):
    code = "slow"
    sentence = N_("step %(step)s took %(seconds)s s")
    step: int
    seconds: Digits3


class Scattered(Doubt):
    code = "scattered"
    repeats: Repeats
    share: Share | None = None

    def english(self):
        if self.share is None:
            return N_("%(repeats)s: the times scatter")
        return N_("%(repeats)s: the times scatter by %(share)s")


class Because(Doubt):
    code = "because"
    sentence = N_("doubtful: %(reason)s")
    reason: Doubt


class Page(BaseModel):
    doubt: Doubt | None = None


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (Slow(step=12000, seconds=0.5), "step 12,000 took 0.500 s"),
        (Scattered(repeats=[2]), "Repeat 2: the times scatter"),
        (Scattered(repeats=[2, 3], share=0.25), "Repeats 2, 3: the times scatter by 25 %"),
        (Because(reason=Slow(step=1, seconds=2.0)), "doubtful: step 1 took 2.00 s"),
    ],
)
def test_a_statement_has_a_sentence_for_each_case(statement, text):
    assert statement.text() == text


def test_a_statement_is_stored_as_its_code_and_its_fields():
    page = Page(doubt=Because(reason=Scattered(repeats=[1])))
    stored = page.model_dump_json()
    inner = {"code": "scattered", "params": {"repeats": [1]}}
    assert json.loads(stored) == {"doubt": {"code": "because", "params": {"reason": inner}}}
    assert Page.model_validate_json(stored) == page


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        ({"code": "fast", "params": {}}, "unknown code 'fast'"),
        ({"code": "slow", "params": {"step": 1}}, "doubt.seconds"),
        ({"code": "slow", "params": {"step": 1, "seconds": 1.0, "more": 2}}, "doubt.more"),
    ],
)
def test_unknown_codes_and_fields_are_refused(stored, problem):
    with pytest.raises(ValidationError, match=problem):
        Page.model_validate({"doubt": stored})


def test_every_sentence_of_a_translated_family_has_a_translation():
    with (language.CATALOGUES / "zh.po").open("rb") as stream:
        catalogue = {message.id for message in read_po(stream)}
    untranslated = []
    for family in (MeasurementWarning, Finding):
        for statement in family.classes.values():
            sentence = vars(statement).get("sentence")
            if sentence and sentence not in catalogue:
                untranslated.append(statement.__name__)
    assert untranslated == []
