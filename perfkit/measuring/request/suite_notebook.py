"""The suite's notebooks, which only a checkout has."""

from pathlib import Path

from perfkit.measuring.paths import IS_CHECKOUT, ROOT
from perfkit.measuring.request import RequestError

NOT_INSTALLED = (
    "perfkit is installed without its notebooks, which this command runs: install it from a "
    "checkout of perfkit, by pip install -e '.[report]' there; in Python, perfkit.plan, "
    "perfkit.measure and perfkit.load work without them"
)


def suite_notebook_path(name: str) -> Path:
    """Return the path of notebooks/<name>.ipynb. Raises RequestError without a checkout."""
    if not IS_CHECKOUT:
        raise RequestError([NOT_INSTALLED])
    return ROOT / "notebooks" / f"{name}.ipynb"
