"""Why a run failed: a class for each code, with its fields and a sentence for each case.

Text of other programs is in `detail`, `output`, `last_lines` and `peer_detail`. Whoever makes a
failure removes home and checkout paths from its texts with `portable`.
"""

from typing import Any, ClassVar

from perfkit.core.format import plain
from perfkit.core.statements import N_, Statement, Verbatim

PLACE_AND_DETAIL = N_("%(place)s: %(detail)s")


class Failure(Statement):
    """Why a run failed."""

    classes: ClassVar = {}

    def line(self) -> str:
        """Return the code and the English sentence on one line, such as "timeout: repeat 1 took
        over 9 s"."""
        return f"{self.code}: {plain(self.text())}"


# Parts of sentences that several failures share.


class Part(Statement):
    """A part of a failure's sentence, made from some of its fields."""

    classes: ClassVar = {}


class RankName(Part):
    """A rank and, if there are several nodes, its node."""

    rank: int
    node: str | None = None

    def english(self) -> str:
        if self.node is None:
            return N_("rank %(rank)s")
        return N_("rank %(rank)s on %(node)s")


class RankNames(Part):
    """Several ranks and, if there are several nodes, their nodes."""

    ranks: list[int]
    nodes: list[str] | None = None

    def english(self) -> str:
        if self.nodes is None:
            return N_("ranks %(ranks)s")
        return N_("ranks %(ranks)s on %(nodes)s")


class OneOfRanks(Part):
    """One of several ranks that can't be told apart."""

    sentence = N_("one of the %(ranks)s")
    ranks: RankNames


class OneOfWorkers(Part):
    """One of all workers, of which none can be named."""

    workers: int | None
    node: str | None = None

    def english(self) -> str:
        if self.node is None:
            return N_("one of %(workers)s workers")
        return N_("one of %(workers)s workers on %(node)s")


class Reached(Part):
    """How far a rank came."""

    step: int
    next_step: int | None = None

    def english(self) -> str:
        if self.next_step is None:
            return N_("after step %(step)s")
        return N_("after step %(step)s, with the batch of step %(next_step)s")


class Report(Part):
    """The error that a rank reported."""

    sentence = PLACE_AND_DETAIL
    place: RankName
    detail: str


class Exited(Part):
    """A worker that exited without an error; `who` is its name, or those that it may have."""

    who: Part
    reached: Reached | None = None

    def english(self) -> str:
        if self.reached is None:
            return N_("%(who)s exited without reporting an error")
        return N_("%(who)s exited without reporting an error %(reached)s")


class Stalled(Part):
    """A rank that made no progress."""

    rank: RankName
    reached: Reached | None = None

    def english(self) -> str:
        if self.reached is None:
            return N_("%(rank)s stalled")
        return N_("%(rank)s stalled %(reached)s")


class Lost(Part):
    """Nodes whose programs ended too early, or did not answer."""

    nodes: list[str]
    launcher: str | None = None
    status: int | None = None
    seconds: int | None = None

    def english(self) -> str:
        if self.launcher is None:
            return N_("%(nodes)s: no answer within %(seconds)s s")
        return N_("%(nodes)s: %(launcher)s ended with status %(status)s")


# Fields that several failures share.


class WithProgress(Failure):
    """A failure that says how far a rank came."""

    step: int | None = None
    """last completed step"""
    next_step: int | None = None
    """step whose batch has arrived"""

    @property
    def reached(self) -> Reached | None:
        if self.step is None:
            return None
        return Reached(step=self.step, next_step=self.next_step)


class WithPeer(Failure):
    """A failure that names another rank, which reported an error or exited."""

    peer: int | None = None
    """another rank"""
    peer_node: str | None = None
    """its node"""
    peer_detail: str | None = None
    """the error that it reported"""

    @property
    def peer_name(self) -> RankName | None:
        if self.peer is None:
            return None
        return RankName(rank=self.peer, node=self.peer_node)

    @property
    def peer_report(self) -> Report | None:
        if self.peer_name is None or self.peer_detail is None:
            return None
        return Report(place=self.peer_name, detail=self.peer_detail)


class RankFailure(Failure):
    """A failure that a rank can report; without a rank, the driver has noticed it."""

    rank: int | None = None
    """number of the rank"""
    node: str | None = None
    """its node, if there are several"""
    detail: str | None = None
    """text of another program, or of an exception"""

    def english(self) -> str:
        return PLACE_AND_DETAIL if self.place else "%(detail)s"

    @property
    def place(self) -> RankName | str | None:
        """The rank's name, or that of the node that noticed the failure."""
        if self.rank is None:
            return None
        return RankName(rank=self.rank, node=self.node)

    def parts(self) -> dict[str, Any]:
        return {"place": self.place}


# The failures.


class BadInput(RankFailure):
    """The list or a file of the data is wrong; the sentence names file and line."""

    code = "bad_input"
    detail: str


class LossNotFinite(RankFailure):
    """The loss became NaN or infinite."""

    code = "loss_not_finite"
    detail: str


class OutOfMemory(RankFailure):
    """An allocation failed, or the kernel killed a worker for memory."""

    code = "out_of_memory"
    killed: bool | None = None
    """whether the kernel killed a worker"""

    def english(self) -> str:
        if self.killed:
            return N_("the kernel killed a worker because memory ran out")
        return super().english()


class IoFailure(RankFailure):
    """A file of the results can't be read or written, or a process can't be started."""

    code = "io_error"
    refused_by: str | None = None
    """the node, or nodes"""
    detail: str

    @property
    def place(self) -> RankName | str | None:
        return self.refused_by or super().place


class WorkerDied(WithProgress, WithPeer):
    """A worker exited without reporting an error."""

    code = "worker_died"
    rank: int | None = None
    """number of the rank"""
    ranks: list[int] | None = None
    """ranks that can't be told apart"""
    workers: int | None = None
    """number of all workers, if no rank is known to have exited"""
    node: str | None = None
    """node of the rank or the worker, if there are several"""
    nodes: list[str] | None = None
    """nodes of the ranks, if there are several"""
    status: int | None = None
    """exit status of the framework's launcher"""
    last_lines: str | None = None
    """last lines of the logs"""

    def english(self) -> str:
        if self.peer_report:
            return N_("%(exit)s; %(peer)s")
        if self.status is None:
            return "%(exit)s"
        if not self.last_lines:
            return N_("%(exit)s; the launcher's exit status was %(status)s")
        return N_(
            "%(exit)s; the launcher's exit status was %(status)s; last lines: %(last_lines)s"
        )

    def parts(self) -> dict[str, Any]:
        return {"exit": Exited(who=self._who(), reached=self.reached), "peer": self.peer_report}

    def _who(self) -> Part:
        if self.rank is not None:
            return RankName(rank=self.rank, node=self.node)
        if self.ranks is not None:
            return OneOfRanks(ranks=RankNames(ranks=self.ranks, nodes=self.nodes))
        return OneOfWorkers(workers=self.workers, node=self.node)


class WorkerError(RankFailure, WithPeer):
    """A worker raised another error; `detail` has its message."""

    code = "worker_error"
    detail: str

    def english(self) -> str:
        if self.peer_report:
            return N_("%(place)s: %(detail)s; %(peer)s")
        return super().english()

    def parts(self) -> dict[str, Any]:
        return super().parts() | {"peer": self.peer_report}


class Timeout(WithProgress):
    """A repeat took longer than `timeout`."""

    code = "timeout"
    repeat: int
    """number of the repeat"""
    seconds: int
    """the parameter `timeout`"""
    rank: int | None = None
    """the rank furthest behind"""
    node: str | None = None
    """its node, if there are several"""
    ranks: list[int] | None = None
    """the ranks furthest behind, if they are several"""
    nodes: list[str] | None = None
    """their nodes, if there are several"""
    world_size: int | None = None
    """number of all ranks, if none is behind another"""

    def english(self) -> str:
        if self.world_size is not None:
            if self.reached is None:
                return N_(
                    "repeat %(repeat)s took over %(seconds)s s; all %(world_size)s ranks "
                    "stopped; the logs show where each rank was"
                )
            return N_(
                "repeat %(repeat)s took over %(seconds)s s; all %(world_size)s ranks stopped "
                "%(reached)s; the logs show where each rank was"
            )
        if self._behind() is None:
            return N_("repeat %(repeat)s took over %(seconds)s s")
        if self.reached is None:
            return N_("repeat %(repeat)s took over %(seconds)s s; furthest behind: %(behind)s")
        return N_(
            "repeat %(repeat)s took over %(seconds)s s; furthest behind: %(behind)s %(reached)s"
        )

    def parts(self) -> dict[str, Any]:
        return {"behind": self._behind(), "reached": self.reached}

    def _behind(self) -> Part | None:
        if self.rank is not None:
            return RankName(rank=self.rank, node=self.node)
        if self.ranks is not None:
            return RankNames(ranks=self.ranks, nodes=self.nodes)
        return None


class Interrupted(Failure):
    """The user stopped the run."""

    code = "interrupted"
    repeat: int | None = None
    """number of the repeat"""

    def english(self) -> str:
        if self.repeat is None:
            return N_("interrupted")
        return N_("interrupted during repeat %(repeat)s")


class WorkerStalled(WithProgress, WithPeer):
    """A rank made no progress, and the others gave up waiting for it."""

    code = "worker_stalled"
    rank: int
    """number of the rank"""
    node: str | None = None
    """its node, if there are several"""
    peer_exited: bool | None = None
    """whether the other rank exited without reporting an error"""

    def english(self) -> str:
        if self.peer_report:
            return N_("%(stall)s; then %(peer)s")
        if self.peer_exited:
            return N_("%(stall)s; then %(peer_name)s exited without reporting an error")
        return "%(stall)s"

    def parts(self) -> dict[str, Any]:
        name = RankName(rank=self.rank, node=self.node)
        stall = Stalled(rank=name, reached=self.reached)
        return {"stall": stall, "peer": self.peer_report, "peer_name": self.peer_name}


class ConfigMismatch(RankFailure):
    """The framework uses another precision or device than requested."""

    code = "config_mismatch"
    detail: str


class PrecisionUnknown(RankFailure):
    """Not all matrix products of the network were seen, so their precision is unknown."""

    code = "precision_unknown"
    detail: str


class NodeTimeout(Failure):
    """A node did not start within `timeout`."""

    code = "node_timeout"
    sentence = N_("%(nodes)s did not start within %(seconds)s s")
    nodes: list[str]
    """the nodes"""
    seconds: int
    """the parameter `timeout`"""


class NodeLost(Failure):
    """`ssh`, `srun` or perfkit on a node ended too early; raw steps of its ranks are lost."""

    code = "node_lost"
    nodes: list[str]
    """the nodes"""
    launcher: str | None = None
    """`ssh` or `srun`, if it has ended"""
    status: int | None = None
    """its exit status"""
    seconds: int | None = None
    """limit of the time in which the node did not answer"""
    lines_lost: bool | None = None
    """whether the node had workers"""
    output: str | None = None
    """output of `ssh` or `srun`, and of the node's programs"""

    def english(self) -> str:
        if self.lines_lost and self.output:
            return N_("%(end)s; the raw steps there are lost; output: %(output)s")
        if self.lines_lost:
            return N_("%(end)s; the raw steps there are lost")
        if self.output:
            return N_("%(end)s; output: %(output)s")
        return "%(end)s"

    def parts(self) -> dict[str, Any]:
        end = Lost(
            nodes=self.nodes, launcher=self.launcher, status=self.status, seconds=self.seconds
        )
        return {"end": end}


class NotShared(Failure):
    """A node does not see the folder of the results."""

    code = "not_shared"
    nodes: list[str]
    """the nodes"""
    folder: str
    """the folder"""
    output: str | None = None
    """output of `ssh` or `srun`, and of the node's programs"""

    def english(self) -> str:
        if self.output:
            return N_(
                "%(nodes)s did not find %(folder)s: outputs_dir must be a folder that all "
                "nodes share; output: %(output)s"
            )
        return N_(
            "%(nodes)s did not find %(folder)s: outputs_dir must be a folder that all nodes "
            "share"
        )


class NodesDiffer(Failure):
    """Versions, data or GPUs are not the same on all nodes."""

    code = "nodes_differ"
    node: str | None = None
    """the node that differs"""
    parameter: str | None = None
    """parameter that the node can't satisfy"""
    fact: str | None = None
    """fact of the environment that differs"""
    here: Any = None
    """value of the parameter, or of the fact on the first node"""
    there: Any = None
    """value on the node"""
    first_node: str | None = None
    """the first node"""
    suite_source: str | None = None
    """digest of the node's perfkit, if it is another one"""
    earlier_nodes: list[str] | None = None
    """nodes of the earlier repeats, if they differ from these"""
    refused_by: str | None = None
    """the node that reported `detail`"""
    detail: str | None = None
    """another reason"""

    def english(self) -> str:
        if self.earlier_nodes is not None:
            return N_(
                "earlier repeats ran on %(earlier_nodes)s, which differ from the current "
                "nodes; set a new label: -p label NAME"
            )
        if self.suite_source is not None:
            return N_("perfkit differs from perfkit on %(node)s; make them alike")
        if self.parameter is not None:
            return N_("%(parameter)s: %(here)s requested here, %(there)s on %(node)s")
        if self.fact is not None:
            return N_(
                "%(fact)s: %(here)s on %(first_node)s, %(there)s on %(node)s; make them alike"
            )
        return PLACE_AND_DETAIL

    def parts(self) -> dict[str, Any]:
        return {"place": self.refused_by, "here": repr(self.here), "there": repr(self.there)}


class PortTaken(Failure):
    """`port` is in use on the first node."""

    code = "port_taken"
    sentence = N_(
        "port %(port)s of %(address)s can't be used: %(detail)s; use another port: "
        "-p port NUMBER"
    )
    port: Verbatim
    """the parameter `port`"""
    address: str
    """address of the first node"""
    detail: str
    """text of the operating system"""


# Failures of a user's script.


class TimerUnused(RankFailure):
    """A script ended, or took longer than `timeout`, and never called `timer.step`."""

    code = "timer_unused"
    seconds: int | None = None
    """the parameter `timeout`, if the script took longer"""
    timer_made: bool = False
    """whether the script made a timer, if it ended by itself"""

    def english(self) -> str:
        if self.seconds is not None:
            return N_(
                "the script ran for over %(seconds)s s and never called timer.step; call "
                "timer.step(loss) after each step of the optimizer, of one timer = "
                "perfkit.StepTimer(samples_per_step=N) that is made before the training"
            )
        if self.timer_made:
            return N_(
                "the script made a timer, but ended and never called timer.step; call "
                "timer.step(loss) after each step of the optimizer"
            )
        return N_(
            "the script ended and never called timer.step; make timer = "
            "perfkit.StepTimer(samples_per_step=N) before the training, and call "
            "timer.step(loss) after each step of the optimizer"
        )


class TimerOnSomeRanks(Failure):
    """Some ranks of a script called `timer.step`, the others never did."""

    code = "timer_on_some_ranks"
    ranks: list[int]
    """ranks that called it"""
    others: list[int]
    """ranks that did not"""
    detail: str | None = None
    """the error that one of the others reported"""

    def english(self) -> str:
        if self.detail is not None:
            return N_(
                "ranks that called timer.step: %(ranks)s; that did not: %(others)s "
                "(%(detail)s); every rank must call it"
            )
        return N_(
            "ranks that called timer.step: %(ranks)s; that did not: %(others)s; every rank "
            "must call it"
        )


class PausedOnSomeRanks(Failure):
    """Some ranks of a script paused the timer where others did not, and waited for them."""

    code = "paused_on_some_ranks"
    rank: int
    """a rank that paused differently from rank 0"""
    step: int
    """step after which one of the two paused and the other did not"""

    def english(self) -> str:
        return N_(
            "ranks 0 and %(rank)s did not both pause the timer after step %(step)s, so that "
            "one waited for the other within its window; every rank must call timer.pause"
        )


class EndedEarly(RankFailure):
    """A script ended before the last step of the window."""

    code = "ended_early"
    step: int
    """last completed step"""
    steps: int
    """steps of the protocol; with a warm-up of unknown length, the fewest"""

    def english(self) -> str:
        return N_(
            "%(place)s: the script ended after step %(step)s of %(steps)s; let it train "
            "longer, or measure fewer steps: -p measured_steps NUMBER"
        )


class ScriptExit(RankFailure):
    """A script exited by itself with a status other than 0."""

    code = "script_exit"
    status: int
    """exit status"""
    step: int
    """last completed step"""

    def english(self) -> str:
        if self.detail is not None:
            return N_(
                "%(place)s: the script exited with status %(status)s after step %(step)s: "
                "%(detail)s"
            )
        return N_("%(place)s: the script exited with status %(status)s after step %(step)s")


class LateWarmup(RankFailure):
    """A rank of a script learned too late where the warm-up ends."""

    code = "late_warmup"
    step: int
    """last step that the rank had taken"""
    last_step: int
    """last step of the warm-up"""

    def english(self) -> str:
        return N_(
            "%(place)s had already taken step %(step)s when it learned that the warm-up ends "
            "after step %(last_step)s; fix the length of the warm-up: -p warmup_steps NUMBER"
        )


class ToldDiffers(Failure):
    """What a script told the timer is not the same on every rank and in every repeat."""

    code = "told_differs"
    name: str
    """argument of the timer, or what it recognized"""
    here: Any
    """value on the rank"""
    there: Any
    """value on rank 0, or in the first repeat"""
    rank: int
    """number of the rank"""
    node: str | None = None
    """its node, if there are several"""
    repeat: int | None = None
    """number of the repeat, if the first repeat differs from it"""

    def english(self) -> str:
        if self.repeat is not None:
            return N_(
                "the script told the timer %(name)s = %(here)s in repeat %(repeat)s, "
                "%(there)s in the first one; that is other work: give it another label (-p "
                "label NAME), or make the script do the same in every run"
            )
        return N_(
            "the script told the timer %(name)s = %(here)s on %(place)s, %(there)s on rank 0; "
            "every rank must tell the same"
        )

    def parts(self) -> dict[str, Any]:
        place = RankName(rank=self.rank, node=self.node)
        return {"place": place, "here": repr(self.here), "there": repr(self.there)}


class ScriptChanged(Failure):
    """The script, or a local module that it imports, changed since the request was made."""

    code = "script_changed"
    sentence = N_(
        "%(script)s, or a module that it imports, was changed since the request (SHA-256 "
        "%(before)s, now %(now)s); start again: a changed script is another measurement"
    )
    script: str
    """the parameter `script`"""
    before: str
    """digest at the request"""
    now: str
    """digest now"""


class ScriptUnreadable(Failure):
    """The script can't be read any more, or not on another node."""

    code = "script_unreadable"
    script: str
    """the parameter `script`"""
    detail: str
    """text of the operating system"""
    node: str | None = None
    """the node, if it is not the first"""

    def english(self) -> str:
        if self.node is None:
            return N_("%(script)s can't be read: %(detail)s")
        return N_(
            "%(node)s can't read %(script)s: %(detail)s; the script must lie in a folder that "
            "all nodes share"
        )
