"""A node's page at its handover: steps and withheld acts of an adopted one, what a tenant got."""

from __future__ import annotations

from chromium import Looker
from console_site import Site

from provisioner.model.adoption.capability import Capability, Grant, GrantScope
from provisioner.model.events.request_events import ActWithheld
from provisioner.model.location import Location
from provisioner.model.node import Node, NodeKind, Origin, Placement, State
from provisioner.model.tenant import LibraryMinimum, ReleaseProof
from provisioner.runtime import permit
from provisioner.store.rows.evidence_rows import put_proof

NAME = "su9-n00"


async def add_adopted(site: Site) -> None:
    """Store an adopted node whose fence was withheld; the watch over it is granted."""
    row = Node(
        id=NAME,
        kind=NodeKind.HOST,
        state=State.RELEASED,
        placement=Placement.CUSTOMER,
        origin=Origin.ADOPTED,
        tenant="red",
        vrf="RED",
        location=Location(rack="su9-rack0"),
        note="serving, not certified: adopted 2026-11-23",
    )
    await site.store.nodes.add(row)
    grant = Grant(
        scope=GrantScope.NODE,
        name=NAME,
        capability=Capability.WATCH,
        granted=True,
        by="ada",
        at=1.0,
        reason="first step",
    )
    await site.store.grants.put([grant], 1.0)
    withheld = ActWithheld(
        about=NAME,
        act="move 8 ports to MAINT",
        needs=Capability.ISOLATION,
        why="isolation is not granted",
    )
    await site.store.journal.append(withheld, 2.0)


def test_the_page_of_an_adopted_node_shows_its_steps_and_the_acts_it_would_send(
    look: Looker, site: Site
) -> None:
    site.do(add_adopted(site))
    look.to(f"nodes/{NAME}", NAME)

    would = look.page.get_by_role("region", name="What it would do")
    would.get_by_text("move 8 ports to MAINT").wait_for()
    would.get_by_text("isolation is not granted").wait_for()
    steps = look.page.get_by_role("region", name="Handed over").get_by_role("row")
    steps.nth(2).wait_for()
    shown = [row.inner_text() for row in steps.all()]
    assert [("yes" in row, "granted by ada" in row) for row in shown[1:3]] == [
        (True, True),
        (False, False),
    ]
    assert look.barriers() == []


def test_the_page_of_a_node_that_was_taken_in_has_no_steps(look: Looker) -> None:
    look.to("nodes/su1-n00", "su1-n00")

    look.page.get_by_role("region", name="Journey").wait_for()
    assert look.page.get_by_role("region", name="Handed over").count() == 0


def test_a_banner_on_every_page_says_that_this_daemon_only_observes(look: Looker) -> None:
    with permit.observe():  # this process is the daemon of the site
        look.page.reload()
        banner = look.page.get_by_role("status").filter(has_text="OBSERVING")
        for where in ("nodes/su1-n00", "tenants"):
            look.to(where)
            banner.wait_for()
    assert look.barriers() == []


async def add_released(site: Site) -> None:
    """Store a node that serves tenant red, with the proof of its release."""
    row = Node(id="su9-n01", kind=NodeKind.HOST, state=State.RELEASED, tenant="red", vrf="RED")
    await site.store.nodes.add(row.model_copy(update={"placement": Placement.CUSTOMER}))
    told = LibraryMinimum(library="nccl", minimum="2.15.1", tested="2.27.3", why="H100 (sm90)")
    proof = ReleaseProof(
        node=row.id, certificate="c1", tenant="red", vrf="RED", placements=(), libraries=(told,)
    )
    await site.store.write(lambda c: put_proof(c, proof))


def test_the_page_of_a_released_node_shows_what_its_tenant_was_told_of_libraries(
    look: Looker, site: Site
) -> None:
    site.do(add_released(site))
    look.to("nodes/su9-n01", "su9-n01")

    table = look.page.get_by_role("region", name="Proof of its release").get_by_role("row")
    table.filter(has_text="NCCL").filter(has_text="2.15.1").wait_for()
    assert "2.27.3" in table.filter(has_text="NCCL").inner_text()
