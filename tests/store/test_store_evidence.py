"""Evidence, certificates, tenants, and text that a hostile device sent."""

from __future__ import annotations

import hashlib

import pytest
from given_events import event_of

from provisioner.model.certificate import Certificate
from provisioner.model.node import Node, NodeKind
from provisioner.model.operation import ActionStatus
from provisioner.model.tenant import Tenant
from provisioner.store import SqlStore
from provisioner.store.schema.schema import certificates

NODE = Node(id="n1", kind=NodeKind.HOST)
CERTIFICATE = Certificate(
    id="c1", node="n1", release="r", profile="p", serials=("s",), versions=(), boot_id="b",
    location="l", ports=(), report_digest="d", matrix_digest="m", issued_at=1, expires_at=9,
)  # fmt: skip


async def driven(store: SqlStore):
    """A node with an operation that has a driver."""
    await store.nodes.add(NODE)
    operation = await store.operations.open("n1", "journey", 1.0)
    return await store.operations.take(operation.id)


@pytest.mark.parametrize("text", ["", "plain\n", "NUL \x00", "lone \udc80 surrogate", "ß" * 9999])
def test_evidence_is_kept_as_it_came_and_once(run, text):
    async def scenario(store):
        digests = {await store.evidence.put_output(text), await store.evidence.put_output(text)}
        return (
            digests,
            await store.evidence.get_output(next(iter(digests))),
            await store.evidence.get_output("0"),
        )

    digests, read, missing = run(scenario)

    assert digests == {hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}
    assert (read, missing) == (text, None)


def test_hostile_text_from_a_device_does_not_break_a_row(run):
    async def scenario(store):
        operation = await driven(store)
        before = {"tasks": ["\udcff\x00"]}
        operation, entry = await store.operations.intend(operation, "push", before, 2.0)
        operation, entry = await store.operations.settle(
            operation, entry, ActionStatus.FAILED, task="\x00/t", outcome="\udc80!", now=3.0
        )
        await store.journal.append(event_of("said", "n1", {"text": "\udc80\x00"}), 4.0)
        return (
            entry,
            await store.operations.get_last_entry(operation.id, "push"),
            (await store.journal.verify()),
        )

    entry, read, chain = run(scenario)

    assert read == entry
    assert (read.before, read.task, read.outcome) == (
        {"tasks": ["\udcff\x00"]}, "\ufffd/t", "?!",
    )  # fmt: skip
    assert chain.intact


def test_a_revoked_certificate_stays_revoked_and_an_unknown_one_counts_as_such(run):
    async def scenario(store):
        operation = await driven(store)
        await store.operations.record(operation, certificate=CERTIFICATE, now=2.0)
        before = await store.evidence.is_revoked("c1"), await store.evidence.is_revoked("unknown")
        await store.evidence.revoke("c1", "drift", 3.0)
        await store.evidence.revoke("c1", "expiry", 4.0)
        await store.evidence.revoke("unknown", "drift", 4.0)
        row = await store.read(lambda c: c.execute(certificates.select()).one())
        kept = row.revoked_at, row.revoked_reason
        return (
            before,
            await store.evidence.is_revoked("c1"),
            await store.evidence.get_certificate("c1"),
            kept,
        )

    assert run(scenario) == ((False, True), True, CERTIFICATE, (3.0, "drift"))


def test_tenants_are_replaced_by_name(run):
    async def scenario(store):
        await store.tenants.put(Tenant(name="red", vrf="RED"))
        await store.tenants.put(Tenant(name="blue", vrf="BLUE"))
        await store.tenants.put(Tenant(name="red", vrf="RED", nodes_wanted=3))
        await store.evidence.put_matrix("d", "releases: {}", 1.0)
        await store.evidence.put_matrix("d", "releases: {}", 2.0)
        return await store.tenants.list()

    assert run(scenario) == (
        Tenant(name="blue", vrf="BLUE"),
        Tenant(name="red", vrf="RED", nodes_wanted=3),
    )
