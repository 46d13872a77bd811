"""Training logs of other suites, read as windows of steps.

A format is one module of this package, which declares what its figures mean, how its prints are
found and what else a file of it tells. A file is recognised by its content.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from perfkit.importers import (
    dllogger,
    fleetx,
    mlperf,
    oneflow,
    optimum,
    paddle18,
    paddleclas_dynamic,
    paddleclas_static,
    paddlenlp_bert,
    tf_cnn,
    torchbench,
)
from perfkit.importers.facts import Facts
from perfkit.importers.form import Document, Form
from perfkit.importers.lines import CHUNK_BYTES, Chunk, chunks
from perfkit.importers.log import Fact, Log, LogError, Meaning, Note, Told, Windows
from perfkit.importers.sayings import LINES
from perfkit.importers.steps import Steps

FORMS: tuple[Form, ...] = (
    paddleclas_static.FORM,
    paddleclas_dynamic.FORM,
    paddlenlp_bert.FORM,
    paddle18.FORM,
    fleetx.FORM,
    *dllogger.FORMS,
    oneflow.FORM,
    tf_cnn.FORM,
    mlperf.FORM,
)
DOCUMENTS: tuple[Document, ...] = (torchbench.DOCUMENT, optimum.DOCUMENT)
DOCUMENT_BYTES = 16 * 1024 * 1024
"""How long a file may be that is one JSON object."""
TOLD = 10_000
NOTES = 100
"""How many of its own figures and of its oddities are kept of one log; a hostile one could fill
the memory with them."""


def read_log(path: Path) -> Log:
    """Reads a log from beginning to end, in memory that does not grow with it.

    Raises LogError where it can't be read, is empty or in no known format.
    """
    try:
        with path.open("rb", buffering=0) as file:
            return _Reading(path).log(file)
    except OSError as error:
        raise LogError(f"{path}: {error.strerror or error}.") from error


class _Reading:
    """One file on its way to a Log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._facts = Facts()
        self._windows = Windows()
        self._told: list[Told] = []
        self._notes: list[Note] = []
        self._form: Form | None = None
        self._steps: Steps | None = None
        self._nuls = 0

    def log(self, file: BinaryIO) -> Log:
        digest = hashlib.sha256()
        last = None
        for last in chunks(file, digest.update):
            self._take(last)
        if last is None:
            raise LogError(f"{self._path} is empty.")
        if self._form:
            name, meaning = self._form.name, self._form.meaning
            if not last.ended:
                words = "the last line has no end: the file may be cut off in it"
                self._note(last.line + last.text.count(b"\n"), words)
        else:
            name, meaning = self._take_document(file)
        if self._nuls:
            self._note(0, f"{self._nuls} NUL bytes were left out")
        self._facts.read_name(self._path)
        self._facts.derive()
        return Log(
            path=self._path,
            format=name,
            sha256=digest.hexdigest(),
            meaning=meaning,
            windows=self._windows,
            facts=self._facts.facts,
            told=self._told,
            notes=[*self._notes, *self._facts.notes],
        )

    def _take(self, chunk: Chunk) -> None:
        self._nuls += chunk.nuls
        if chunk.cut:
            words = f"the line is longer than {CHUNK_BYTES} bytes: its rest was left out"
            self._note(chunk.line + chunk.text.count(b"\n") - 1, words)
        if self._form is None:
            self._recognise(chunk)
        if self._form is None or self._steps is None:
            return
        rows, rest = self._form.rows(chunk)
        self._windows.append(self._steps.windows(rows))
        for text in self._form.said_in(rest):
            self._facts.read(text, self._form.sayings)
        for figure in self._form.figures(rest):
            if len(self._told) < TOLD:
                self._told.append(figure)

    def _recognise(self, chunk: Chunk) -> None:
        """Learns the format from the first chunk that has a print, and what all of it says."""
        self._facts.read(chunk, LINES)
        found = [form for form in FORMS if form.is_in(chunk.text)]
        if not found:
            return
        form, *others = found
        rows, _ = form.rows(chunk)
        form = replace(form, meaning=form.judged(form.meaning, rows, chunk.text))
        self._form, self._steps = form, Steps(form.meaning)
        for name, value in (("framework", form.framework), ("unit", form.unit)):
            if value:
                self._facts.facts[name] = Fact(value, "its format")
        for other in others:
            self._note(0, f"lines of another format are left out: {other.name}")

    def _take_document(self, file: BinaryIO) -> tuple[str, Meaning]:
        """Reads a file that is one JSON object, maybe in one line of any length."""
        document = None
        file.seek(0)
        text = file.read(DOCUMENT_BYTES + 1)
        if text.lstrip()[:1] == b"{":
            if len(text) > DOCUMENT_BYTES:
                raise LogError(
                    f"{self._path} begins like JSON, of over {DOCUMENT_BYTES} bytes."
                )
            try:
                document = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise LogError(
                    f"{self._path} begins like JSON, but is not: {error}."
                ) from error
        for form in DOCUMENTS:
            if document is not None and (contents := form.read(document)):
                self._windows.append(Steps(form.meaning).windows(contents.rows))
                self._told = contents.told[:TOLD]
                for name, value in contents.facts.items():
                    self._facts.add(name, value, 1)
                return form.name, form.meaning
        known = "; ".join([form.name for form in FORMS] + [form.name for form in DOCUMENTS])
        raise LogError(f"{self._path} is in no known format. Known are: {known}.")

    def _note(self, line: int, words: str) -> None:
        if len(self._notes) < NOTES:
            self._notes.append(Note(line, words))
