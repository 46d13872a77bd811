"""Stored measurements.

schema.py      models of result.json
store.py       a measurement's folder: paths, atomic writes, strict reading
summarize.py   a repeat's numbers from the raw events of its ranks or the prints of its log
telemetry.py   summary of the telemetry in a repeat's window
frames.py      measurements and raw steps as pandas DataFrames
outputs.py     all measurements of an outputs folder, checked against their raw files
"""

import hashlib

from perfkit.config import ROOT

SOURCES = ("*.py", "results/*.py", "models/*.py")
"""Modules below `perfkit/` from which the rows and checks of stored results follow."""


def code_digest() -> str:
    """Return the SHA-256 of these modules' files. Raises OSError."""
    files = [file for part in SOURCES for file in sorted((ROOT / "perfkit").glob(part))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


CODE = code_digest()
"""The digest when this process began to import them; the files may change later."""
