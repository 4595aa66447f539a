"""Jobs with what the site has and declares: versions, ports, the hardware list, policies, files."""

from __future__ import annotations

import json

from cabled_hosts import cabled
from chromium import Looker
from console_dialogs import agree, ask_for, more, open_entry, open_node, search_page
from console_jobs import job
from console_site import Site
from console_stories import PROVED

from provisioner.model.campaign import NamedPolicy, Policy

AREA = "Inventory"


@job(AREA, "See the versions of the fleet against their pins")
def see_versions(looker: Looker, _site: Site) -> None:
    more(looker, "Versions")
    looker.page.get_by_role("region", name="Versions across the fleet").wait_for()
    looker.page.get_by_role("columnheader", name="Pinned").wait_for()


@job(AREA, "List all nodes with one version of a component")
def list_with_version(looker: Looker, _site: Site) -> None:
    more(looker, "Versions")
    looker.page.get_by_role("link", name=" nodes with host.doca ").first.click()
    looker.page.get_by_role("heading", level=1, name="Nodes").wait_for()
    looker.page.get_by_role("rowheader").first.wait_for()


@job(AREA, "See the ports of a node, and the neighbours at one of them")
def see_ports(looker: Looker, _site: Site) -> None:
    open_node(looker, PROVED)
    cables = looker.page.get_by_role("region", name="Cables").first
    cables.get_by_role("link").first.click()
    looker.page.get_by_role("region", name="Ports and neighbours").first.wait_for()


@job(AREA, "See the hardware list, and what the server says of a new entry")
def see_hardware(looker: Looker, _site: Site) -> None:
    more(looker, "Hardware list")
    looker.page.get_by_role("region", name="Hardware list").wait_for()
    looker.page.get_by_role("button", name="New entry").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_label("Name of the node").fill("su9-n00")
    dialog.get_by_label("BMC:").fill("10.0.0.9")
    dialog.get_by_label("Rack").fill("su9-rack0")
    dialog.locator(".plan").get_by_text("This process reaches no BMC").wait_for()
    dialog.get_by_role("button", name="Cancel").evaluate("(button) => button.click()")
    refused = [line for line in looker.complaints if "409" in line]
    assert looker.complaints == refused
    looker.complaints.clear()


@job(AREA, "Add a node to the hardware list, which takes it in")
def add_hardware(looker: Looker, site: Site) -> None:
    with cabled(site, 1) as ((url,), factory):
        ((vendor, login),) = factory.items()
        more(looker, "Hardware list")
        entry = {"Name of the node": "new-n00", "BMC:": url, "Rack": "new-rack0"}
        given = {"Vendor": vendor, "Factory user": login["username"]}
        secret = {"Its password": login["password"]}
        ask_for(looker, "New entry", entry | given | secret, "1 node would be taken in")
        looker.get("main").get_by_text("new-n00").first.wait_for()
    node = site.do(site.store.nodes.get("new-n00"))
    assert node.location.rack == "new-rack0", node


@job(AREA, "Take the nodes of a list in")
def take_in(looker: Looker, site: Site) -> None:
    with cabled(site, 2) as (urls, factory):
        nodes = [
            {"name": f"list-n{n:02d}", "kind": "host", "bmc": {"url": url}}
            for n, url in enumerate(urls)
        ]
        listed = {"site": "site", "factory_credentials": factory, "nodes": nodes}
        search_page(looker, "Hardware list")
        looker.get("main").get_by_role("link", name="Take nodes in").click()
        looker.page.get_by_label("The expected-hardware list").fill(json.dumps(listed))
        ask_for(looker, "Take in", {}, "2 nodes would be taken in")
        looker.get("main").get_by_text("list-n01").first.wait_for()
    assert {"list-n00", "list-n01"} <= {n.id for n in site.do(site.store.nodes.list())}


def put_slow(site: Site) -> str:
    """Keep a policy of one canary; return its name."""
    row = NamedPolicy(name="slow", policy=Policy(), note="for BMCs", by="ada", at=site.now())
    site.do(site.store.policies.put(row, site.now()))
    return row.name


@job(AREA, "Change a policy of campaigns")
def change_policy(looker: Looker, site: Site) -> None:
    name = put_slow(site)
    more(looker, "Policies")
    looker.get("tbody").get_by_role("button", name="Change").click()
    note = {"What it is for": "for BMCs and cards"}
    agree(looker, "Change", note, f"{name}, compared with the present one")
    looker.page.get_by_text("for BMCs and cards").wait_for()


@job(AREA, "Change what another tab changed meanwhile, and see that nothing was overwritten")
def change_in_conflict(looker: Looker, site: Site) -> None:
    looker.to("policies", "Policies")
    looker.get("tbody").get_by_role("button", name="Change").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_label("What it is for").fill("mine")
    dialog.locator("button[type=submit]:not([disabled])").wait_for()
    row = site.do(site.store.policies.get("slow"))
    other = row.model_copy(update={"note": "theirs", "generation": row.generation + 1})
    site.do(site.store.policies.put(other, site.now()))
    dialog.get_by_role("button", name="Change").click()
    dialog.get_by_role("alert").get_by_text("changed").first.wait_for()

    assert dialog.get_by_label("What it is for").input_value() == "mine"  # nothing typed is lost
    assert site.do(site.store.policies.get("slow")).note == "theirs"
    dialog.get_by_role("button", name="Cancel").evaluate("(button) => button.click()")
    looker.complaints.clear()  # the browser told of the request that was refused


@job(AREA, "See what a tenant has, and its limits")
def see_limits(looker: Looker, _site: Site) -> None:
    open_entry(looker, "Tenants", "red")
    looker.page.get_by_role("region", name="What it has").get_by_text("GPUs").first.wait_for()


@job(AREA, "Upload a firmware file to the artifact store")
def upload(looker: Looker, site: Site) -> None:
    more(looker, "Images")
    file = {"name": "card-1.2.3.bin", "mimeType": "application/octet-stream", "buffer": b"\0" * 999}
    looker.page.get_by_label("File", exact=True).set_input_files([file])  # type: ignore[list-item]
    looker.page.get_by_text("card-1.2.3.bin is stored: 999 bytes").wait_for()
    looker.page.locator("main button:not([disabled])", has_text="Upload").click()
    looker.page.get_by_role("rowheader", name="card-1.2.3.bin").wait_for()
    assert site.do(site.store.images.get("card-1.2.3.bin")) is not None
