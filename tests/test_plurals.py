"""Counts and their nouns (one file, two files), and digits that tell nothing."""

import pytest

from perfkit.measuring.format import amount, size
from perfkit.report.audit_text import reported_text


def test_amounts_have_a_singular():
    assert amount(1, "repeat") == "1 repeat"
    assert amount(0, "repeat") == "0 repeats"
    assert amount(1234, "more file") == "1,234 more files"
    assert amount(2, "match", "matches") == "2 matches"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 byte"),
        (3_214, "3.21 kB"),
        (45_000, "45.0 kB"),
        (2_000_000_000, "2.00 GB"),
    ],
)
def test_sizes_have_a_unit_of_which_there_is_one(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("9.157509569779507e+16", "9.15751e+16"),
        ("307.93593720000000", "307.936"),
        ("0.148", "0.148"),
        ("2026-01-01T00:00:00", "2026-01-01T00:00:00"),
    ],
)
def test_a_number_with_many_digits_of_a_log_is_rounded(text, shown):
    assert reported_text(text) == shown
