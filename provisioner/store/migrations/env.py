"""What alembic runs: our migrations on the connection that `migrating.migrate` hands over.

It reads no configuration file, and it commits nothing: the transaction is the caller's.
"""

from __future__ import annotations

from alembic import context

from provisioner.store.schema.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite cannot alter most of a table; alembic then copies it
    transactional_ddl=True,  # both dialects can: a cut-off migration leaves nothing behind
)
with context.begin_transaction():
    context.run_migrations()
