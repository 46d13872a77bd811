"""What the prints of a log show besides their throughput: losses, restarts, gaps."""

from dataclasses import dataclass, field

import numpy as np

from perfkit.audit.blocks import Block, blocks
from perfkit.importers.log import Log, Running

FEW = 10
"""Losses at either end that are averaged."""


@dataclass
class Course:
    """What the prints of one rank show, gathered block by block."""

    first_losses: list[float] = field(default_factory=list)
    last_losses: list[float] = field(default_factory=list)
    losses: int = 0
    first_loss_step: int = 0
    lowest_loss: float = np.inf
    highest_loss: float = -np.inf
    lost_at: int = 0
    """The line of the first print without a finite loss since the last with one."""
    negatives: int = 0
    negative_line: int = 0
    lowest: float = 0.0
    restarts: int = 0
    restart_line: int = 0
    spacing: int = 0
    gaps: int = 0
    gap_line: int = 0
    odd_rates: int = 0
    odd_rate_line: int = 0
    samples_by_rate: float = np.nan
    """Of a step, by its printed rate and its printed time."""

    @classmethod
    def of(cls, log: Log, rank: int) -> "Course":
        course = cls()
        for number, block in enumerate(blocks(log, rank)):
            if number == 0:
                course._look(log, block)
            course._add(block)
        return course

    def _look(self, log: Log, block: Block) -> None:
        """What the first prints are enough for."""
        ahead = (block.rows["last"] - block.before["last"])[block.goes_on]
        if len(ahead):
            values, counts = np.unique(ahead, return_counts=True)
            most = int(counts.argmax())
            self.spacing = int(values[most]) if counts[most] >= 0.9 * len(ahead) else 0
        if not isinstance(log.meaning.covers, Running):
            found = block.rows["rate"] * block.rows["seconds"] / block.steps
            if (known := np.isfinite(found)).any():
                self.samples_by_rate = float(np.median(found[known]))

    def _add(self, block: Block) -> None:
        rows = block.rows
        self._add_losses(rows)
        for name, line, seen in (
            ("negatives", "negative_line", rows["accuracy"] < 0),
            ("odd_rates", "odd_rate_line", (rows["rate"] <= 0) | np.isinf(rows["rate"])),
            ("restarts", "restart_line", rows["run"] != block.before["run"]),
            (
                "gaps",
                "gap_line",
                block.goes_on
                & (rows["last"] - block.before["last"] > self.spacing)
                & (self.spacing > 0),
            ),
        ):
            if seen.any():
                if not getattr(self, name):
                    setattr(self, line, int(rows["line"][seen][0]))
                setattr(self, name, getattr(self, name) + int(seen.sum()))
        self.lowest = float(np.fmin.reduce(rows["accuracy"], initial=self.lowest))

    def _add_losses(self, rows: np.ndarray) -> None:
        finite = np.isfinite(rows["loss"])
        if finite.any():
            losses = rows["loss"][finite]
            if not self.losses:
                self.first_loss_step = int(rows["last"][finite][0])
            self.losses += len(losses)
            self.first_losses += losses[: FEW - len(self.first_losses)].tolist()
            self.last_losses = [*self.last_losses, *losses[-FEW:].tolist()][-FEW:]
            self.lowest_loss = min(self.lowest_loss, float(losses.min()))
            self.highest_loss = max(self.highest_loss, float(losses.max()))
            self.lost_at = 0
        after = np.flatnonzero(finite)[-1] + 1 if finite.any() else 0
        if self.losses and not self.lost_at and after < len(rows):
            self.lost_at = int(rows["line"][after])

    @property
    def ends(self) -> tuple[float, float]:
        """The mean losses of the first and the last prints."""
        few = max(min(FEW, self.losses // 2), 1)
        return sum(self.first_losses[:few]) / few, sum(self.last_losses[-few:]) / few
