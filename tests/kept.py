"""What a sweep that is killed must keep."""

import hashlib
import json


def finished_repeats(outputs):
    """Raw file of every finished repeat -> its digest and when it was written. Reads all
    results and notebooks: one that is cut off raises ValueError."""
    found = {}
    for path in outputs.glob("*/result.json"):
        for repeat in json.loads(path.read_text())["repeats"]:
            if repeat["status"] == "complete":
                for raw in (path.parent / "repeats" / str(repeat["index"])).iterdir():
                    digest = hashlib.sha256(raw.read_bytes()).hexdigest()
                    found[str(raw)] = (digest, raw.stat().st_mtime_ns)
    for path in [*outputs.rglob("*.ipynb"), *outputs.glob("sweeps/*/jobs.json")]:
        if not path.name.startswith("."):
            json.loads(path.read_text())
    return found
