"""The pages of an outputs folder and the links between them."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from perfkit.analysis.diagnosis.stored import FILE as DIAGNOSIS
from perfkit.analysis.diagnosis.stored import read_model_diagnosis
from perfkit.core.results.store import ResultError
from perfkit.report.text.language import file_name


@dataclass(frozen=True)
class Site:
    """The pages of an outputs folder. While all pages are being written, `planned` has the
    folders below `outputs` that get one. `diagnosed` has the ids of measurements with synthetic
    input and, for each, the folders of the diagnoses that used it."""

    outputs: Path
    planned: frozenset[str] = frozenset()
    diagnosed: Mapping[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, outputs: Path, planned: Iterable[Path] = ()) -> "Site":
        """Return the site in `outputs` with the diagnoses stored there."""
        diagnosed: dict[str, list[str]] = {}
        for file in sorted(outputs.glob(f"*/{DIAGNOSIS}")):
            # A script's diagnosis, which uses no other measurement, can't be read as a model's.
            with suppress(ResultError):
                diagnosis = read_model_diagnosis(file.parent)
                if diagnosis:
                    folders = diagnosed.setdefault(diagnosis.synthetic_id, [])
                    folders.append(file.parent.name)
        names = frozenset(folder.relative_to(outputs).as_posix() for folder in planned)
        return cls(outputs, names, diagnosed)

    def has_page(self, folder: str) -> bool:
        """Whether the folder below `outputs` has a page in the current language, or will."""
        page = self.outputs / folder / file_name("report")
        return folder in self.planned or page.exists()

    def address(self, folder: str) -> str:
        """Return the address of the page in this folder below `outputs`, relative to the page
        in a sibling folder; empty if there is no page."""
        if not self.has_page(folder):
            return ""
        return f"../{quote(folder)}/{file_name('report')}"
