"""How NCCL has connected the ranks of a measurement, from its own log.

At the level INFO, NCCL logs its initialization and nothing of each collective (subsystems INIT,
BOOTSTRAP and ENV, src/debug.cc), so the log takes no time of the window. The lines are those of
NCCL 2.18 to 2.30 (src/init.cc, src/transport). Logs are untrusted: only words of these forms
are kept, never a line, an address or a host name.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from perfkit.core.config import RunConfig
from perfkit.core.results.schema import Nccl

LOG_NAME, LOGS = "nccl-%h-%p.txt", "nccl-*.txt"
"""Name of the log of a process, with its host and number as NCCL writes them; pattern of the
names. Paddle's launcher command removes files that end in .log."""
MOST_LOGS, MOST_BYTES, MOST_LINE, MOST_NAMES = 64, 2**20, 2000, 64
"""Logs of a node, bytes of a log, characters of a line and names of a kind that are read."""

VERSION = re.compile(r"NCCL version (\d[\w.+-]{1,40})")
NETWORK = re.compile(r"Using network ([A-Za-z][\w .-]{0,40})")
ADAPTERS = re.compile(r"NET/(?:IB|Socket) : Using (\[.{1,1900})")
ADAPTER = re.compile(r"\[\d{1,4}\]([\w.@+-]{1,64}(?::\d{0,4}){1,3}/\w{1,20}|[\w.@+-]{1,64})")
"""An adapter with its port and link, such as mlx5_0:1/RoCE, or an interface before its
address."""
CHANNEL = re.compile(
    r"Channel \d{1,4}(?:/\d{1,4})? : (\d{1,7})\[\w{1,16}\] -> (\d{1,7})\[\w{1,16}\] "
    r"(?:\[send\] )?via ([A-Z][\w/ ()\[\]-]{0,80})"
)
"""A channel from one rank to another, in the log of the sender. The receiver logs channels over
a network, too."""
CONNECTED = re.compile(r"Connected (all rings|all trees|NVLS tree)")
MULTICAST = re.compile(r"NVLS multicast support is (not )?available")


class Channel(NamedTuple):
    """A connection from a rank to another, and its transport."""

    sender: int
    receiver: int
    transport: str


def log_settings(config: RunConfig, scratch: Path) -> dict[str, str]:
    """Return the variables by which NCCL logs into the folder `scratch`; none if the ranks do
    not use NCCL, or if the user has set variables of its log."""
    is_set = any(name.startswith("NCCL_DEBUG") for name in os.environ)
    if config.device != "gpu" or config.ranks == 1 or is_set:
        return {}
    folder = str(scratch).replace("%", "%%")
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{folder}/{LOG_NAME}"}


def read_logs(folder: Path, devices: int) -> Nccl | None:
    """Return what the logs in a folder say, of ranks that run `devices` to a node; None without
    logs that can be read."""
    lines: list[str] = []
    for path in sorted(folder.glob(LOGS))[:MOST_LOGS]:
        with suppress(OSError), path.open("rb") as stream:
            text = stream.read(MOST_BYTES).decode(errors="replace")
            lines += [line[:MOST_LINE] for line in text.splitlines()]
    return parse(lines, devices) if lines else None


def parse(lines: Sequence[str], devices: int) -> Nccl:
    """Return what the logs of one node's processes say."""
    networks = _all(NETWORK, lines)
    connected = {words.removeprefix("all ") for words in _all(CONNECTED, lines)}
    multicast = [not absent for absent in _all(MULTICAST, lines)]
    between_devices: Counter[str] = Counter()
    between_nodes: Counter[str] = Counter()
    for channel in sorted({*_channels(lines)}):
        is_inside = channel.sender // devices == channel.receiver // devices
        transports = between_devices if is_inside else between_nodes
        transports[channel.transport] += 1
    return Nccl(
        version=next(_all(VERSION, lines), None),
        network=next((name.strip() for name in networks), None),
        adapters=_adapters(lines),
        between_devices=dict(between_devices.most_common(MOST_NAMES)),
        between_nodes=dict(between_nodes.most_common(MOST_NAMES)),
        connected=sorted(connected),
        multicast=all(multicast) if multicast else None,
    )


def _all(pattern: re.Pattern[str], lines: Iterable[str]) -> Iterator[str]:
    """Yield the first group of the pattern in each line that has it; empty if it is absent."""
    for line in lines:
        if found := pattern.search(line):
            yield found[1] or ""


def _adapters(lines: Iterable[str]) -> list[str]:
    adapters: set[str] = set()
    for listed in _all(ADAPTERS, lines):
        adapters |= {*ADAPTER.findall(listed)}
    return sorted(adapters)[:MOST_NAMES]


def _channels(lines: Iterable[str]) -> Iterator[Channel]:
    """Yield the channels, without the numbers of adapters in their transports."""
    for line in lines:
        if found := CHANNEL.search(line):
            sender, receiver, transport = found.groups()
            parts = [part for part in transport.strip().split("/") if not part[:1].isdigit()]
            yield Channel(int(sender), int(receiver), "/".join(parts))


def merged(parts: Sequence[Nccl]) -> Nccl | None:
    """Return what the logs of all nodes say together; None without logs. A channel counts on
    the node of its sender alone."""
    if not parts:
        return None
    between_devices: Counter[str] = Counter()
    between_nodes: Counter[str] = Counter()
    adapters: set[str] = set()
    connected: set[str] = set()
    for part in parts:
        between_devices.update(part.between_devices)
        between_nodes.update(part.between_nodes)
        adapters |= {*part.adapters}
        connected |= {*part.connected}
    multicast = [part.multicast for part in parts if part.multicast is not None]
    return Nccl(
        version=next((part.version for part in parts if part.version), None),
        network=next((part.network for part in parts if part.network), None),
        adapters=sorted(adapters)[:MOST_NAMES],
        between_devices=dict(between_devices.most_common(MOST_NAMES)),
        between_nodes=dict(between_nodes.most_common(MOST_NAMES)),
        connected=sorted(connected),
        multicast=all(multicast) if multicast else None,
    )
