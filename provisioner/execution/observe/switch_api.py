"""Opens one node's switch for a single piece of work, and returns its refusals as values."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from provisioner.execution.actions.leaf_turns import turn
from provisioner.execution.actions.work import Site
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.ports import Switch, SwitchRefused

T = TypeVar("T")


async def open_switch(site: Site, node: Node) -> Switch | Blocker:
    """Return a switch with its credential."""
    address = await site.reach.switch(node)
    if isinstance(address, Blocker):
        return address
    try:
        return site.reach.switches.open(node.id, address, site.clock, site.settings)
    except SwitchRefused as refused:
        return describe(node, refused)


async def ask(node: Node, asked: Awaitable[T]) -> T | Blocker:
    """Return the answer, or the refusal. Raises `PortError` while the switch does not answer."""
    try:
        return await asked
    except SwitchRefused as refused:
        return describe(node, refused)


def turn_of(node: Node) -> AbstractAsyncContextManager[None]:
    """Return the switch's turn, within which it is written to."""
    return turn(node.id)


def describe(node: Node, refused: SwitchRefused) -> Blocker:
    """Return a refusal as a value."""
    return Blocker(
        reason=refused.reason,
        subject=f"{node.id}/switch.os",
        detail=str(refused),
        unblock="Look at the switch's own log, then retry the node.",
    )
