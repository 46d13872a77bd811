"""Finished repeats, which a killed sweep must keep."""

import hashlib
import json


def finished_repeats(outputs):
    """Map the raw files of finished repeats to digest and modification time in ns.

    Raises ValueError if a result or a notebook is truncated.
    """
    found = {}
    for path in outputs.glob("*/result.json"):
        for repeat in json.loads(path.read_text())["repeats"]:
            if repeat["status"] == "complete":
                for raw in (path.parent / "repeats" / str(repeat["index"])).iterdir():
                    digest = hashlib.sha256(raw.read_bytes()).hexdigest()
                    found[str(raw)] = (digest, raw.stat().st_mtime_ns)
    for path in outputs.glob("*/notebook.ipynb"):
        json.loads(path.read_text())
    return found
