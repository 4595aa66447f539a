"""Jobs on one node: found by name, in the table or on the map, tried again, reclaimed, reported."""

from __future__ import annotations

import json
from pathlib import Path

from chromium import Looker
from console_dialogs import agree, open_node
from console_fleet import host
from console_jobs import job
from console_release import IMAGED
from console_site import Site
from given_events import event_of
from home_jobs import put_blocked

from provisioner.model.alert import Alert
from provisioner.model.node import State
from provisioner.model.operation import ActionStatus

AREA = "Nodes"


@job(AREA, "Find a node by name and see its journey, plan and versions")
def see_node(looker: Looker, _site: Site) -> None:
    open_node(looker, "su1-n15")
    for part in ("Journey", "Plan", "Components"):
        looker.page.get_by_role("region", name=part, exact=True).wait_for()
    events = looker.page.get_by_role("list", name="Events, the newest first")
    events.get_by_text("became converging; campaign c0001 brings it to").wait_for()


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


def tell_event(file: Path, **event: object) -> None:
    """Write what the callback of the play writes (ansible/callback_plugins)."""
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps({"host": "job-n97", **event}) + "\n")


@job(AREA, "See the output of an Ansible task while it runs, and when it fails")
def open_failed(looker: Looker, site: Site) -> None:
    name = put_blocked(site, 97, "Look at what the task said.")
    operations = site.store.operations
    operation = site.do(operations.open(name, "journey", site.now()))
    acted = site.do(operations.intend(operation, "install host.doca", {"to": "3.3.0"}, site.now()))
    file = site.begin_play(name, site.now())
    tell_event(file, event="task", task="install the packages", at=site.now())
    looker.to("fleet", "Fleet")
    looker.to("home", "Home")
    row = looker.page.get_by_role("row").filter(has_text="Look at what the task said.")
    row.get_by_role("link").click()
    looker.page.get_by_role("link", name="install host.doca", exact=True).click()
    tasks = looker.page.get_by_role("list", name="Tasks of host_software.yml")
    tasks.get_by_text("running").wait_for()
    looker.page.get_by_text('"to": "3.3.0"').wait_for(state="attached")

    said = "Unable to fetch mlnx-ofed <img src=x onerror=owned=1>"
    tell_event(file, event="failed", message=said, final=True, at=site.now())
    tasks.get_by_text(said).wait_for()  # it opens by itself, while the page is looked at
    assert tasks.locator("img").count() == 0
    site.do(operations.settle(*acted, ActionStatus.FAILED, task="", outcome=said, now=site.now()))
    looker.page.get_by_role("region", name="Outcome").get_by_text(said).wait_for()
    assert looker.barriers() == []
    looker.page.go_back()
    looker.page.get_by_role("link", name="Open the step that failed").wait_for()


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


@job(AREA, "See the nodes by their blocker, in the table of the whole fleet")
def sort_table(looker: Looker, _site: Site) -> None:
    looker.get("nav").get_by_role("link", name="Fleet", exact=True).click()
    looker.page.get_by_text("Table", exact=True).click()
    head = looker.page.get_by_role("columnheader", name="Blocked by")
    head.get_by_role("button").click()
    looker.get("[role=columnheader][aria-sort=ascending]").get_by_text("Blocked by").wait_for()
    # its rows follow in the next frame, which a busy browser draws late
    looker.get(".rows-room .row").first.filter(has_text="check failed").wait_for()
    looker.page.get_by_text("Map", exact=True).evaluate("(label) => label.click()")


def colour_by(looker: Looker, word: str, legend: str) -> None:
    """Colour the map, and wait for an entry of its legend."""
    looker.get("nav").get_by_role("link", name="Fleet", exact=True).click()
    looker.page.get_by_text(word, exact=True).click()
    looker.get(".legend").get_by_text(legend, exact=True).wait_for()


@job(AREA, "See on the map when certificates end")
def see_certificates(looker: Looker, _site: Site) -> None:
    colour_by(looker, "Certificate", "within 30 days")


@job(AREA, "See on the map the waves of a campaign")
def see_waves(looker: Looker, _site: Site) -> None:
    colour_by(looker, "Wave", "c0001 canaries")


@job(AREA, "Show on the map only the nodes with one alert")
def see_alerts(looker: Looker, site: Site) -> None:
    raised = Alert(
        node="su2-n01", id="LinkDown", target="p0", source="watch", since=site.now(),
        last_at=site.now(),
    )  # fmt: skip
    site.do(site.store.alerts.put([raised], [], site.now()))
    colour_by(looker, "Alert", "LinkDown")
    looker.get(".legend").get_by_role("button", name="LinkDown").click()
    looker.get(".said").get_by_text("1 of ").wait_for()


@job(AREA, "Give all nodes of a list a tag")
def tag_many(looker: Looker, site: Site) -> None:
    names = [put_blocked(site, n, "Look at its fans.") for n in (100, 101)]
    looker.to("fleet", "Fleet")
    looker.to("home", "Home")
    row = looker.page.get_by_role("row").filter(has_text="Look at its fans.")
    row.get_by_role("link").click()
    looker.page.get_by_role("checkbox", name="Select all ").check()
    looker.get("main").get_by_role("button", name="Tag (").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_label("Tags to add").fill("fans burn-in")
    dialog.get_by_role("button", name="Tag (").click()
    dialog.wait_for(state="detached")
    tags = {site.do(site.store.nodes.get(name)).tags for name in names}
    assert tags == {("burn-in", "fans")}
