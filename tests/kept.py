"""Finished repeats, which a killed sweep must keep."""

import hashlib
import json


def finished_repeats(outputs):
    """Map the raw files of finished repeats to digest and modification time in ns.

    Raises ValueError if a result or a notebook is truncated.
    """
    states = {}
    for path in outputs.glob("*/result.json"):
        result = json.loads(path.read_text())
        for repeat in result["repeats"]:
            if repeat["status"] != "complete":
                continue
            raw_folder = path.parent / "repeats" / str(repeat["index"])
            for raw_file in raw_folder.iterdir():
                digest = hashlib.sha256(raw_file.read_bytes()).hexdigest()
                states[str(raw_file)] = (digest, raw_file.stat().st_mtime_ns)
    for notebook in outputs.glob("*/notebook.ipynb"):
        json.loads(notebook.read_text())
    return states
