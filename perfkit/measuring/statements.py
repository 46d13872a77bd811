"""Statements about a number or a log: warnings and findings.

A statement is a small class: typed fields, and one English sentence for each case. A family,
such as `Finding`, registers its classes by their codes in the order of their definition.
Results store a statement as its code and its fields, and nothing reads a sentence back.
`Statement.text` gives the sentence in English, `perfkit.report.text.statements` in the reader's
language.

class Finding(Statement):
    classes: ClassVar = {}

class Gap(Finding):
    code = "gap"
    sentence = N_("no line tells of %(steps)s steps, which took %(seconds)s s")
    steps: int
    seconds: Digits3
"""

from collections.abc import Callable
from dataclasses import dataclass
from gettext import NullTranslations
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo

from perfkit.measuring.format import changes, number, percent

Severity = Literal["error", "caution", "notice"]
ENGLISH = NullTranslations()


def N_(text: str) -> str:
    """Mark an English text that is translated when it is shown."""
    return text


@dataclass(frozen=True)
class Format:
    """How a field is written in a sentence, given its value and the reader's language."""

    as_text: Callable[[Any, NullTranslations], str]


def _repeats(numbers: list[int], language: NullTranslations) -> str:
    words = language.ngettext("Repeat %(numbers)s", "Repeats %(numbers)s", len(numbers))
    return words % {"numbers": ", ".join(map(str, numbers))}


Repeats = Annotated[list[int], Format(_repeats)]
"""Numbers of repeats, at the beginning of a sentence: "Repeats 2, 3"."""
Share = Annotated[float, Format(lambda share, _language: percent(share))]
"""A fraction, written in percent."""
Changes = Annotated[list[float], Format(lambda shares, _language: changes(shares))]
"""Relative differences, written in percent with their signs."""
Digits2 = Annotated[float, Format(lambda value, _language: number(value, 2))]
Digits3 = Annotated[float, Format(lambda value, _language: number(value, 3))]
"""A number with so many significant digits."""
Verbatim = Annotated[int, Format(lambda value, _language: str(value))]
"""A number without separators between its digits, such as a port."""


class _Stored(BaseModel, extra="forbid"):
    """The stored form of a statement."""

    code: str
    params: dict[str, Any] = {}


class Statement(BaseModel):
    """One statement; its subclasses have its code, its fields, and `sentence` with `%(field)s`.
    A class with several cases defines `english` instead, which chooses the sentence."""

    # Workers import many statements and make few: schemas are built at first use, and
    # docs/reference.py reads the fields' docstrings.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    classes: ClassVar[dict[str, type[Any]]]
    """Code -> class, in the order of their definition; each family has its own."""
    code: ClassVar[str]
    sentence: ClassVar[str]

    @classmethod
    def __pydantic_init_subclass__(cls, **_options: Any) -> None:
        if "code" not in vars(cls):
            return
        if cls.code in cls.classes:
            raise TypeError(f"two statements of one family have the code {cls.code!r}")
        cls.classes[cls.code] = cls

    @model_validator(mode="wrap")
    @classmethod
    def _by_code(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Any:
        """Read a statement that was stored as its code and its fields."""
        if not isinstance(value, dict):
            return handler(value)
        is_family = "classes" in vars(cls)
        if not is_family and value.keys() != {"code", "params"}:
            return handler(value)
        stored = _Stored.model_validate(value)
        statement = cls.classes.get(stored.code)
        if statement is None or not issubclass(statement, cls):
            raise ValueError(f"unknown code {stored.code!r}")
        return statement.model_validate(stored.params)

    @model_serializer
    def _as_code(self) -> dict[str, Any]:
        return {"code": self.code, "params": self.fields()}

    def english(self) -> str:
        """Return the sentence of this case, with placeholders."""
        return self.sentence

    def fields(self) -> dict[str, Any]:
        """Return the fields that have a value."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in values.items() if value is not None}

    def parts(self) -> dict[str, Any]:
        """Return further values of the sentence, made from fields, such as the name of a rank.
        None: the sentence does not need it."""
        return {}

    def text(self, language: NullTranslations = ENGLISH) -> str:
        """Return the sentence in a language, English by default."""
        texts = {}
        for name, value in self.fields().items():
            texts[name] = self._field_text(name, value, language)
        for name, value in self.parts().items():
            if value is not None:
                texts[name] = value_text(value, language)
        return language.gettext(self.english()) % texts

    def _field_text(self, name: str, value: Any, language: NullTranslations) -> str:
        declared = _declared_format(type(self).model_fields[name])
        if declared is None:
            return value_text(value, language)
        return declared.as_text(value, language)


def _declared_format(field: FieldInfo) -> Format | None:
    """Return the Format of a field whose type is `Share`, `Share | None` or the like."""
    notes = [*field.metadata]
    if get_origin(field.annotation) in (Union, UnionType):
        for part in get_args(field.annotation):
            notes += getattr(part, "__metadata__", ())
    return next((note for note in notes if isinstance(note, Format)), None)


def value_text(value: Any, language: NullTranslations = ENGLISH) -> str:
    """Return a value without a format of its own as text."""
    match value:
        case Statement():
            return value.text(language)
        case bool() | None:
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return number(value)
        case list() | tuple():
            return ", ".join(value_text(item, language) for item in value)
    return str(value)
