"""A small tmpfs that tests can fill to the last page."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FILLER = "filler"


class SmallDisk:
    """A tmpfs at `path` with room for 1 MB."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def leave(self, *, pages: int | None = None) -> None:
        """Fill the disk up to this many free pages; without arguments, free it."""
        filler = self.path / FILLER
        filler.unlink(missing_ok=True)
        disk = os.statvfs(self.path)
        if pages is not None and disk.f_bfree > pages:
            size = (disk.f_bfree - pages) * disk.f_bsize
            with filler.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, size)


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Mount a small disk at the new folder `path`, or skip the test if that is impossible."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "perfkit", str(path)]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        disk = SmallDisk(path)
        disk.leave()
        yield disk
    finally:
        subprocess.run(["umount", str(path)], check=True)
