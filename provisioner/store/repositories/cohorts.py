"""Measurements of the fleet, and the baselines learned from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection

from provisioner.model.certificate import Certificate
from provisioner.model.cohort import HealthReport
from provisioner.model.fabric_session import FabricOutcome, FabricSession
from provisioner.model.inventory import Inventory, ListedVersion
from provisioner.model.tenant import ReleaseProof
from provisioner.store.database.transactions import Transactions, reads, writes
from provisioner.store.rows import credential_rows, evidence_rows, page_rows
from provisioner.store.rows.request_rows import write_revocation
from provisioner.store.signing import verify

# ------------------------------------------------------------------------------
# Evidence about nodes: inventories, reports, raw output, certificates, proofs, matrices.


def _read_standing(connection: Connection, name: str) -> tuple[Certificate | None, bool]:
    certificate = evidence_rows.read_certificate(connection, name)
    return certificate, certificate is not None and evidence_rows.revoked(connection, name)


def _read_trust(connection: Connection, certificate: str) -> tuple[Mapping[str, bytes], bool]:
    """Return the keys whose signatures are believed, and whether the certificate is revoked."""
    keys = credential_rows.believed(connection)
    return keys, evidence_rows.revoked(connection, certificate)


class SqlEvidenceRepository:
    """Evidence about nodes: inventories, reports, raw output, certificates, proofs, matrices."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def get_inventory(self, node: str) -> Inventory | None:
        return await self._transactions.recall_of(evidence_rows.read_inventory, node)

    # Store a reading that no operation made, unless it is equal to the last one.
    put_inventory = writes(evidence_rows.put_inventory)

    async def list_versions(
        self, names: Collection[str] | None = None
    ) -> tuple[Mapping[str, str], Mapping[str, tuple[ListedVersion, ...]]]:
        """Return (node -> digest of its set of versions, digest -> its versions) of the newest
        inventories, of all nodes or of some. Nodes without an inventory are left out.
        """
        return await self._transactions.read(lambda c: evidence_rows.read_versions(c, names))

    async def list_parts(
        self,
        names: Collection[str] | None,
        serials: Collection[str],
        models: Collection[str],
        limit: int | None = None,
    ) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Return node -> (lines of serial, tab and part; models) of nodes that have one of these
        texts in them; serials are in small letters, and an empty text is in each.
        """
        return await self._transactions.read(
            lambda c: evidence_rows.read_parts(c, names, serials, models, limit)
        )

    async def list_models(self) -> Mapping[str, tuple[str, ...]]:
        """Return the models of each node and of its parts, as its last inventory has them."""
        return await self._transactions.read(evidence_rows.read_models)

    async def get_report(self, node: str) -> HealthReport | None:
        return await self._transactions.recall_of(evidence_rows.read_report, node)

    async def list_reports(self, node: str, since: float) -> Sequence[HealthReport]:
        """Return the reports that ended at `since` or later, the newest first."""
        return await self._transactions.read_of(
            node, lambda c: evidence_rows.read_reports(c, node, since)
        )

    async def put_output(self, text: str) -> str:
        """Store raw output and return its SHA-256. The same text is stored once."""
        packed = evidence_rows.pack(text)
        await self._transactions.write(lambda c: evidence_rows.put_evidence(c, *packed))
        return packed[0]

    get_output = reads(evidence_rows.read_evidence)

    async def get_certificate(self, certificate_id: str) -> Certificate | None:
        return await self._transactions.recall(evidence_rows.read_certificate, certificate_id)

    async def read_standing(self, certificate_id: str) -> tuple[Certificate | None, bool]:
        """Return a certificate, and whether it is revoked, read together."""
        return await self._transactions.recall(_read_standing, certificate_id)

    async def is_attested(self, certificate: Certificate) -> bool:
        """Return whether a key of ours that was not withdrawn signed exactly this certificate."""
        keys = await self._transactions.recall(credential_rows.believed)
        return verify(certificate, keys)

    async def read_trust(self, certificate: Certificate) -> tuple[bool, bool]:
        """Return whether a believed key signed it, and whether it is revoked, read together."""
        keys, revoked = await self._transactions.recall(_read_trust, certificate.id)
        return verify(certificate, keys), revoked

    list_revocations = reads(evidence_rows.read_revocations)
    revoke = writes(evidence_rows.revoke)

    async def is_revoked(self, certificate_id: str) -> bool:
        return await self._transactions.recall(evidence_rows.revoked, certificate_id)

    async def get_proof(self, node: str) -> ReleaseProof | None:
        return await self._transactions.recall_of(evidence_rows.read_proof, node)

    put_matrix = writes(evidence_rows.put_matrix)

    async def list_certificates(
        self, *, before: tuple[float, str] | None, limit: int, node: str
    ) -> tuple[page_rows.CertificateRow, ...]:
        """Return certificates, the newest first; a damaged row is one of them, and says why."""
        return await self._transactions.read(
            lambda c: page_rows.certificates_page(c, before=before, limit=limit, node=node)
        )

    # Return the number of certificates, of a node or of all.
    count_certificates = reads(page_rows.count_certificates)

    async def revoke_requested(
        self, certificate: Certificate, reason: str, by: str, now: float, change: int
    ) -> None:
        """Revoke a certificate as a person asked, with its event, in one transaction."""
        await self._transactions.write(
            lambda c: write_revocation(c, certificate.id, certificate.node, reason, by, now, change)
        )


class SqlFabricRepository:
    """Sessions of tests among nodes, and their outcomes."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def put_session(
        self, session: FabricSession, outcomes: Sequence[FabricOutcome] = ()
    ) -> FabricSession:
        """Write a session, and with its last write its outcomes of nodes.

        Raises `Fenced` if another daemon has written it since.
        """
        return await self._transactions.write(lambda c: evidence_rows.put(c, session, outcomes))

    async def list_sessions(self) -> Sequence[FabricSession]:
        return await self._transactions.recall(evidence_rows.read_open)

    async def get_outcome(self, node: str) -> FabricOutcome | None:
        """Return the newest session's outcome of a node or leaf."""
        return await self._transactions.recall_of(evidence_rows.read_outcome, node)


class SqlCohortRepository:
    """Measurements of the fleet, and the baselines learned from them."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    put_sample = writes(evidence_rows.put_sample)

    # Return the newest samples of a profile, of one set of versions or (None) of all.
    list_samples = reads(evidence_rows.read_samples)

    # Return a mark that changes with every sample of one set of versions. Equal marks mean the
    # same samples.
    get_samples_mark = reads(evidence_rows.read_mark)
    put_baseline = writes(evidence_rows.put_baseline)
    list_baselines = reads(evidence_rows.read_baselines)
