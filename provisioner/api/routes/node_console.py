"""The routes of a node's own words: its serial console, and the system log that it sends here.

A tenant reads those of a node that serves it, from the lines of this stay on: what an earlier
tenant's system wrote is not shown to another one. Switches are the site's: no tenant reads theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from provisioner.adapters.consoles.console_files import ConsoleFiles
from provisioner.adapters.machine_logs import MachineLogs
from provisioner.api.parts import Ask, Reply
from provisioner.api.route import ANYBODY, Route
from provisioner.model.base import Record
from provisioner.model.integrations.audit_export import ConsoleLine, SyslogLine
from provisioner.model.node import Node, State

LINES_MAX = 2000
SCANNED_MAX = 20_000  # messages that one request looks through


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


class SyslogQuery(Record):
    """The selection of messages."""

    after: int = Field(
        -1, ge=-1, description="Number of the last line that is known; -1: the last lines."
    )
    limit: int = Field(200, ge=1, le=LINES_MAX, description="Lines at most.")
    facility: str = Field(
        "", max_length=16, description="Only of this part of the system: kern, daemon and so on."
    )
    program: str = Field("", max_length=48, description="Only of this program.")


class SyslogPage(Record):
    """Messages of a node's system log in the order in which they came."""

    lines: tuple[SyslogLine, ...]
    last: int = Field(
        description="Number of the last message that was looked at, or as it was asked for: the "
        "`after` of the next request."
    )


async def list_syslog(ask: Ask) -> Reply:
    """Return messages of a node's system log."""
    node = await ask.read_node()
    scanned: Sequence[SyslogLine] = ()
    query: SyslogQuery = ask.query
    if ask.parts.directory is not None:  # else nothing is received in this process
        book = MachineLogs(ask.parts.directory, ask.parts.settings.log_bytes_max)
        scanned = await book.list_lines(node.id, query.after, SCANNED_MAX)
    chosen = [line for line in scanned if _matches(query, line) and _may_read(ask, node, line)]
    if query.after < 0:
        lines = chosen[-query.limit :]
        last = scanned[-1].seq if scanned else query.after
    else:
        lines = chosen[: query.limit]
        whole = len(chosen) <= query.limit
        last = (scanned[-1].seq if scanned else query.after) if whole else lines[-1].seq
    return Reply(SyslogPage(lines=tuple(lines), last=last))


def _matches(query: SyslogQuery, line: SyslogLine) -> bool:
    return query.facility in ("", line.facility) and query.program in ("", line.program)


def _may_read(ask: Ask, node: Node, line: ConsoleLine | SyslogLine) -> bool:
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
    Route(
        "GET",
        "/nodes/{node}/syslog",
        "list_syslog",
        "nodes",
        "Show the last messages of a node's system log; to a tenant, those since it has the node.",
        ANYBODY,
        list_syslog,
        {200: SyslogPage},
        query=SyslogQuery,
    ),
)
