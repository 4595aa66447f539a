"""The route of a node's serial console: its last lines, and those that came since.

A tenant reads the console of a node that serves it, from the lines of this stay on: what an earlier
tenant's system printed is not shown to another one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from provisioner.adapters.consoles.console_files import ConsoleFiles
from provisioner.api.parts import Ask, Reply
from provisioner.api.route import ANYBODY, Route
from provisioner.model.base import Record
from provisioner.model.node import Node, State
from provisioner.ports.consoles import ConsoleLine

LINES_MAX = 2000


class ConsoleQuery(Record):
    """The selection of lines."""

    after: int = Field(
        -1, ge=-1, description="Number of the last line that is known; -1: the last lines."
    )
    limit: int = Field(200, ge=1, le=LINES_MAX, description="Lines at most.")


class ConsolePage(Record):
    """Lines of a console in their order: printable text, without secrets."""

    lines: tuple[ConsoleLine, ...]
    last: int = Field(description="Number of the last line here, or as it was asked for.")


async def show_console(ask: Ask) -> Reply:
    """Return lines of a node's console."""
    node = await ask.read_node()
    lines: Sequence[ConsoleLine] = ()
    if ask.parts.directory is not None:  # else nothing is collected in this process
        book = ConsoleFiles(ask.parts.directory, ask.parts.settings.console_bytes_max)
        lines = await book.list_lines(node.id, ask.query.after, ask.query.limit)
    last = lines[-1].seq if lines else ask.query.after
    visible = tuple(line for line in lines if _may_read(ask, node, line))
    return Reply(ConsolePage(lines=visible, last=last))


def _may_read(ask: Ask, node: Node, line: ConsoleLine) -> bool:
    """Return whether the caller may read a line: the staff all, a tenant those of its stay."""
    if ask.caller.staff:
        return True
    return node.state is State.RELEASED and line.at >= node.entered_at


ROUTES = (
    Route(
        "GET",
        "/nodes/{node}/console",
        "show_console",
        "nodes",
        "Show the last lines of a node's serial console; to a tenant, those since it has the node.",
        ANYBODY,
        show_console,
        {200: ConsolePage},
        query=ConsoleQuery,
    ),
)
