"""One boot of a node into the maintenance ramdisk, as far as we know its agent."""

from __future__ import annotations

from provisioner.model.base import Record


class AgentRequest(Record):
    """A command that was about to be sent; kept until the next one, or until the node leaves.

    An agent's list of commands has names and identifiers, no parameters: what is in the list now
    and was not in `known` came after this was written.
    """

    command: str  # SHA-256 of name and parameters
    name: str  # "clean.execute_clean_step"
    known: tuple[str, ...]  # identifiers that the agent listed before
    sent_at: float
    id: str = ""  # as the agent named it, once it did
    over: bool = False  # its end was seen; whoever asked may have died before it was written down


class AgentSession(Record):
    """From `expect` to `dismiss`; the next boot is a new session. The token is kept elsewhere."""

    node: str
    uuid: str  # what the agent knows the node by
    macs: tuple[str, ...]  # lowercase with colons
    expected_at: float
    until: float  # the first heartbeat comes before this
    dismissed: bool = False
    handed_at: float = 0.0  # when the token was handed out; 0: not yet
    peer: str = ""  # address that got the token
    url: str = ""  # where the agent listens, from its first heartbeat on
    certificate: str = ""  # PEM, as in its first heartbeat
    version: str = ""
    seen_at: float = 0.0  # last heartbeat; 0: none yet
    asked: AgentRequest | None = None
