"""Jobs on a machine: its power, console, clock, tags, passwords and certificate."""

from __future__ import annotations

from chromium import Looker
from console_dialogs import agree, ask_for, more, open_node
from console_fleet import host
from console_jobs import job
from console_site import Site
from console_stories import PROVED
from node_jobs import put_released

from provisioner.model.node import BmcRef, State
from provisioner.ports import Secret

AREA = "Machines"
PASSWORD = "Kq7-hidden-Word.9"
BMC = BmcRef(name="host", url="https://10.0.0.9:443", rotated=True)


def put_machine(site: Site, number: int) -> str:
    """Add a host at rest with a BMC whose password the daemon has set; return its name."""
    name = f"machine-n{number:02d}"
    row = host(number, State.QUARANTINED, site.now())
    site.do(site.store.nodes.add(row.model_copy(update={"id": name, "bmcs": (BMC,)})))
    site.do(site.vault.put(f"{name}/host", "root", Secret(PASSWORD)))
    enrolled_at = site.now() - 30.5 * 86_400.0
    site.do(site.store.credential_standings.enroll({f"{name}/host": name}, enrolled_at))
    return name


def ask_power(looker: Looker, shows: str) -> None:
    """Agree to a cycle; the site of these tests reaches no BMC, which the dialog says."""
    looker.get("main").get_by_role("button", name="Power", exact=True).click()
    looker.page.get_by_role("dialog").get_by_text("This process reaches no BMC").wait_for()
    agree(looker, "Power", {}, shows)
    refused = [line for line in looker.complaints if "409" in line]
    assert looker.complaints == refused
    looker.complaints.clear()


def list_wants(site: Site, node: str) -> list[str]:
    """Return the purposes of a node's operations that are under way."""
    return [o.want for o in site.do(site.store.operations.list_active()) if o.node == node]


@job(AREA, "Switch a node off and on again")
def cycle(looker: Looker, site: Site) -> None:
    name = put_machine(site, 1)
    open_node(looker, name)
    ask_power(looker, "is switched off at once and on again")
    assert list_wants(site, name) == ["power cycle"]


@job(AREA, "Switch the power of one's node", role="tenant")
def cycle_own(looker: Looker, site: Site) -> None:
    put_released(site, "job-n88")
    row = site.do(site.store.nodes.get("job-n88"))
    site.do(site.store.nodes.save(row.model_copy(update={"bmcs": (BMC,)})))
    open_node(looker, "job-n88")
    ask_power(looker, "The work of red on it ends")
    assert list_wants(site, "job-n88") == ["power cycle for its tenant"]


@job(AREA, "Read the serial console of a node")
def read_console(looker: Looker, site: Site) -> None:
    name = put_machine(site, 2)
    site.print_lines(name, ["[    0.000000] Linux version 6.8.0", "kernel panic"])
    open_node(looker, name)
    looker.get("main").get_by_role("link", name="Console", exact=True).click()
    looker.page.get_by_text("kernel panic").wait_for()
    site.print_lines(name, ["rebooting in 10 seconds"])
    looker.page.get_by_text("rebooting in 10 seconds").wait_for()  # it comes by itself


@job(AREA, "Read the serial console of one's node", role="tenant")
def read_own_console(looker: Looker, site: Site) -> None:
    put_released(site, "job-n89")
    site.print_lines("job-n89", ["login:"])
    open_node(looker, "job-n89")
    looker.get("main").get_by_role("link", name="Console", exact=True).click()
    looker.page.get_by_text("login:").wait_for()


@job(AREA, "Set the time of a node's BMCs")
def set_time(looker: Looker, site: Site) -> None:
    name = put_machine(site, 3)
    open_node(looker, name)
    ask_for(looker, "Set BMC time", {}, "get the daemon's time once")
    assert list_wants(site, name) == ["bmc time"]


@job(AREA, "Change the tags of a node")
def tag(looker: Looker, site: Site) -> None:
    name = put_machine(site, 4)
    open_node(looker, name)
    ask_for(looker, "Tags", {"Tags, by space": "loan team:vision"}, "loan, team:vision")
    assert site.do(site.store.nodes.get(name)).tags == ("loan", "team:vision")


@job(AREA, "See the age of the passwords of BMCs, and what is due")
def see_passwords(looker: Looker, site: Site) -> None:
    put_machine(site, 5)
    more(looker, "Passwords")
    row = looker.page.get_by_role("row").filter(has_text="machine-n05/host")
    row.get_by_text("30 d").wait_for()


@job(AREA, "Change the password of a BMC now")
def change_password(looker: Looker, site: Site) -> None:
    name = put_machine(site, 6)
    open_node(looker, name)
    looker.get("main").get_by_role("link", name="Passwords", exact=True).click()
    looker.page.get_by_role("button", name=f"Change {name}/host").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_label("Why").fill("a laptop was lost")
    dialog.get_by_role("button", name="Change", exact=True).click()
    dialog.wait_for(state="detached")
    standing = site.do(site.store.credential_standings.get(f"{name}/host"))
    assert standing.cause == "requested"


@job(AREA, "Ask to see the password of a BMC")
def ask_password(looker: Looker, site: Site) -> None:
    name = put_machine(site, 7)
    open_node(looker, name)
    looker.get("main").get_by_role("link", name="Passwords", exact=True).click()
    ask_for(looker, "Ask", {"Why": "the host hangs"}, "once another person has approved it")
    looker.page.get_by_text("Another person approves it first.").wait_for()


@job(AREA, "See the password that another person allowed one to see")
def read_password(looker: Looker, site: Site) -> None:
    asked = site.do(site.store.requests.list_page(before=0, limit=1, states=None, tenant=None))[0]
    approved = looker.context.request.post(
        f"{site.url}/v1/requests/r{asked.id}/approve",
        data={"note": ""},
        headers={"Authorization": f"Bearer {site.tokens['approver']}"},
    )
    assert approved.status == 200, approved.text()
    more(looker, "Passwords")
    looker.get("main").get_by_role("button", name="Read it").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Read it").click()
    dialog.get_by_text(PASSWORD).wait_for()
    assert looker.barriers() == []
    looker.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert PASSWORD not in looker.page.content()
    shown = site.do(site.store.credential_standings.get("machine-n07/host")).shown_to
    assert shown == ("operator@example",)


@job(AREA, "Revoke the certificate of a node")
def revoke(looker: Looker, site: Site) -> None:
    more(looker, "Certificates")
    looker.get("main").get_by_role("button", name=f"of {PROVED}").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_label("Why").fill("the wrong cable was tested")
    dialog.get_by_role("button", name="Revoke", exact=True).click()
    dialog.wait_for(state="detached")
    assert [r.reason for r in site.do(site.store.evidence.list_revocations())] == [
        "the wrong cable was tested"
    ]
