"""Copies of an image that services list beside the running one; never the running version.

Dell lists the previous version ("Previous-...") and lists some items twice ("Current-" beside
"Installed-"); Supermicro has backup, golden and staging slots; Lenovo and BlueField-4 list pending
versions (docs/sources/redfish.md#copies).
"""

from __future__ import annotations

from provisioner.components.kind import ComponentKind, Rule

PREVIOUS = "copy.previous"
CURRENT = "copy.current"
BACKUP = "copy.backup"
GOLDEN = "copy.golden"
STAGED = "copy.staged"

KINDS = (
    ComponentKind(
        name=PREVIOUS,
        title="version before the last update",
        method="none",
        rules=(Rule(id=r"^Previous-"),),
    ),
    ComponentKind(
        name=CURRENT,
        title="second listing of an installed version",
        method="none",
        rules=(Rule(id=r"^Current-.*__(?P<fqdd>.+)$", of=r"Installed-.*__{fqdd}"),),
    ),
    ComponentKind(
        name=BACKUP,
        title="backup image",
        method="none",
        rules=(Rule(id=r"^Backup_"), Rule(id=r"^BMC-Backup$"), Rule(name=r"^Redundant System ROM")),
    ),
    ComponentKind(
        name=GOLDEN, title="golden image", method="none", rules=(Rule(id=r"^Golden_(?!image)"),)
    ),
    ComponentKind(
        name=STAGED,
        title="written, not yet running",
        method="none",
        rules=(
            Rule(id=r"^Staging_(?P<base>.+)$", of="{base}"),
            Rule(id=r"^(?P<base>.+)[-_]pending$", of="{base}"),
            Rule(id=r"^Pending_Bundle$"),
        ),
    ),
)
