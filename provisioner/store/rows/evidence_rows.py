"""Rows of observations and proofs: inventories, reports, evidence, certificates, proofs, matrices.

Rows are added, never changed; only a certificate's revocation is written onto its row, once.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    Connection,
    Double,
    bindparam,
    cast,
    delete,
    false,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from provisioner.model.certificate import Certificate, Revocation
from provisioner.model.cohort import Baseline, HealthReport, Sample
from provisioner.model.fabric_session import FabricOutcome, FabricSession
from provisioner.model.inventory import (
    Inventory,
    ListedVersion,
    list_models,
    list_serials,
    list_versions,
)
from provisioner.model.node import State
from provisioner.model.tenant import ReleaseProof
from provisioner.ports import Fenced
from provisioner.ports.errors import DamagedRow
from provisioner.store.rows import records
from provisioner.store.rows.records import clean, json_text, parse, parse_each, parse_inventory
from provisioner.store.rows.statements import (
    delete_rows,
    find_row,
    find_value,
    insert_row,
    update_rows,
)
from provisioner.store.schema.schema import (
    baselines,
    certificates,
    evidence,
    fabric_outcomes,
    fabric_sessions,
    inventories,
    matrices,
    node_versions,
    nodes,
    proofs,
    reports,
    samples,
    version_sets,
)
from provisioner.store.schema.usage_tables import version_spans

# ------------------------------------------------------------------------------
# Rows of what nodes measured, and of what their fleet taught.


# made once: each node that waits for a tenant asks
_MARK = select(func.count(), func.sum(samples.c.taken_at)).where(
    samples.c.profile == bindparam("of"), samples.c.versions == bindparam("running")
)


def put_sample(connection: Connection, sample: Sample) -> None:
    """Store the newest sample of a node for its set of versions in place of the former one."""
    row = sample.model_dump(include={"node", "profile", "versions", "taken_at"})
    delete_rows(connection, samples, node=sample.node, versions=sample.versions)
    insert_row(connection, samples, row | {"body": sample.model_dump_json()})


def read_samples(
    connection: Connection, profile: str, versions: str | None, limit: int
) -> tuple[Sample, ...]:
    """Return the newest samples of a profile, of one set of versions or of all."""
    query = select(samples.c.node, samples.c.body).where(samples.c.profile == profile)
    if versions is not None:
        query = query.where(samples.c.versions == versions)
    query = query.order_by(samples.c.taken_at.desc(), samples.c.node).limit(limit)
    rows = connection.execute(query)
    return parse_each(connection, Sample, "samples", ((r.node, "", r.body) for r in rows))


def read_mark(connection: Connection, profile: str, versions: str) -> tuple[int, float]:
    """Return how many samples of a set of versions there are, and the sum of when they were taken.

    Not the newest time: by another daemon's clock, a sample may be replaced by one that is not.
    """
    row = connection.execute(_MARK, {"of": profile, "running": versions}).one()
    return int(row[0]), float(row[1] or 0.0)


def put_baseline(connection: Connection, baseline: Baseline) -> None:
    """Store the learned baseline of a metric in place of the former one."""
    row = baseline.model_dump(include={"profile", "metric", "learned_at"})
    delete_rows(connection, baselines, profile=baseline.profile, metric=baseline.metric)
    insert_row(connection, baselines, row | {"body": baseline.model_dump_json()})


def read_baselines(connection: Connection, profile: str) -> tuple[Baseline, ...]:
    """Return the baselines of a profile; "" is every profile's."""
    query = select(baselines).order_by(baselines.c.profile, baselines.c.metric)
    if profile:
        query = query.where(baselines.c.profile == profile)
    rows = connection.execute(query)
    listed = ((f"{r.profile}, {r.metric}", "", r.body) for r in rows)
    return parse_each(connection, Baseline, "baselines", listed)


# ------------------------------------------------------------------------------
# Rows of fabric sessions, and of the newest session's outcome for each node.


# made once: every waiting node asks
_OPEN = (
    select(fabric_sessions.c.id, fabric_sessions.c.body)
    .where(fabric_sessions.c.ended_at == 0.0)
    .order_by(fabric_sessions.c.id)
)


def put(
    connection: Connection, session: FabricSession, outcomes: Sequence[FabricOutcome]
) -> FabricSession:
    put_outcomes(connection, outcomes)
    return put_session(connection, session)


def put_session(connection: Connection, session: FabricSession) -> FabricSession:
    """Write a session and raise its generation; `Fenced` if another writer was faster."""
    stored = session.model_copy(update={"generation": session.generation + 1})
    row = {
        "generation": stored.generation,
        "ended_at": stored.ended_at,
        "body": stored.model_dump_json(),
    }
    if session.generation == 0:
        insert_row(connection, fabric_sessions, {"id": stored.id, **row})
        return stored
    mine = {"id": session.id, "generation": session.generation}
    if update_rows(connection, fabric_sessions, mine, row) != 1:
        raise Fenced(f"fabric session {session.id} was changed by another writer")
    return stored


def put_outcomes(connection: Connection, outcomes: Sequence[FabricOutcome]) -> None:
    """Store a session's outcomes of nodes in place of their former ones."""
    for outcome in outcomes:
        body = outcome.model_dump_json()
        row = {"node": outcome.node, "session": outcome.session, "body": body}
        delete_rows(connection, fabric_outcomes, node=outcome.node)
        insert_row(connection, fabric_outcomes, row)


def read_open(connection: Connection) -> tuple[FabricSession, ...]:
    sessions = []
    for row in connection.execute(_OPEN):
        try:
            sessions.append(_session(row.body))
        except DamagedRow as error:
            named = DamagedRow(f"fabric_sessions, {row.id}", error.problem)
            records.record(connection.engine, "", named)
    return tuple(sessions)


@lru_cache(maxsize=16)  # every waiting node looks at every session: parsed once after each round
def _session(body: str) -> FabricSession:
    return parse(FabricSession, body, "fabric_sessions")


def read_outcome(connection: Connection, node: str) -> FabricOutcome | None:
    """Return the newest session's outcome for a node."""
    body = find_value(connection, fabric_outcomes.c.body, node=node)
    return None if body is None else parse(FabricOutcome, body, f"fabric_outcomes, {node}")


# made once: the watch reads a certificate at every look, a turn reads inventories and reports, and
# a fabric session the reports of its members at each step
_CERTIFICATE = select(certificates.c.body).where(certificates.c.id == bindparam("name"))
_NEWEST = (
    select(inventories.c.body)
    .where(inventories.c.node == bindparam("name"))
    .order_by(inventories.c.id.desc())
    .limit(1)
)
_NEWEST_ID = (
    select(inventories.c.id, inventories.c.digest, node_versions.c.inventory.label("listed"))
    .select_from(inventories.outerjoin(node_versions, node_versions.c.node == inventories.c.node))
    .where(inventories.c.node == bindparam("name"))
    .order_by(inventories.c.id.desc())
    .limit(1)
)
_ADDED = insert(inventories).returning(inventories.c.id)
_REPORT = (
    select(reports.c.body)
    .where(reports.c.node == bindparam("name"))
    .order_by(reports.c.id.desc())
    .limit(1)
)
_REVOKED = select(certificates.c.revoked_at).where(certificates.c.id == bindparam("name"))
_KEPT = select(evidence.c.size).where(evidence.c.digest == bindparam("wanted"))


def put_inventory(connection: Connection, inventory: Inventory, now: float) -> None:
    """Store an inventory, unless it is equal to the last one, and what it says for lists.

    A daemon of an older version stores inventories alone: what it left out is made up for here.
    """
    body = inventory.model_dump_json()
    digest = hashlib.sha256(body.encode()).hexdigest()  # as `Record.digest`, without a second dump
    newest = connection.execute(_NEWEST_ID, {"name": inventory.node}).one_or_none()
    number = None if newest is None or newest.digest != digest else newest.id
    if number is None:
        row = {"node": inventory.node, "digest": digest, "body": body, "seen_at": now}
        number = connection.execute(_ADDED, row).scalar_one()
    elif newest is not None and newest.listed == number:
        return
    _list_inventory(connection, inventory, number, now)


def _list_inventory(connection: Connection, inventory: Inventory, number: int, now: float) -> None:
    """Write what lists need of a node's newest inventory in place of what they had.

    A set of versions that a node ran once stays: faults are weighed by it.
    """
    node = inventory.node
    versions = json.dumps(list_versions(inventory), separators=(",", ":"))
    digest = hashlib.sha256(versions.encode()).hexdigest()
    if find_value(connection, node_versions.c.versions, node=node) != digest:
        if find_value(connection, version_sets.c.digest, digest=digest) is None:
            insert_row(connection, version_sets, {"digest": digest, "body": versions})
        at = {"node": node, "begins_at": now}
        delete_rows(connection, version_spans, **at)  # the last one of a moment stays
        insert_row(connection, version_spans, at | {"versions": digest})
        _forget_spans(connection, node, now)
    row = {
        "node": node,
        "inventory": number,
        "versions": digest,
        "serials": clean("\n".join(list_serials(inventory))),
        "models": clean("\n".join(list_models(inventory))),
    }
    delete_rows(connection, node_versions, node=node)
    insert_row(connection, node_versions, row)


SPANS_KEPT_S = 750 * 86_400.0  # faults are looked back at for 730 days at most
SPANS_MAX = 500  # of one node: a BMC that tells now this and now that adds one each time
_SPANS = select(version_spans.c.begins_at).where(version_spans.c.node == bindparam("name"))
_NEWEST_SPANS = (
    _SPANS.order_by(version_spans.c.begins_at.desc()).offset(bindparam("before")).limit(1)
)
_OLD_SPAN = select(func.max(version_spans.c.begins_at)).where(
    version_spans.c.node == bindparam("name"), version_spans.c.begins_at <= bindparam("kept_since")
)


def _forget_spans(connection: Connection, node: str, now: float) -> None:
    """Forget a node's oldest sets of versions; the one of the oldest time that is kept stays."""
    mine = version_spans.c.node == node
    begins = version_spans.c.begins_at
    kept_since = now - SPANS_KEPT_S
    begun = (
        connection.scalar(_NEWEST_SPANS, {"name": node, "before": SPANS_MAX - 1}),
        connection.scalar(_OLD_SPAN, {"name": node, "kept_since": kept_since}),
    )
    gone = mine & (begins < max((b for b in begun if b is not None), default=float("-inf")))
    if connection.scalar(select(begins).where(gone).limit(1)) is None:
        return
    # nobody reads a retired node again, so that its own turn never comes
    left = cast(json_text(nodes.c.body, "entered_at"), Double) <= kept_since
    retired = select(nodes.c.id).where(nodes.c.state == str(State.RETIRED), left)
    gone |= version_spans.c.node.in_(retired)
    digests = set(connection.scalars(select(version_spans.c.versions).where(gone)))
    connection.execute(delete(version_spans).where(gone))
    ran = select(version_spans.c.node).where(version_spans.c.versions == version_sets.c.digest)
    runs = select(node_versions.c.node).where(node_versions.c.versions == version_sets.c.digest)
    unused = version_sets.c.digest.in_(digests) & ~ran.exists() & ~runs.exists()
    connection.execute(delete(version_sets).where(unused))


def read_inventory(connection: Connection, node: str) -> Inventory | None:
    body = connection.scalar(_NEWEST, {"name": node})
    try:
        return None if body is None else parse_inventory(body)
    except DamagedRow as error:
        raise DamagedRow(f"inventories, {node}", error.problem) from None


@lru_cache(maxsize=4096)  # a fleet has some hundred distinct sets
def _parse_versions(body: str) -> tuple[ListedVersion, ...]:
    try:
        return tuple(ListedVersion(*row) for row in json.loads(body))
    except (ValueError, TypeError) as error:
        raise DamagedRow("version_sets", str(error)) from None


def read_versions(
    connection: Connection, names: Collection[str] | None
) -> tuple[dict[str, str], dict[str, tuple[ListedVersion, ...]]]:
    """Return (node -> digest of its set, digest -> its versions), of all nodes or of some."""
    query = select(node_versions.c.node, node_versions.c.versions)
    if names is not None:
        query = query.where(node_versions.c.node.in_(names))
    of_node = {row[0]: row[1] for row in connection.execute(query)}
    sets = select(version_sets.c.digest, version_sets.c.body)
    if names is not None:
        sets = sets.where(version_sets.c.digest.in_(set(of_node.values())))
    found = {}
    for digest, body in connection.execute(sets):
        try:
            found[digest] = _parse_versions(body)
        except DamagedRow as error:  # its nodes have no versions, and the others keep theirs
            records.record(
                connection.engine, "", DamagedRow(f"version_sets, {digest}", error.problem)
            )
    return of_node, found


def read_parts(
    connection: Connection,
    names: Collection[str] | None,
    serials: Collection[str],
    models: Collection[str],
    limit: int | None = None,
) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return node -> (its serials' lines, its models), where one of these texts is in them.

    A serial's text is in small letters. An empty text is in each.
    """
    query = select(node_versions.c.node, node_versions.c.serials, node_versions.c.models)
    found = [node_versions.c.serials.contains(text, autoescape=True) for text in serials]
    found += [node_versions.c.models.contains(text, autoescape=True) for text in models]
    query = query.where(or_(*found)) if found else query.where(false())
    if names is not None:
        query = query.where(node_versions.c.node.in_(names))
    if limit is not None:
        query = query.order_by(node_versions.c.node).limit(limit)
    return {
        row[0]: (tuple(row[1].splitlines()), tuple(row[2].splitlines()))
        for row in connection.execute(query)
    }


def read_models(connection: Connection) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}  # text -> models: alike nodes share them
    query = select(node_versions.c.node, node_versions.c.models)
    return {
        node: found.setdefault(text, tuple(text.splitlines()))
        for node, text in connection.execute(query)
    }


def put_report(connection: Connection, report: HealthReport) -> None:
    """Keep a validation's results beside the earlier ones."""
    row = {
        "node": report.node,
        "digest": report.digest(),
        "body": report.model_dump_json(),
        "ended_at": report.ended_at,
    }
    insert_row(connection, reports, row)


def read_report(connection: Connection, node: str) -> HealthReport | None:
    """Return the results of a node's last validation."""
    body = connection.scalar(_REPORT, {"name": node})
    return None if body is None else parse(HealthReport, body, f"reports, {node}")


def read_reports(connection: Connection, node: str, since: float) -> tuple[HealthReport, ...]:
    """Return the node's reports since a time, the newest first; at most 100."""
    query = (
        select(reports.c.body)
        .where(reports.c.node == node, reports.c.ended_at >= since)
        .order_by(reports.c.id.desc())
        .limit(100)
    )
    rows = connection.scalars(query)
    return tuple(parse(HealthReport, body, f"reports, {node}") for body in rows)


def put_evidence(connection: Connection, digest: str, size: int, packed: bytes) -> None:
    """Keep raw output under its digest; the same output is kept once."""
    if connection.scalar(_KEPT, {"wanted": digest}) is not None:
        return
    try:
        with connection.begin_nested():
            insert_row(connection, evidence, {"digest": digest, "size": size, "body": packed})
    except IntegrityError:
        return  # another daemon stored the same text in the meantime


def pack(text: str) -> tuple[str, int, bytes]:
    """Return digest, size in bytes, and compressed form of a text; outside of any transaction."""
    # surrogatepass: a command's output is stored unchanged, even where it is not Unicode
    raw = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).hexdigest(), len(raw), zlib.compress(raw)


def read_evidence(connection: Connection, digest: str) -> str | None:
    """Return the text with this digest; `DamagedRow` if the stored text has another one."""
    row = find_row(connection, evidence, digest=digest)
    if row is None:
        return None
    try:
        raw = zlib.decompressobj().decompress(row.body, row.size + 1)
    except zlib.error:
        raw = b""
    if hashlib.sha256(raw).hexdigest() != digest:
        raise DamagedRow(f"evidence, {digest}", "it differs from the stored text")
    return raw.decode("utf-8", "surrogatepass")


def put_certificate(connection: Connection, certificate: Certificate) -> None:
    """Keep a certificate; its id must be new."""
    row = certificate.model_dump(include={"id", "node", "issued_at"})
    row |= {"body": certificate.model_dump_json(), "revoked_reason": ""}
    insert_row(connection, certificates, row)


def read_certificate(connection: Connection, certificate_id: str) -> Certificate | None:
    """Return a certificate, revoked or not: ask `revoked` as well."""
    body = connection.scalar(_CERTIFICATE, {"name": certificate_id})
    return None if body is None else parse(Certificate, body, f"certificates, {certificate_id}")


def revoke(connection: Connection, certificate_id: str, reason: str, now: float) -> None:
    """Revoke for good; the first reason and time stay. A certificate that does not exist changes
    nothing.
    """
    connection.execute(
        update(certificates)
        .where(certificates.c.id == certificate_id, certificates.c.revoked_at.is_(None))
        .values(revoked_at=now, revoked_reason=clean(reason))
    )


def revoked(connection: Connection, certificate_id: str) -> bool:
    """Return whether it is revoked; a certificate that is not in the store counts as revoked."""
    row = connection.execute(_REVOKED, {"name": certificate_id}).first()
    return row is None or row.revoked_at is not None


def read_revoked_at(row: Any) -> float | None:
    """Return when a certificate was revoked: since its issue if it cannot be told any more."""
    if row.revoked_at is None or isinstance(row.revoked_at, float):
        return row.revoked_at
    return row.issued_at if isinstance(row.issued_at, float) else 1.0


def read_revocations(connection: Connection) -> tuple[Revocation, ...]:
    """Return all revocations, the oldest first; expired or not."""
    query = (
        select(certificates)
        .where(certificates.c.revoked_at.is_not(None))
        .order_by(certificates.c.revoked_at, certificates.c.id)
    )
    return tuple(
        Revocation(
            certificate=row.id,
            node=row.node,
            revoked_at=read_revoked_at(row) or 0.0,
            reason=str(row.revoked_reason or ""),
        )
        for row in connection.execute(query)
    )


def put_proof(connection: Connection, proof: ReleaseProof) -> None:
    """Store the proof of a node's release into a customer VRF."""
    row = proof.model_dump(include={"node", "certificate", "tenant", "confirmed_at"})
    insert_row(connection, proofs, row | {"body": proof.model_dump_json()})


def read_proof(connection: Connection, node: str) -> ReleaseProof | None:
    body = connection.scalar(
        select(proofs.c.body).where(proofs.c.node == node).order_by(proofs.c.id.desc()).limit(1)
    )
    return None if body is None else parse(ReleaseProof, body, f"proofs, {node}")


def put_matrix(connection: Connection, digest: str, text: str, now: float) -> None:
    """Keep a matrix that was used; the same one is kept once."""
    if find_value(connection, matrices.c.digest, digest=digest) is None:
        row = {"digest": digest, "body": clean(text), "first_used_at": now}
        insert_row(connection, matrices, row)
