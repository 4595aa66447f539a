"""The version after this one, whose schema has one migration more, for tests of upgrades.

The program is today's; only the folder of migrations is another one. The migration does what most
do: it adds a table, and a column with a default to a table that has rows.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from provisioner.store.database import postgres

THIS = postgres.revisions()[-1]
NEXT = f"{int(THIS) + 1:04d}"
UPGRADE = """
    op.create_table("later", sa.Column("id", sa.Integer, primary_key=True))
    op.add_column("nodes", sa.Column("shelf", sa.String, nullable=False, server_default=""))
"""


def become_next(patch: pytest.MonkeyPatch, folder: Path, upgrade: str = UPGRADE) -> None:
    """Make this process the next version: `folder` is made, with its migrations."""
    migrations = folder / "migrations"
    shutil.copytree(postgres.MIGRATIONS, migrations, ignore=shutil.ignore_patterns("__pycache__"))
    (migrations / "versions" / f"v{NEXT}_next.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\n"
        f"revision, down_revision, branch_labels, depends_on = '{NEXT}', '{THIS}', None, None\n"
        f"def upgrade():\n{upgrade}\n"
    )
    patch.setattr(postgres, "MIGRATIONS", migrations)
