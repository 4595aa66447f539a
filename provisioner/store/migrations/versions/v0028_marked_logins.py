"""A mark for programs: rows that older ones cannot read may be here. No table changes.

A pending credential may have a third part, which says that it is the likelier one; a BMC of a node
may have several pins and the end of its certificate. An older program would take such a row for a
damaged one, and therefore refuses this database by its revision.
"""

from __future__ import annotations

revision = "0028"
down_revision: str | None = "0027"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Nothing: the revision is the mark."""
