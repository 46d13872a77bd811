"""Results of Python calls in a notebook: they display themselves."""

import subprocess
import sys

import pytest
from made import measured, write_all

import perfkit
from perfkit.analysis.comparison.history import history
from perfkit.report.displays import SECTIONS

SESSION = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_cell("import perfkit", store_history=True)
shell.run_cell("perfkit.compare({a!r}, {b!r})", store_history=True)
"""


@pytest.mark.usefixtures("processes")
def test_a_comparison_in_ipython_shows_what_the_command_prints(tmp_path):
    slow, fast = measured([4.0] * 7, label="slow"), measured([8.0] * 7, label="fast")
    a, b = (write_all(tmp_path / name, result) for name, result in (("a", slow), ("b", fast)))
    code = SESSION.format(a=str(a), b=str(b))
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    output = printed.partition("Out[2]:")[2]
    assert "faster" in output
    assert "Comparison(" not in output


def test_every_displayed_result_has_a_section(tmp_path):
    named = {f"perfkit.{m}.{name}" for m, names in perfkit.DISPLAYED.items() for name in names}
    assert named == {f"{kind.__module__}.{kind.__name__}" for kind in SECTIONS}
    days = []
    for day in range(1, 4):
        created = f"2026-01-0{day}T00:00:00+00:00"
        days.append(
            measured([4.0, 4.1], label=f"day{day}").model_copy(update={"created": created})
        )
    outputs = write_all(tmp_path, *days)
    for result in (
        perfkit.compare("day1", "day2", outputs=outputs),
        history(perfkit.load(outputs)),
    ):
        text = repr(SECTIONS[type(result)](result))
        assert text and len(text) < len(repr(result))
