"""Records of one boot of a node into the maintenance ramdisk and of the agent that runs there."""

from __future__ import annotations

from provisioner.model.base import Record


class AgentRequest(Record):
    """A command that was about to be sent; stored until the next one, or until the node leaves.

    An agent lists its commands by names and identifiers, without parameters. An entry in the list
    that is not in `known` appeared after this record was written, so it is the command that was
    sent.
    """

    command: str  # SHA-256 of name and parameters
    name: str  # "clean.execute_clean_step"
    known: tuple[str, ...]  # identifiers that the agent listed before
    sent_at: float
    id: str = ""  # as the agent named it, once it has
    over: bool = False  # its end was observed; the requester may have died before it recorded that


class AgentSession(Record):
    """A session from `expect` to `dismiss`; the next boot is a new session. The token is stored
    elsewhere.
    """

    node: str
    uuid: str  # the agent's name for the node
    macs: tuple[str, ...]  # lowercase with colons
    expected_at: float
    until: float  # deadline of the first heartbeat
    dismissed: bool = False
    handed_at: float = 0.0  # when the token was issued; 0: not yet
    peer: str = ""  # address that received the token
    url: str = ""  # where the agent listens, known from its first heartbeat on
    certificate: str = ""  # PEM, as in its first heartbeat
    version: str = ""
    seen_at: float = 0.0  # last heartbeat; 0: none yet
    asked: AgentRequest | None = None
