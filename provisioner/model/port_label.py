"""The description of a leaf's port, by which writes that the database has lost are detected.

It names the database, the node, its tenant and the epoch: the generation of the node's row when the
port was moved. A row is written before its ports move, so a row that is older than the epoch at its
port has lost writes. `life` counts the restores that were settled: labels of an earlier life are
settled with it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PREFIX = "provisioner: "
# NVUE takes 256 characters, neither apostrophes nor non-ASCII (Cumulus Linux guide, "Interface
# Descriptions"); SONiC takes 255 (sonic-port.yang, leaf description)
SIZE_MAX = 255
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_LABEL = re.compile(
    r"provisioner: db=([0-9a-f]{8}) life=([0-9]{1,9}) node=([A-Za-z0-9_.-]{1,80}) "
    r"tenant=([A-Za-z0-9_.-]{1,80}) epoch=([0-9]{1,12})"
)


class DatabaseMark(NamedTuple):
    """The database that moves ports: its identity, and the number of its settled restores."""

    site: str
    life: int


class PortLabel(NamedTuple):
    """The content of one description. `tenant`: "-" in the maintenance network."""

    database: str
    life: int
    node: str
    tenant: str
    epoch: int


def write_label(mark: DatabaseMark, node: str, tenant: str, epoch: int) -> str:
    """Return the description of a node's port; "" where a name does not fit into one."""
    if not (_NAME.fullmatch(node) and _NAME.fullmatch(tenant or "-")):
        return ""
    text = (
        f"{PREFIX}db={mark.site[:8]} life={mark.life} node={node} "
        f"tenant={tenant or '-'} epoch={epoch}"
    )
    return text if len(text) <= SIZE_MAX and _LABEL.fullmatch(text) else ""


def read_label(text: str) -> PortLabel | None:
    """Return the content of a description written by us; None for any other one."""
    match = _LABEL.fullmatch(text)
    if match is None:
        return None
    database, life, node, tenant, epoch = match.groups()
    return PortLabel(database, int(life), node, tenant, int(epoch))


def may_overwrite(text: str) -> bool:
    """Return whether a description is empty or written by us; a site's own text is never
    overwritten.
    """
    return text == "" or text.startswith(PREFIX)
