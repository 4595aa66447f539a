"""A person's request to set the time of a node's BMCs: whether it may be carried out. Pure.

It is an operation of its own, so that nothing else writes to the BMCs meanwhile, and the next
daemon goes on with it. It touches no host system, so that a node that serves may have it too.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.inventory import BmcClock
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.model.outcome import Blocker, Reason

WANT = "bmc time"  # the operation's purpose
SWITCH = "switch"  # kind of a management API that is no BMC
SET_WITHIN_S = 10.0  # between setting a clock by hand and reading it again


def list_clocks(node: Node) -> tuple[BmcRef, ...]:
    """Return the BMCs of a node whose time can be set."""
    if node.kind is not NodeKind.HOST or node.state is State.RETIRED:
        return ()
    return tuple(bmc for bmc in node.bmcs if bmc.kind != SWITCH)


def find_objection(node: Node) -> Blocker | None:
    """Return why the time of a node's BMCs is not set; None: it may be."""
    if list_clocks(node):
        return None
    return Blocker(
        reason=Reason.PRECONDITION,
        subject=node.id,
        detail="it is no host with a BMC that is in use",
        unblock="Set the time of a switch by its own configuration.",
    )


def describe_effect(node: Node, servers: Sequence[str]) -> tuple[str, ...]:
    """Return the effects of the request, in sentences for the person who decides."""
    names = ", ".join(bmc.name for bmc in list_clocks(node))
    if not servers:
        return (f"The BMCs {names} of {node.id} get the daemon's time once (no bmc_ntp_servers).",)
    by_hand = "One without NTP servers in its tree gets the daemon's time once."
    return (f"The BMCs {names} of {node.id} get the NTP servers {', '.join(servers)}.", by_hand)


def is_set(clock: BmcClock | None, servers: Sequence[str]) -> bool:
    """Return whether a BMC takes its time from these servers, or without NTP has the right one."""
    if clock is None:
        return False
    if servers and clock.ntp is not None:
        return clock.ntp and clock.ntp_servers == tuple(servers)
    return clock.skew_s is not None and abs(clock.skew_s) <= SET_WITHIN_S
