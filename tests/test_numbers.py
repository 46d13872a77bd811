"""Each spelling of a number in a log is read as the number that it means, or not at all."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.audit import numbers
from perfkit.audit.custom_format import user_format
from perfkit.audit.formats import expression


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("12,810", 12810),
        ("1,234,567.5", 1234567.5),
        ("1_234", 1234),
        ("3.4e5", 340000),
        ("-2.5E-3", -0.0025),
        (".5", 0.5),
        ("5.", 5),
        ("340K", 340000),
        ("1.5k", 1500),
        ("1.2M", 1200000),
        ("1.2 M", 1200000),
        ("8.03B", 8.03e9),
        ("35.6%", 35.6),
    ],
)
def test_a_number_is_read_in_every_spelling(text, value):
    assert numbers.number(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("51", 51),
        ("51s", 51),
        ("51.2 ms", 0.0512),
        ("51.2ms", 0.0512),
        ("40us", 4e-5),
        ("2.5 min", 150),
        ("1.5h", 5400),
        ("1,250 ms", 1.25),
        ("02:03", 123),
        ("12:34:56", 45296),
        ("1:02:03.4", 3723.4),
        ("1 day, 0:02:03", 86523),
        ("2 days, 1:00:00.5", 176400.5),
        ("1h 2m 3.4s", 3723.4),
        ("2m3s", 123),
    ],
)
def test_a_time_is_read_in_seconds_in_every_spelling(text, value):
    assert numbers.seconds(text) == pytest.approx(value)


def test_a_time_without_a_unit_has_the_unit_of_its_column():
    in_milliseconds = numbers.times(["250", "0.25 s", None], 0.001)
    assert in_milliseconds == pytest.approx([0.25, 0.25, np.nan], nan_ok=True)


@pytest.mark.parametrize(
    "text", ["12,81", "12,8101", "1,23,456", "1.234,5", "1.2.3", "1.2Q", "abc", "", "1 2"]
)
def test_a_text_that_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match="no number"):
        numbers.number(text)


@given(st.floats(1e-3, 1e12))
def test_any_number_with_separators_is_the_number_without(value):
    for separator in ",_":
        text = f"{value:{separator}.3f}"
        match = expression("tps: <rate>").fullmatch(f"tps: {text}")
        assert match
        assert numbers.numbers([match["rate"]]) == pytest.approx([float(f"{value:.3f}")])


@pytest.mark.parametrize("text", ["12,81", "12,8101", "12.810,5", "1.2.3", "1" * 30])
@pytest.mark.parametrize("column", ["rate", "seconds", "loss"])
def test_no_part_of_a_number_is_read(text, column):
    assert not expression(f"value: <{column}>").search(f"value: {text}")


@pytest.mark.parametrize("text", ["12,8", "12,81", "12_81"])
def test_no_part_of_a_whole_number_is_read(text):
    assert not expression("step <step>").search(f"step {text}")


def test_commas_between_columns_are_no_separators_of_thousands():
    match = expression("it <step>,<seconds>,<rate>$").search("it 10,250,1024")
    assert match
    assert match.group("step", "seconds", "rate") == ("10", "250", "1024")


@pytest.mark.parametrize(
    ("printed", "seconds"),
    [("0.25", 0.25), ("250 ms", 0.25), ("0:00:01.5", 1.5)],
)
def test_a_custom_format_reads_times_in_every_spelling(read, printed, seconds):
    form = user_format("it <step> took <seconds>")
    text = "".join(f"it {step} took {printed}\n" for step in range(1, 31))
    assert read(text, form=form).windows["seconds"].to_numpy() == pytest.approx(seconds)


@pytest.mark.parametrize("printed", ["12,810", "12_810", "12.81k"])
def test_a_custom_format_reads_rates_in_every_spelling(read, printed):
    form = user_format(r"step <step> \| <rate>(?: tok/s)?$", "rate_of=all")
    text = "".join(f"step {step} | {printed} tok/s\n" for step in range(1, 31))
    assert read(text, form=form).windows["rate"].to_numpy() == pytest.approx(12810)


def test_a_groups_own_pattern_reads_the_same_spellings(read):
    form = user_format(r"it (?P<step>\d+) (?P<rate>\S+) (?P<milliseconds>\S+)", "rate_of=all")
    text = "".join(f"it {step} 12,810 1.5s\n" for step in range(1, 31))
    windows = read(text, form=form).windows
    assert windows["rate"].to_numpy() == pytest.approx(12810)
    assert windows["seconds"].to_numpy() == pytest.approx(1.5)


def test_a_decimal_comma_makes_no_number(read):
    form = user_format(r"it (?P<step>\d+) (?P<seconds>\S+)")
    windows = read("it 1 0.25\nit 2 0,25\nit 3 0.25\n", form=form).windows
    assert [*windows["seconds"].fillna(0)] == [0.25, 0, 0.25]


COLOURED = (
    "\x1b[31mstep: {:2}  \x1b[32mloss:  8.1  \x1b[34mtps: {:,}  \x1b[36mtflops: 47.1\x1b[39m\n"
)


def test_colours_inside_a_line_do_not_hide_its_numbers(read):
    text = "".join(COLOURED.format(step, 12810 + step) for step in range(10, 151, 10))
    log = read(text)
    assert log.format == "torchtitan"
    assert [*log.windows["rate"]] == [12810 + step for step in range(10, 151, 10)]


@given(st.text("0123456789,._:eE+-kKMs %hmd", max_size=60))
def test_any_text_is_a_number_or_refused(text):
    for convert in (numbers.number, numbers.seconds):
        try:
            assert isinstance(convert(text), float)
        except ValueError as error:
            assert re.search("no number|no time|could not convert", str(error))
