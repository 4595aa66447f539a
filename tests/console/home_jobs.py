"""Jobs of the home page and of the pages that it leads to."""

from __future__ import annotations

from chromium import Looker
from console_fleet import host
from console_jobs import job
from console_site import Site

from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.node import State
from provisioner.model.outcome import Blocker, Reason

AREA = "Home"


def put_blocked(site: Site, number: int, unblock: str) -> str:
    """Add a quarantined node with a remedy of its own; return its name."""
    blocker = Blocker(
        reason=Reason.UNREACHABLE, subject="bmc/host", detail="no answer", unblock=unblock
    )
    row = host(number, State.QUARANTINED, 1.8e9).model_copy(
        update={"id": f"job-n{number:02d}", "blockers": (blocker,)}
    )
    site.do(site.store.nodes.add(row))
    return row.id


@job(AREA, "See all blocked nodes by reason and remedy")
def see_blocked(looker: Looker, _site: Site) -> None:
    looker.page.get_by_role("heading", name="Blocked:").wait_for()
    looker.page.get_by_text("Reseat GPU 5, then try it again.").first.wait_for()


@job(AREA, "Retry all nodes that one remedy unblocks")
def retry_group(looker: Looker, site: Site) -> None:
    names = [put_blocked(site, n, "Plug the management cable in.") for n in (90, 91, 92)]
    looker.to("fleet", "Fleet")
    looker.to("home", "Home")
    row = looker.page.get_by_role("row").filter(has_text="Plug the management cable in.")
    row.get_by_role("button", name="Retry 3").click()
    looker.page.get_by_role("dialog").get_by_role("button", name="Retry 3").click()
    looker.page.get_by_role("dialog").wait_for(state="detached")
    states = [site.do(site.store.nodes.get(name)).state for name in names]
    assert State.QUARANTINED not in states


@job(AREA, "Open the case that waits for a technician")
def open_case(looker: Looker, _site: Site) -> None:
    looker.page.get_by_role("link", name="su1-n05-c0001").click()
    looker.page.get_by_role("heading", level=1, name="su1-n05-c0001").wait_for()


@job(AREA, "List the nodes that one reason blocks")
def list_blocked(looker: Looker, _site: Site) -> None:
    row = looker.page.get_by_role("row").filter(has_text="Reseat GPU 5, then try it again.")
    row.get_by_role("link").click()
    looker.page.get_by_role("heading", level=1, name="Nodes").wait_for()
    looker.get("tbody tr").first.wait_for()


@job(AREA, "Retry some nodes that are chosen from a list")
def retry_chosen(looker: Looker, site: Site) -> None:
    names = [put_blocked(site, n, "Wait for the switch.") for n in (94, 95)]
    looker.to("fleet", "Fleet")
    looker.to("home", "Home")
    row = looker.page.get_by_role("row").filter(has_text="Wait for the switch.")
    row.get_by_role("link").click()
    looker.page.get_by_role("checkbox", name="Select all ").check()
    looker.page.get_by_role("button", name="Retry (2)").click()
    looker.page.get_by_role("dialog").get_by_role("button", name="Retry (2)").click()
    looker.page.get_by_role("dialog").wait_for(state="detached")
    states = [site.do(site.store.nodes.get(name)).state for name in names]
    assert State.QUARANTINED not in states


@job(AREA, "See free nodes by unit and by rail")
def see_capacity(looker: Looker, _site: Site) -> None:
    looker.page.get_by_text("By unit (").click()
    looker.page.get_by_role("row").filter(has_text="pod 0, unit 2").wait_for()


def put_request(site: Site, node: str) -> str:
    """Add a request that waits for a second person; return its id."""
    asked = ChangeRequest(
        kind=ChangeKind.NODE_RETRY, subject=node, asked_by="ada", state=RequestState.WAITING,
        asked_at=site.now(),
    )  # fmt: skip
    return f"r{site.do(site.store.requests.add(asked)).id}"


@job(AREA, "Approve a request of another person", role="approver")
def approve(looker: Looker, site: Site) -> None:
    name = put_blocked(site, 93, "Look at the BMC.")
    request = put_request(site, name)
    looker.to("fleet", "Fleet")
    looker.to("home", "Home")
    row = looker.page.get_by_role("row").filter(has_text=name)
    row.get_by_role("button", name="Approve").click()
    dialog = looker.page.get_by_role("dialog", name=f"Approve {request}")
    dialog.get_by_role("button", name="Approve").click()
    dialog.wait_for(state="detached")
    assert site.do(site.store.nodes.get(name)).state is not State.QUARANTINED


@job(AREA, "Keep a view under a name, shared with the staff")
def keep_view(looker: Looker, site: Site) -> None:
    looker.page.get_by_role("button", name="Views").click()
    box = looker.get("#views")
    box.get_by_label("Name of the view").fill("what waits")
    box.get_by_label("Share it with the staff").check()
    box.get_by_role("button", name="Keep").click()
    box.get_by_text("Kept as “what waits”, for others too.").wait_for()
    views = site.do(site.store.views.list("", "somebody@example"))
    assert [(v.name, v.address) for v in views] == [("what waits", "#/home")]
    looker.page.keyboard.press("Escape")


@job(AREA, "Open a view that another person shares", role="approver")
def open_view(looker: Looker, _site: Site) -> None:
    looker.to("fleet", "Fleet")
    looker.page.get_by_role("button", name="Views").click()
    looker.get("#views").get_by_text("of operator@example").wait_for()
    looker.get("#views").get_by_role("link", name="what waits").click()
    looker.page.get_by_role("heading", level=1, name="Home").wait_for()
