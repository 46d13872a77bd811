"""Why a run failed."""

from perfkit.measuring.format import plain
from perfkit.measuring.results.base import Stored


class Failure(Stored):
    """Why a run failed. Its texts have no home or checkout paths, and come in part from other
    programs."""

    code: str
    """what kind of failure; an exception of a rank can bring its own as `failure_code`"""
    reason: str
    """what happened and, if that is known, what to do: a sentence in English"""
    rank: int | None = None
    """the rank that failed; None if it is not known, or no rank did"""
    node: str | None = None
    """its node, or the nodes that failed; None with a single node"""
    log: str = ""
    """last lines of the rank's log or, without one, of the launchers' logs"""

    def line(self) -> str:
        """Return code and reason on one line, such as "timeout: repeat 1 took over 9 s"."""
        return plain(f"{self.code}: {self.reason}")
