"""The pages of an outputs folder and the links between them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from perfkit.report.text.language import file_name


@dataclass(frozen=True)
class Site:
    """The pages of an outputs folder. `written` has the folders below `outputs` whose pages are
    written together: links lead to these alone, since any other page may be somebody else's. If
    it is None, a single page is written, which links to those that exist."""

    outputs: Path
    written: frozenset[str] | None = None

    @classmethod
    def of(cls, outputs: Path, folders: Iterable[Path]) -> "Site":
        """Return the site in `outputs` with pages in these folders."""
        names = [folder.relative_to(outputs).as_posix() for folder in folders]
        return cls(outputs, frozenset(names))

    def has_page(self, folder: str) -> bool:
        """Whether the folder below `outputs` has a page to link to, or will."""
        if self.written is None:
            return (self.outputs / folder / file_name("report")).exists()
        return folder in self.written

    def address(self, folder: str) -> str:
        """Return the address of the page in this folder below `outputs`, relative to the page
        in a sibling folder; empty if there is no page."""
        if not self.has_page(folder):
            return ""
        return f"../{quote(folder)}/{file_name('report')}"
