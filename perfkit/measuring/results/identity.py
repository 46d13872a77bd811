"""What identifies a measurement: its configuration, protocol, environment and data set."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from perfkit.measuring.config import Config
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.results.base import Reading

NOT_IDENTITY = ("suite_commit", "suite_modified")
"""Facts that don't identify a measurement: `suite_source` has the code's digest."""


def identity(environment: Mapping[str, Reading]) -> dict[str, Any]:
    """Return the facts that must agree for repeats to belong to one measurement."""
    identifying = {}
    for name, reading in sorted(environment.items()):
        if name not in NOT_IDENTITY:
            identifying[name] = reading.value
    return identifying


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
        work.folder_name,
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
