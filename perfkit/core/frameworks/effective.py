"""Readings of the settings under which a worker's training effectively runs; see also
perfkit.training.effective."""

from contextlib import suppress
from pathlib import Path

TENSOR_CORES_SINCE = 7
"""First compute capability (Volta) with tensor cores."""
EXCHANGED_MEANWHILE = "during the backward pass"
EXCHANGED_AFTERWARDS = "after the backward pass"
"""Values of the setting `gradient_exchange`: when ranks begin to exchange gradients."""


def named_threads(*names: str) -> dict[str, int]:
    """Return name -> number of threads of this process with that name."""
    threads = []
    for path in Path("/proc/self/task").glob("*/comm"):
        # The thread may end meanwhile.
        with suppress(OSError):
            threads.append(path.read_text().strip())
    return {name: threads.count(name) for name in names}
