"""The end of a host's serial console, as evidence of a boot that failed."""

from __future__ import annotations

from provisioner.execution.actions.work import Site
from provisioner.model.node import Node

SHOWN = 3  # lines in a sentence; the whole is `provisioner node console`
EVIDENCE_LINES = 2000  # of a case
_WORDS_MAX = 300


async def describe_console(site: Site, node: Node) -> str:
    """Return the last lines of the console as the end of a sentence; "" if none is stored."""
    if site.consoles is None:
        return ""
    lines = await site.consoles.list_lines(node.id, -1, SHOWN)
    if not lines:
        return ""
    words = " | ".join(line.text for line in lines)[-_WORDS_MAX:]
    return f"; its console ends with: {words}"


async def read_console_text(site: Site, node: Node) -> str:
    """Return the last lines with their times, for the evidence of a case; "" if none is stored."""
    if site.consoles is None:
        return ""
    lines = await site.consoles.list_lines(node.id, -1, EVIDENCE_LINES)
    return "\n".join(f"{line.at:.3f} {line.text}" for line in lines)
