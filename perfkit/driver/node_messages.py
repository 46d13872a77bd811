"""The messages between the driver and its nodes, each a model that validates what is received:
no unknown field, no value of another type, no number out of its range.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from perfkit.config import Config, Protocol

Number = Annotated[int, Field(ge=0, le=10**6)]
"""Of a node, a rank or a repeat, or how many there are."""
Port = Annotated[int, Field(ge=0, le=65535)]
Address = Annotated[str, Field(pattern=r"^\d{1,3}(\.\d{1,3}){3}$")]
Name = Annotated[str, Field(max_length=255)]
DETAIL_LENGTH = 4096
Detail = Annotated[str, Field(max_length=DETAIL_LENGTH)]
Value = Detail | int | float | bool | list[Detail] | None


class LostError(ConnectionError):
    """The other side is gone or does not answer; the message says how."""


class InvalidMessageError(LostError):
    """The other side sent something that it may not send; `field` is message type and field."""

    def __init__(self, field: str, reason: str) -> None:
        self.field, self.reason = field, reason
        super().__init__(f"it sent an invalid message: {field}: {reason}")


class NodeMessage(BaseModel):
    """One message; `type` says which."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Alive(NodeMessage):
    """The sender is there."""

    type: Literal["alive"] = "alive"


class Hello(NodeMessage):
    """A node's first: its number, the digest of its perfkit and, if it was started by hand,
    what it was asked for."""

    type: Literal["hello"] = "hello"
    node: Number
    source: Name
    config: dict[Name, Value] = {}
    protocol: dict[Name, Value] = {}


class Ready(NodeMessage):
    """Where a node can be reached: there it listens until its first run. And what the nodes
    must have in common."""

    type: Literal["ready"] = "ready"
    address: Address
    interface: Name
    port: Port
    name: Name
    gpus: Number
    facts: dict[Name, Value]


class Refused(NodeMessage):
    """Why a node can't do what it was told."""

    type: Literal["refused"] = "refused"
    code: Literal["nodes_differ", "port_taken"]
    detail: Detail
    address: Name = ""
    port: Port | None = None


class Reached(NodeMessage):
    """The answer to Reach: why which node can't be reached."""

    type: Literal["reached"] = "reached"
    errors: dict[int, Detail]


class Report(NodeMessage):
    """What ranks have appended to their raw files, and whose processes have exited."""

    type: Literal["report"] = "report"
    raw: dict[Number, str]
    exited: list[Number]


class Ended(NodeMessage):
    """How the workers of a node exited; see ExitInfo."""

    type: Literal["ended"] = "ended"
    status: int | None
    killed_for_memory: bool
    free_bytes: Annotated[int, Field(ge=0)]
    logs: dict[Name, str]


class Job(NodeMessage):
    """What is to be measured."""

    type: Literal["job"] = "job"
    config: Config
    protocol: Protocol


class Run(NodeMessage):
    """Start the workers of a repeat, which meet at this address and port of node 0. No other
    run has the name `job`."""

    type: Literal["run"] = "run"
    repeat: Annotated[Number, Field(ge=1)]
    job: Annotated[str, Field(pattern=r"^\w[\w.-]*$", max_length=300)]
    address: Address
    port: Port


class Steady(NodeMessage):
    """The warm-up is over."""

    type: Literal["steady"] = "steady"


class End(NodeMessage):
    """End the workers now."""

    type: Literal["end"] = "end"
    dump_stacks: bool


class Reach(NodeMessage):
    """Try to reach the address and port of each node."""

    type: Literal["reach"] = "reach"
    ports: dict[int, tuple[Address, Port]]


class Bye(NodeMessage):
    """The end: the text of result.json, or why there is none."""

    type: Literal["bye"] = "bye"
    result: str | None
    reason: str | None


BY_TYPE = Field(discriminator="type")
FROM_NODE: TypeAdapter[Any] = TypeAdapter(
    Annotated[Alive | Hello | Ready | Refused | Reached | Report | Ended, BY_TYPE]
)
FROM_DRIVER: TypeAdapter[Any] = TypeAdapter(
    Annotated[Alive | Job | Run | Steady | End | Reach | Bye, BY_TYPE]
)


def decode(messages: TypeAdapter[Any], data: bytes) -> NodeMessage:
    """Raises InvalidMessageError for what is none of `messages`."""
    try:
        return messages.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part)[:80] for part in first["loc"]) or "message"
        raise InvalidMessageError(field, first["msg"][:200]) from error
