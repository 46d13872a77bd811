"""The result of perfkit.compare in a notebook: it displays itself."""

import subprocess
import sys

import pytest
from made.results import measured, write_all

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
