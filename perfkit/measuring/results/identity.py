"""What identifies a measurement: its configuration, protocol, environment and data set."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from perfkit.measuring.config import Config
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.results.base import Reading
from perfkit.measuring.work import Work

MOST_OF_NAME = 40
"""Longest part of a folder's name that names the work."""
NOT_IDENTITY = ("suite_commit", "suite_modified")
"""Facts that don't identify a measurement: `suite_source` has the code's digest."""


def identity(environment: Mapping[str, Reading]) -> dict[str, Any]:
    """Return the facts that must agree for repeats to belong to one measurement."""
    identifying = {}
    for name, reading in sorted(environment.items()):
        if name not in NOT_IDENTITY:
            identifying[name] = reading.value
    return identifying


def folder_name(work: Work) -> str:
    """Return the name of a work as far as it can be part of a folder's; without `.py`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", PurePosixPath(work.name).stem)[:MOST_OF_NAME]


def measurement_id(
    config: Config,
    protocol: Protocol,
    environment: Mapping[str, Reading],
    data_sha256: str | None,
) -> str:
    """Return the id of a measurement, which is the name of its folder: configuration, protocol,
    label, node of a fleet, and a digest of everything that identifies it, so that only
    repeats of the same measurement share a folder."""
    identifying = [
        config.identity,
        protocol.model_dump(),
        identity(environment),
        data_sha256,
    ]
    text = json.dumps(identifying, sort_keys=True)
    work = config.work
    parts = [
        folder_name(work),
        config.framework,
        work.precision,
        config.topology,
        f"b{work.batch_size}" if work.batch_size else "",
        config.device,
        work.input,
        protocol.name,
        config.label,
        config.node,
        hashlib.sha256(text.encode()).hexdigest()[:8],
    ]
    return "-".join(part for part in parts if part)
