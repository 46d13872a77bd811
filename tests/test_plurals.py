"""Counts and their nouns (one file, two files), and digits that tell nothing."""

import re

import pytest
from conftest import cli
from log_writers import paddleclas
from made import measured, stored, write_all

import perfkit
from perfkit.measuring.format import amount, size
from perfkit.report.audit_text import reported_text
from perfkit.report.comparison import selected_comparison
from perfkit.report.site import write_site

PLURALS = "files|repeats|steps|lines|measurements|warnings|logs|numbers|ranks|facts|pairs"
WRONG = re.compile(rf"(?<![\d.,–-])\b1 (?:{PLURALS})\b")
"""A single one of several."""


def text_of(page):
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_amounts_have_a_singular():
    assert amount(1, "repeat") == "1 repeat"
    assert amount(0, "repeat") == "0 repeats"
    assert amount(1234, "more file") == "1,234 more files"
    assert amount(2, "match", "matches") == "2 matches"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 byte"),
        (512, "512 bytes"),
        (3_214, "3.21 kB"),
        (45_000, "45.0 kB"),
        (12_345_678, "12.3 MB"),
        (2_000_000_000, "2.00 GB"),
    ],
)
def test_sizes_have_a_unit_of_which_there_is_one(count, text):
    assert size(count) == text


@pytest.mark.slow
def test_pages_of_a_single_repeat_have_no_plural(tmp_path):
    made = write_all(tmp_path, measured([100.0]))
    stored(made / "raw")
    write_site(tmp_path, lambda _done: None)
    pages = [*tmp_path.rglob("*.html")]
    assert len(pages) > 3
    for page in pages:
        text = text_of(page.read_text())
        assert WRONG.findall(text) == [], page.name
    (page,) = (page for page in pages if "b32" in str(page) and page.name == "report.html")
    assert "Protocol published, changed: 1 repeat of 20 warm-up" in text_of(page.read_text())


def test_a_comparison_of_single_repeats_has_no_plural(tmp_path):
    a = write_all(tmp_path / "a", measured([100.0]))
    b = write_all(tmp_path / "b", measured([101.0]))
    text = repr(selected_comparison(perfkit.compare(a, b)))
    assert WRONG.findall(" ".join(text.split())) == []


def test_an_audit_of_a_single_line_has_no_plural(tmp_path):
    path = tmp_path / "PaddleClas_ResNet50_bs256_fp32_DP_N1C8_log"
    path.write_text(paddleclas([0.5] * 10, 10))
    done = cli("audit", path, "--all")
    assert "1 line" in done.stdout
    assert WRONG.findall(" ".join(done.stdout.split())) == []


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
