"""Jobs on one node: found on the map or in the table, tried again, reclaimed, reported."""

from __future__ import annotations

from chromium import Looker
from console_dialogs import agree
from console_fleet import host
from console_jobs import job
from console_release import IMAGED
from console_site import Site
from given_events import event_of
from home_jobs import put_blocked

from provisioner.model.node import State

AREA = "Nodes"


def open_node(looker: Looker, name: str) -> None:
    """Open a node by a filter of the fleet's table."""
    looker.get("nav").get_by_role("link", name="Fleet", exact=True).click()
    looker.page.get_by_role("heading", level=1, name="Fleet").wait_for()
    looker.page.get_by_text("Table", exact=True).click()
    looker.page.get_by_label("Filter: an expression over nodes").fill(f"node={name}")
    looker.get(".rows-room .row").get_by_text(name, exact=True).click()
    looker.page.get_by_role("heading", level=1, name=name).wait_for()


@job(AREA, "Find a node by name and see its journey, plan and versions")
def see_node(looker: Looker, _site: Site) -> None:
    open_node(looker, "su1-n15")
    for part in ("Journey", "Plan", "Components"):
        looker.page.get_by_role("region", name=part, exact=True).wait_for()


@job(AREA, "Let one node try again")
def try_again(looker: Looker, site: Site) -> None:
    name = put_blocked(site, 96, "Reboot its switch.")
    looker.to("fleet", "Fleet")
    looker.to("home", "Home")
    row = looker.page.get_by_role("row").filter(has_text="Reboot its switch.")
    row.get_by_role("link").click()
    looker.page.get_by_role("button", name="Try again").click()
    agree(looker, "Try again", {}, f"{name} leaves quarantined")
    assert site.do(site.store.nodes.get(name)).state is not State.QUARANTINED


def put_released(site: Site, name: str) -> None:
    """Add a node that serves tenant red, and that can serve again once it is erased."""
    row = host(98, State.RELEASED, site.now())
    changes = {"id": name, "tenant": "red", "served": "red", "vrf": "RED", "release": IMAGED}
    site.do(site.store.nodes.add(row.model_copy(update=changes)))
    event = event_of("state", name, {"to": "released", "why": "tenant red wants it"})
    site.do(site.store.journal.append(event, site.now()))


@job(AREA, "Take a node back from its tenant, after a look at its erasure")
def reclaim(looker: Looker, site: Site) -> None:
    put_released(site, "job-n98")
    open_node(looker, "job-n98")
    looker.page.get_by_role("button", name="Reclaim").click()
    agree(looker, "Reclaim", {}, "its disks are erased")
    assert site.do(site.store.nodes.get("job-n98")).state is State.DRAINING


@job(AREA, "Report a fault of one's node", role="tenant")
def report_fault(looker: Looker, site: Site) -> None:
    put_released(site, "job-n99")
    open_node(looker, "job-n99")
    looker.page.get_by_role("button", name="Report a fault").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_label("What is wrong").fill("its jobs hang")
    dialog.get_by_role("button", name="Report a fault").click()
    dialog.wait_for(state="detached")
    assert site.do(site.store.cases.get_open("job-n99")) is not None
