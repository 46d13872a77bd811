"""perfkit.timing in an interpreter that has nothing but the standard library."""

import subprocess
import sys

import pytest

from perfkit.measuring.paths import ROOT

pytestmark = pytest.mark.usefixtures("processes")
MODULES = sorted(path.stem for path in (ROOT / "perfkit/timing").glob("[a-z]*.py"))


def run_alone(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in this interpreter without site-packages, warnings as errors; only the package
    itself is added to the path."""
    code = f"import sys; sys.path.append({str(ROOT)!r}); {code}"
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_the_timing_needs_the_standard_library_alone(module):
    done = run_alone(f"import perfkit.timing.{module}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_interpreter_of_these_tests_really_lacks_other_packages():
    done = run_alone("import pydantic")
    assert "No module named 'pydantic'" in done.stderr
