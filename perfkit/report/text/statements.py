"""Sentences of statements in the current language."""

from perfkit.measuring.statements import Statement
from perfkit.report.text.language import translations


def sentence(statement: Statement) -> str:
    """Return the sentence of a warning or a finding."""
    return statement.text(translations())
