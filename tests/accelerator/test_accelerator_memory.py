"""The fake accelerator shows values that are used before they are ready, or after their memory
was freed."""

import json
import math

import pytest
from accelerator.fake import FOLDER, run_python

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def values(plugin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unready")
    done = run_python([str(FOLDER / "unready.py")], folder, plugin, "fake", {})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_copy_that_is_read_before_it_is_ready_gives_nan(values):
    assert math.isnan(values["early"])


def test_a_copy_that_is_waited_for_gives_its_values(values):
    assert values["waited"] == 5_000_000


def test_new_and_freed_memory_have_no_values(values):
    assert math.isnan(values["new"])
    assert math.isnan(values["freed"])
