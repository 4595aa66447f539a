"""What daemons compare when they join, and a number for each change that an older daemon makes.

A new daemon finds changed nodes by `nodes.changed`. A daemon of a version before 0014 writes nodes
without it while an upgrade rolls through, so the database gives the number where the writer did
not. A later migration that builds the table `nodes` anew makes these triggers again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision: str | None = "0016"
branch_labels: str | None = None
depends_on: str | None = None

POSTGRESQL = (
    """
    CREATE FUNCTION number_change_of_node() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            IF NEW.changed = 0 THEN
                NEW.changed := (SELECT coalesce(max(changed), 0) + 1 FROM nodes);
            END IF;
        ELSIF NEW.changed = OLD.changed THEN
            NEW.changed := (SELECT coalesce(max(changed), 0) + 1 FROM nodes);
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER number_change_of_node BEFORE INSERT OR UPDATE ON nodes
    FOR EACH ROW EXECUTE FUNCTION number_change_of_node()
    """,
)
SQLITE = (
    """
    CREATE TRIGGER number_new_node AFTER INSERT ON nodes WHEN NEW.changed = 0
    BEGIN
        UPDATE nodes SET changed = (SELECT coalesce(max(changed), 0) + 1 FROM nodes)
        WHERE id = NEW.id;
    END
    """,
    """
    CREATE TRIGGER number_change_of_node AFTER UPDATE ON nodes WHEN NEW.changed = OLD.changed
    BEGIN
        UPDATE nodes SET changed = (SELECT coalesce(max(changed), 0) + 1 FROM nodes)
        WHERE id = NEW.id;
    END
    """,
)


def upgrade() -> None:
    for name, kind, default in (("digests", sa.Text(), "{}"), ("change_until", sa.Double(), "0")):
        op.add_column("executors", sa.Column(name, kind, nullable=False, server_default=default))
    for statement in POSTGRESQL if op.get_bind().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)
