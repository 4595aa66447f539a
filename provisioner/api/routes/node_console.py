"""The route of a node's serial console: its last lines, and those that came since."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from provisioner.adapters.consoles.console_files import ConsoleFiles
from provisioner.api.parts import Ask, Reply
from provisioner.api.route import VIEWERS, Route
from provisioner.model.base import Record
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
    return Reply(ConsolePage(lines=tuple(lines), last=last))


ROUTES = (
    Route(
        "GET",
        "/nodes/{node}/console",
        "show_console",
        "nodes",
        "Show the last lines of a node's serial console.",
        VIEWERS,
        show_console,
        {200: ConsolePage},
        query=ConsoleQuery,
    ),
)
