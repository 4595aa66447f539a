"""What live decisions need of the journal stays at a prune, and goes once it is not needed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from given_events import event_of

from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.campaign import Campaign, CampaignState
from provisioner.model.case import Case, Origin, Service
from provisioner.model.certificate import Certificate, GateProof
from provisioner.model.cohort import Gate
from provisioner.model.integrations.webhook import Webhook
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.operation import OperationStatus
from provisioner.model.tenant import ReleaseProof
from provisioner.store import SqlStore
from provisioner.store.database.journal_archive import read_lines, write_archive
from provisioner.store.repositories.signing_keys import MasterKey, open_signer
from provisioner.store.rows.journal import GENESIS
from provisioner.store.rows.journal_prune import Span, prune_unneeded
from provisioner.store.rows.request_rows import add_request, save_request

DAY_S = 86_400.0
NOW = 100 * DAY_S
Act = Callable[[SqlStore], Awaitable[Any]]
CERTIFICATE = Certificate(
    id="c1", node="n1", release="r", profile="p", serials=("s",), versions=(), boot_id="b",
    location="l", ports=(), report_digest="d", matrix_digest="m", issued_at=60 * DAY_S,
    gates=(GateProof(gate=Gate.A, certificate="c0", proved_at=50 * DAY_S),),
    expires_at=NOW + DAY_S,
)  # fmt: skip
CASE = Case(
    id="n1-0001", node="n1", origin=Origin.EVENT, reason="r", service=Service.KEEP,
    opened_at=50 * DAY_S,
)  # fmt: skip


async def certify(store: SqlStore, certificate: Certificate = CERTIFICATE) -> None:
    operation = await store.operations.take((await store.operations.open("n1", "journey", NOW)).id)
    done = operation.model_copy(update={"status": OperationStatus.DONE})
    await store.operations.record(done, certificate=certificate, now=NOW)


async def revoke(store: SqlStore) -> None:
    await certify(store)
    await store.evidence.revoke("c1", "an alert", NOW)


async def expire(store: SqlStore) -> None:
    await certify(store, CERTIFICATE.model_copy(update={"expires_at": NOW - 1.0}))


async def hand_over(store: SqlStore, tenant: str = "blue") -> None:
    operation = await store.operations.take((await store.operations.open("n1", "journey", NOW)).id)
    done = operation.model_copy(update={"status": OperationStatus.DONE})
    node = (await store.nodes.get("n1")).model_copy(
        update={"tenant": tenant, "state": State.RELEASED, "entered_at": 60 * DAY_S}
    )
    proof = ReleaseProof(
        node="n1", certificate="c1", tenant="blue", placements=(), confirmed_at=50 * DAY_S
    )
    await store.operations.record(done, node=node, proof=proof, now=NOW)


async def open_case(store: SqlStore) -> None:
    await store.cases.add(CASE, now=NOW)


async def close_case(store: SqlStore) -> None:
    await store.cases.add(CASE.model_copy(update={"closed_at": NOW}), now=NOW)


async def begin_campaign(
    store: SqlStore, state: CampaignState = CampaignState.STARTED, at: float = 50 * DAY_S
) -> None:
    campaign = Campaign(id="k1", release="r", select="all", state=state, created_at=at)
    await store.campaigns.add(campaign, "ada", NOW)


async def ask(store: SqlStore, state: RequestState = RequestState.WAITING) -> None:
    """Ask for a change whose row has the number 1; `asked` of the old rows is about it."""
    asked = ChangeRequest(
        kind=ChangeKind.NODE_RETRY, subject="n1", asked_by="ada", asked_at=NOW,
        state=RequestState.WAITING,
    )  # fmt: skip
    stored = await store.write(partial(add_request, asked=asked))
    if state is not RequestState.WAITING:
        ended = stored.model_copy(update={"state": state})
        await store.write(partial(save_request, asked=ended, by="bob", now=NOW))


async def listen(store: SqlStore, after: int = 12) -> None:
    webhook = Webhook(name="w", url="https://w.example", made_at=NOW)
    await store.webhooks.add(webhook, after, "ada")


async def keep_delivery(store: SqlStore) -> None:
    """A webhook that looked at rows up to 13, and has not delivered 13 yet."""
    await listen(store)
    assert await store.webhooks.spread("w", 1) == 1


async def fill(store: SqlStore) -> None:
    """Write rows 1 to 15, of the days 47, 49 and 51: a node's, a campaign's, and of a change."""
    await store.nodes.add(Node(id="n1", kind=NodeKind.HOST, state=State.CERTIFIED))
    for day in (47, 49, 51):
        for kind, about, detail in (
            ("moved", "n1", {}),
            ("moved", "n2", {}),
            ("campaign", "", {"campaign": "k1"}),
            ("asked", "", {"id": 1}),
            ("asked", "", {"id": 2}),
        ):
            await store.journal.append(event_of(kind, about, detail), day * DAY_S)


@pytest.mark.parametrize(
    ("act", "staying"),
    [
        (certify, {6, 11}),  # from a day before what its oldest gate was measured
        (revoke, set()),
        (expire, set()),
        (hand_over, {6, 11}),
        (partial(hand_over, tenant=""), set()),
        (open_case, {11}),
        (close_case, set()),
        (begin_campaign, {13}),
        (partial(begin_campaign, state=CampaignState.PAUSED), {13}),
        (partial(begin_campaign, state=CampaignState.DONE), set()),
        (ask, {4, 9, 14}),
        (partial(ask, state=RequestState.UNDER_WAY), {4, 9, 14}),
        (partial(ask, state=RequestState.DONE), set()),
        (listen, {13, 14, 15}),
        (keep_delivery, {13, 14, 15}),
    ],
)
@pytest.mark.parametrize("run", ["threads file", "threads server"], indirect=True)
def test_rows_that_live_decisions_need_stay(run, tmp_path, act, staying):
    async def scenario(store: SqlStore) -> Any:
        signer = await open_signer(store, MasterKey(b"k" * 32), NOW)
        await fill(store)
        await act(store)
        await store.journal.append(event_of("moved", "n3"), NOW)  # the newest row is in no archive
        first = min(row["seq"] for row in await store.journal.list() if row["at"] == 47 * DAY_S)
        last = first + 14
        lines = await store.read(partial(read_lines, first=1, last=last))
        one = write_archive(tmp_path, lines, GENESIS, signer, ("ada", NOW), "1.0")
        span = Span(1, GENESIS, one.digests, one.sha256)
        step = partial(prune_unneeded, span=span, signer=signer, by="ada", now=NOW)
        removal = await store.write(step)
        check = await store.journal.verify()
        left = {int(row["seq"]) for row in await store.journal.list()}
        return (
            {seq - first + 1 for seq in left if seq <= last},
            check.intact,
            set(removal.staying) == {seq for seq in left if seq <= last},
        )

    assert run(scenario) == (staying, True, True)
