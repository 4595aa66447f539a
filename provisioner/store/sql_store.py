"""The durable truth in a relational database: one repository for each aggregate, on two lanes.

Every method of a repository is one short transaction, a change on the writer's lane. `Node` writes
carry the generation that was read (`StaleWrite` otherwise); writes of a driver carry its operation
(`Fenced` otherwise) and return it with the version raised.

A repository has no connection of its own: it hands its row functions to the
store's `write` and `read`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from sqlalchemy import Engine

from provisioner.store.database import database, postgres
from provisioner.store.database.database import MEMORY
from provisioner.store.database.lanes import InlineLane, Lane, ThreadLane
from provisioner.store.database.postgres import Copier
from provisioner.store.database.transactions import Transactions
from provisioner.store.repositories.agents import (
    SqlAgentRepository,
    SqlSessionRepository,
    SqlTokenRepository,
    SqlViewRepository,
)
from provisioner.store.repositories.alerts import SqlAlertRepository
from provisioner.store.repositories.answers import SqlAnswerRepository, SqlRequestRepository
from provisioner.store.repositories.atlas import SqlAtlasRepository, SqlHomeRepository
from provisioner.store.repositories.campaigns import SqlCampaignRepository
from provisioner.store.repositories.cases import SqlCaseRepository
from provisioner.store.repositories.cohorts import (
    SqlCohortRepository,
    SqlEvidenceRepository,
    SqlFabricRepository,
)
from provisioner.store.repositories.directory import SqlDirectoryRepository
from provisioner.store.repositories.evidence_log import SqlEvidenceLogRepository
from provisioner.store.repositories.grants import SqlGrantRepository, SqlTenantRepository
from provisioner.store.repositories.images import SqlImageRepository, SqlPolicyRepository
from provisioner.store.repositories.journal_archives import (
    SqlArchiveRepository,
    SqlAuditExportRepository,
    SqlClockMarkRepository,
    SqlJournalRepository,
)
from provisioner.store.repositories.nodes import SqlNodeRepository, SqlOperationRepository
from provisioner.store.repositories.recovery import SqlRecoveryRepository
from provisioner.store.repositories.signing_keys import SqlSigningKeyRepository
from provisioner.store.repositories.usage import SqlUsageRepository
from provisioner.store.repositories.vault import SqlCredentialStandings
from provisioner.store.repositories.webhooks import SqlWebhookRepository


class SqlStore(Transactions):
    """The durable truth: one repository for each aggregate."""

    def __init__(
        self, engine: Engine, writer: Lane, reader: Lane, link: postgres.DatabaseLink | None = None
    ) -> None:
        """`link`: to a server that others write to."""
        super().__init__(engine, writer, reader)
        self.link = link
        self.nodes = SqlNodeRepository(self)
        self.operations = SqlOperationRepository(self)
        self.credential_standings = SqlCredentialStandings(self)
        self.evidence = SqlEvidenceRepository(self)
        self.agents = SqlAgentRepository(self)
        self.cohorts = SqlCohortRepository(self)
        self.fabric = SqlFabricRepository(self)
        self.tenants = SqlTenantRepository(self)
        self.journal = SqlJournalRepository(self)
        self.archives = SqlArchiveRepository(self)
        self.audit_exports = SqlAuditExportRepository(self)
        self.clock_marks = SqlClockMarkRepository(self)
        self.answers = SqlAnswerRepository(self)
        self.atlas = SqlAtlasRepository(self)
        self.grants = SqlGrantRepository(self)
        self.policies = SqlPolicyRepository(self)
        self.images = SqlImageRepository(self)
        self.home = SqlHomeRepository(self)
        self.requests = SqlRequestRepository(self)
        self.signing_keys = SqlSigningKeyRepository(self)
        self.tokens = SqlTokenRepository(self)
        self.alerts = SqlAlertRepository(self)
        self.campaigns = SqlCampaignRepository(self)
        self.cases = SqlCaseRepository(self)
        self.recovery = SqlRecoveryRepository(self)
        self.sessions = SqlSessionRepository(self)
        self.views = SqlViewRepository(self)
        self.webhooks = SqlWebhookRepository(self)
        self.directory = SqlDirectoryRepository(self)
        self.usage = SqlUsageRepository(self)
        self.evidence_log = SqlEvidenceLogRepository(self)

    def list_folds(self) -> tuple[Callable[[], Awaitable[bool]], ...]:
        """Return what takes the journal's next rows; each returns whether there are more."""
        return (self.usage.advance, self.evidence_log.advance)


def open_store(
    path: str | Path,
    *,
    inline: bool = False,
    copy_first: Copier | None = None,
    reads_only: bool = False,
) -> SqlStore:
    """Return a store on the database file at `path`, in memory at ":memory:", or at a PostgreSQL
    URL.

    `inline`: run in the calling thread, for simulation under virtual time. `copy_first` copies a
    database of an older version before it is migrated; without it such a database is refused.
    `reads_only`: nothing can be written, and a database of another version is refused.
    Blocks while the database is checked. Raises `InputError` if it cannot be used. The caller
    holds `lock_data_directory` first if it is going to migrate.
    """
    link: postgres.DatabaseLink | None = None
    if postgres.is_postgres(path):
        engine = postgres.open_postgres(str(path), copy_first)
        to_write = postgres.write_connection(engine)
        to_read = postgres.read_connection(engine)
        link = postgres.DatabaseLink(engine)
    else:
        if reads_only:
            engine = database.open_reading(Path(path))
            only = ThreadLane(database.read_connection(engine), "store-reader", reads=True)
            return SqlStore(engine, only, only)
        engine = database.open_database(path, copy_first)
        to_write = database.write_connection(engine)
        to_read = database.read_connection(engine)
    if inline:
        lane = InlineLane(to_write)
        return SqlStore(engine, lane, lane)
    writer = ThreadLane(to_write, "store-writer", link=link)
    if str(path) == MEMORY:  # one connection is all there is
        return SqlStore(engine, writer, writer)
    return SqlStore(engine, writer, ThreadLane(to_read, "store-reader", reads=True), link)
