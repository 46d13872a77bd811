"""A small disk of its own, to be filled up to the last byte or the last file."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FILLER = "filler"


class SmallDisk:
    """A tmpfs of a megabyte and 200 files at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def leave(self, *, pages: int | None = None, files: int | None = None) -> None:
        """Fill it so that so many pages, or so many files, can still be written; none given:
        free what was filled."""
        filler = self.path / FILLER
        filler.mkdir(exist_ok=True)
        for old in filler.iterdir():
            old.unlink()
        free = os.statvfs(self.path)
        if files is not None:
            for number in range(free.f_ffree - files):
                (filler / str(number)).touch()
        if pages is not None and free.f_bfree > pages:
            with (filler / "bytes").open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, (free.f_bfree - pages) * free.f_bsize)


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Mount one at the new folder `path`; skips the test where that can't be done."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=200", "perfkit", str(path)]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("a tmpfs can't be mounted here")
    try:
        disk = SmallDisk(path)
        disk.leave()
        yield disk
    finally:
        subprocess.run(["umount", str(path)], check=True)
