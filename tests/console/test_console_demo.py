"""An operator's jobs by clicks in `provisioner demo --stay` itself: nothing is put into its store.

Parts break in its simulated site, and its own watch finds them; a second simulated site is the
hardware that is added. docs/console-jobs.md lists the jobs with their clicks; RECORD_GOLDEN=1
writes them anew. CONSOLE_DEMO names the output of a demonstration that runs already.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chromium import Looker, chromium
from console_dialogs import agree, ask_for, more, open_entry, open_node, open_page, search_page
from console_jobs import COUNTER
from screenshots import PROVISIONER, staying

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "console-jobs.md"
BEGIN, END = "<!-- demonstration: begin -->", "<!-- demonstration: end -->"
CLICKS_MAX = 4
NODES = 8
LIMIT_S = 900.0  # for what the demonstration does by itself, on a busy machine
NO_WAIT = {"canary": {"size": 1, "soak_s": 60}, "waves": [{}], "tenants": {"notice_s": 0}}


class Demo:
    """The demonstration: its API, its simulated site, and a person in Chromium."""

    def __init__(self, said: Path, looker: Looker) -> None:
        self.folder, self.looker = said.parent / "demo", looker
        self.names: dict[str, str] = {}  # what earlier jobs left to later ones

    def ask(self, path: str, verb: str = "get", body: object = None) -> Any:
        """Ask the API, with the token that the demonstration printed."""
        url = f"{self.looker.url}/v1{path}"
        head = {"Authorization": f"Bearer {self.looker._token}"}
        data = {} if body is None else {"data": json.dumps(body)}
        head |= {} if body is None else {"Content-Type": "application/json"}
        told = getattr(self.looker.context.request, verb)(url, headers=head, **data)
        assert told.ok, f"{verb} {path}: {told.text()}"
        return told.json()

    def wait(self, there: Callable[[], Any]) -> Any:
        """Return its first answer that is true."""
        ends = time.monotonic() + LIMIT_S
        while not (found := there()):
            assert time.monotonic() < ends, f"not there within {LIMIT_S:.0f} s"
            time.sleep(1.0)
        return found

    def sim(self, *words: str) -> None:
        control = ["--control", str(self.folder / "control.sock")]
        subprocess.run([PROVISIONER, "sim", *words, *control], check=True, capture_output=True)

    def hosts(self, where: str) -> list[str]:
        rows = self.ask(f"/nodes?limit=500&where={where}")["items"]
        return [row["id"] for row in rows if row["kind"] == "host"]

    def begin(self) -> Looker:
        """Go to the first page; what is clicked from now on counts."""
        self.looker.to("fleet", "Fleet")
        self.looker.to("home", "Home")
        self.looker.run(COUNTER)
        return self.looker


Job = Callable[[Demo], None]
JOBS: list[tuple[str, Job]] = []


def job(name: str) -> Callable[[Job], Job]:
    def add(do: Job) -> Job:
        JOBS.append((name, do))
        return do

    return add


@job("See what a tenant has")
def see_tenant(demo: Demo) -> None:
    look = demo.begin()
    open_entry(look, "Tenants", "red")
    look.page.get_by_role("region", name="What it has").get_by_text("GPUs").first.wait_for()


@job("See a tenant's limits")
def see_limits(demo: Demo) -> None:
    look = demo.begin()
    open_entry(look, "Tenants", "blue")
    look.page.get_by_role("region", name="What it has").get_by_text("limit").first.wait_for()


@job("Compare versions with pins")
def see_versions(demo: Demo) -> None:
    look = demo.begin()
    more(look, "Versions")
    look.page.get_by_role("columnheader", name="Pinned").wait_for()
    look.page.get_by_role("rowheader", name="host.driver").first.wait_for()


@job("List all nodes with a driver")
def list_driver(demo: Demo) -> None:
    look = demo.begin()
    more(look, "Versions")
    look.page.get_by_role("link", name=" nodes with host.driver ").first.click()
    look.page.get_by_role("heading", level=1, name="Nodes").wait_for()
    assert look.page.get_by_role("rowheader").count() >= NODES


@job("See the ports of a node")
def see_ports(demo: Demo) -> None:
    look = demo.begin()
    open_node(look, "su0-n00")
    look.page.get_by_role("region", name="Cables").first.get_by_role("link").first.click()
    look.page.get_by_role("region", name="Ports and neighbours").first.wait_for()


@job("Read the live console")
def read_console(demo: Demo) -> None:
    look = demo.begin()
    open_node(look, "su0-n00")
    look.get("main").get_by_role("link", name="Console", exact=True).click()
    look.page.get_by_text("login:").first.wait_for()


@job("Change a policy")
def change_policy(demo: Demo) -> None:
    demo.ask("/policies/slow", "put", {"policy": NO_WAIT, "note": "for BMCs"})
    look = demo.begin()
    more(look, "Policies")
    look.get("tbody").get_by_role("button", name="Change").first.click()
    agree(look, "Change", {"What it is for": "for BMCs and cards"}, "slow")
    look.page.get_by_text("for BMCs and cards").wait_for()


@job("Be told that another tab changed it")
def change_in_conflict(demo: Demo) -> None:
    look = demo.begin()
    more(look, "Policies")
    look.get("tbody").get_by_role("button", name="Change").first.click()
    dialog = look.page.get_by_role("dialog")
    dialog.get_by_label("What it is for").fill("mine")
    dialog.locator("button[type=submit]:not([disabled])").wait_for()
    demo.ask("/policies/slow", "put", {"policy": NO_WAIT, "note": "theirs"})
    dialog.get_by_role("button", name="Change").click()
    dialog.get_by_role("alert").get_by_text("changed").first.wait_for()

    assert demo.ask("/policies/slow")["note"] == "theirs"
    dialog.get_by_role("button", name="Cancel").evaluate("(button) => button.click()")


@job("Onboard a tenant")
def onboard(demo: Demo) -> None:
    look = demo.begin()
    open_page(look, "Tenants")
    look.get("main").get_by_role("link", name="New tenant").click()
    look.page.get_by_role("textbox", name="Name").fill("green")
    look.page.get_by_role("spinbutton", name="Nodes", exact=True).fill("1")
    look.get("button[type=submit]:not([disabled])").wait_for()
    look.page.get_by_role("button", name="Onboard").click()
    look.page.get_by_role("heading", level=1, name="green").wait_for()
    demo.wait(lambda: demo.hosts("tenant%3Dgreen+and+state%3Dreleased"))


@job("Grow a tenant")
def grow(demo: Demo) -> None:
    look = demo.begin()
    open_entry(look, "Tenants", "green")
    ask_for(look, "Grow", {"Nodes in all": "2"}, "2 nodes")
    demo.wait(lambda: len(demo.hosts("tenant%3Dgreen+and+state%3Dreleased")) == 2)


@job("Shrink a tenant")
def shrink(demo: Demo) -> None:
    look = demo.begin()
    open_entry(look, "Tenants", "green")
    ask_for(look, "Shrink", {"Nodes that stay": "1"}, "Each is drained, fenced and erased")
    demo.wait(lambda: len(demo.hosts("tenant%3Dgreen+and+state%3Dreleased")) == 1)


@job("Reclaim a node")
def reclaim(demo: Demo) -> None:
    (name,) = demo.hosts("tenant%3Dgreen+and+state%3Dreleased")
    look = demo.begin()
    open_node(look, name)
    look.page.get_by_role("button", name="Reclaim").click()
    agree(look, "Reclaim", {}, "its disks are erased")
    demo.wait(lambda: demo.ask(f"/nodes/{name}")["state"] != "released")


@job("See who did what")
def see_audit(demo: Demo) -> None:
    look = demo.begin()
    more(look, "Audit")
    look.page.get_by_role("row").filter(has_text="green").first.wait_for()


def serving(demo: Demo, tenant: str) -> str:
    """A host of the tenant in service that no earlier job has taken."""
    names = demo.hosts(f"tenant%3D{tenant}+and+state%3Dreleased")
    return next(name for name in names if name not in demo.names.values())


@job("See and silence an alert")
def silence(demo: Demo) -> None:
    name = demo.names["fan"] = serving(demo, "red")
    demo.sim("break", name, "fan_failed")
    demo.wait(lambda: [a for a in demo.ask("/alerts")["items"] if a["node"] == name])
    look = demo.begin()
    open_page(look, "Alerts")
    look.page.get_by_role("checkbox", name=re.compile(f"Select .* of {name}")).first.check()
    look.page.get_by_role("button", name="Suspend (1)").click()
    dialog = look.page.get_by_role("dialog")
    dialog.get_by_label("Why").fill("a new fan is ordered")
    dialog.get_by_role("button", name="Suspend (1)").click()
    dialog.wait_for(state="detached")
    look.page.get_by_text("a new fan is ordered").first.wait_for()


@job("Save the evidence of a case")
def save_evidence(demo: Demo) -> None:
    name = demo.names["gpu"] = serving(demo, "blue")
    demo.sim("break", name, "remap_failure", "--part", "GPU_SXM_4")
    rows = demo.wait(
        lambda: [
            case for case in demo.ask(f"/cases?node={name}")["items"] if case["stage"] == "hardware"
        ]
    )
    case = demo.names["case"] = rows[0]["id"]
    look = demo.begin()
    look.get("main").get_by_role("link", name=case, exact=True).first.click()
    with look.page.expect_download() as saved:
        look.page.get_by_role("link", name="Evidence archive").click()
    assert saved.value.path().stat().st_size > 1000


@job("Have a broken GPU repaired")
def repair(demo: Demo) -> None:
    name, case = demo.names["gpu"], demo.names["case"]
    demo.sim("swap", name, "GPU_SXM_4")
    look = demo.begin()
    look.get("main").get_by_role("link", name=case, exact=True).first.click()
    ask_for(look, "Returned", {})
    demo.wait(lambda: demo.ask(f"/cases/{case}")["line"]["stage"] == "closed")
    demo.wait(lambda: demo.ask(f"/nodes/{name}")["state"] in ("certified", "released"))


@job("Revoke a certificate")
def revoke(demo: Demo) -> None:
    name = demo.names["gpu"]
    look = demo.begin()
    more(look, "Certificates")
    look.get("main").get_by_role("button", name=f"of {name}").first.click()
    dialog = look.page.get_by_role("dialog")
    dialog.get_by_label("Why").fill("the wrong cable was tested")
    dialog.get_by_role("button", name="Revoke", exact=True).click()
    dialog.wait_for(state="detached")


@job("Draft a campaign")
def draft(demo: Demo) -> None:
    look = demo.begin()
    open_page(look, "Campaigns")
    look.get("main").get_by_role("link", name="New campaign").click()
    look.page.get_by_role("textbox", name="Which nodes").fill("rack=su0-* and kind=host")
    look.get(".plan").get_by_text("Bounded by").wait_for()
    look.get("button[type=submit]:not([disabled])").wait_for()
    look.page.get_by_role("button", name="Draft").click()
    look.page.get_by_role("button", name="Start").wait_for()


@job("Start a campaign")
def start(demo: Demo) -> None:
    # a host whose packages cannot be installed: its campaign step fails in Ansible
    bad = demo.names["bad"] = serving(demo, "red")
    demo.sim("break", bad, "package_install_fails")
    chosen = [bad, *(n for n in demo.hosts("state%3Dreleased") if n not in demo.names.values())]
    release = next(
        row["name"]
        for row in demo.ask("/releases")["items"]
        if row["supersedes"] == demo.ask(f"/nodes/{bad}")["release"]
    )
    policy = NO_WAIT | {"canary": {"size": 0}, "allow_irreversible": True}
    asked = {"release": release, "select": f"node={','.join(chosen[:4])}", "policy": policy}
    name = demo.ask("/campaigns", "post", asked)["result"]["campaign"]
    demo.names["campaign"] = name
    look = demo.begin()
    open_page(look, "Campaigns")
    look.get("main").get_by_role("link", name=f"Start {name}").click()
    dialog = look.page.get_by_role("dialog")
    dialog.get_by_role("checkbox").check()
    agree(look, "Start", {}, "upgraded")
    demo.wait(lambda: "admitted" in progress(demo, name))


def progress(demo: Demo, name: str) -> list[str]:
    return [row["state"] for row in demo.ask(f"/campaigns/{name}")["nodes"]]


@job("Pause a campaign")
def pause(demo: Demo) -> None:
    name = demo.names["campaign"]
    look = demo.begin()
    open_entry(look, "Campaigns", name)
    if demo.ask(f"/campaigns/{name}")["campaign"]["state"] == "started":
        look.get("main .title").get_by_role("button", name="Pause", exact=True).click()
        agree(look, "Pause", {"Why": "a leaf is replaced"})
    state = demo.ask(f"/campaigns/{name}")["campaign"]["state"]
    assert state in ("paused", "stopped")


@job("Find why a node is out")
def find_why(demo: Demo) -> None:
    bad = demo.names["bad"]
    demo.wait(lambda: demo.ask(f"/nodes/{bad}")["state"] == "quarantined")
    look = demo.begin()
    blocked = look.get("main section").filter(has_text="Blocked:")
    blocked.get_by_role("link").last.click()
    look.page.get_by_role("heading", level=1, name=bad).wait_for()
    look.page.get_by_text("To unblock").first.wait_for()


@job("Read the output of a failed Ansible step")
def read_output(demo: Demo) -> None:
    look = demo.begin()
    open_node(look, demo.names["bad"])
    look.page.get_by_role("link", name="Open the step that failed").click()
    look.page.get_by_role("region", name="Outcome").wait_for()
    look.page.get_by_text("dpkg").first.wait_for()


@job("Roll a campaign back")
def roll_back(demo: Demo) -> None:
    name = demo.names["campaign"]
    demo.wait(lambda: "admitted" not in progress(demo, name))
    look = demo.begin()
    open_entry(look, "Campaigns", name)
    look.get("main .title").get_by_role("button", name="Roll back", exact=True).click()
    agree(look, "Roll back", {})
    assert demo.ask(f"/campaigns/{name}")["campaign"]["state"] == "rolling_back"


@contextmanager
def new_hardware() -> Iterator[tuple[list[str], dict[str, Any]]]:
    """BMCs of two hosts that no list has, and their factory logins by vendor."""
    words = [PROVISIONER, "sim", "serve", "--nodes", "2", "--seed", "7", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout is not None
            told = json.loads(served.stdout.readline())["endpoints"]
            hosts = [row for row in told if row["name"].endswith("/host")]
            logins = {
                row["kind"]: {"username": row["username"], "password": row["password"]}
                for row in hosts
            }
            yield [row["url"] for row in hosts], logins
        finally:
            served.terminate()


@job("Add hardware")
def add_hardware(demo: Demo) -> None:
    with new_hardware() as ((url, _), logins):
        ((vendor, login),) = logins.items()
        entry = {"Name of the node": "new-n00", "BMC:": url, "Rack": "new-rack0"}
        given = {"Vendor": vendor, "Factory user": login["username"]}
        look = demo.begin()
        more(look, "Hardware list")
        filled = entry | given | {"Its password": login["password"]}
        ask_for(look, "New entry", filled, "1 node would be taken in")
        look.get("main").get_by_text("new-n00").first.wait_for()
    assert demo.ask("/nodes/new-n00")["location"]["rack"] == "new-rack0"


@job("Take a node in")
def take_in(demo: Demo) -> None:
    with new_hardware() as ((_, url), logins):
        node = {"name": "new-n01", "kind": "host", "bmc": {"url": url}}
        listed = {"site": "site", "factory_credentials": logins, "nodes": [node]}
        look = demo.begin()
        search_page(look, "Hardware list")
        look.get("main").get_by_role("link", name="Take nodes in").click()
        look.page.get_by_label("The expected-hardware list").fill(json.dumps(listed))
        ask_for(look, "Take in", {}, "1 node would be taken in")
        look.get("main").get_by_text("new-n01").first.wait_for()
    assert demo.ask("/nodes/new-n01")["id"] == "new-n01"


def read_table() -> dict[str, int]:
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \|$", table, flags=re.MULTILINE)
    return {name: int(clicks) for name, clicks in rows}


def test_the_page_lists_each_job_in_the_demonstration_with_few_clicks() -> None:
    told = read_table()

    assert list(told) == [name for name, _ in JOBS]
    assert max(told.values()) <= CLICKS_MAX


@contextmanager
def any_demo(folder: Path) -> Iterator[Path]:
    if said := os.environ.get("CONSOLE_DEMO"):
        yield Path(said)
        return
    with staying(folder, "--nodes", str(NODES), "--spare", "2") as printed:
        yield printed


@pytest.mark.long
@pytest.mark.slow
def test_an_operator_does_every_job_in_the_demonstration_with_at_most_four_clicks(
    tmp_path: Path,
) -> None:
    clicks: dict[str, int] = {}
    with any_demo(tmp_path) as said:
        found = re.search(r"(https://[\d.:]+)/\s+token: (\S+)", said.read_text())
        assert found is not None
        with chromium() as browser, Looker(browser, found[1], found[2]) as looker:
            demo = Demo(said, looker)
            for name, do in JOBS:
                try:
                    do(demo)
                except Exception as error:
                    error.add_note(f"while this job was done: {name}")
                    if shots := os.environ.get("CONSOLE_SHOTS"):
                        looker.page.screenshot(path=Path(shots) / "failed.png")
                    raise
                clicks[name] = int(looker.run("() => window.presses"))
    if os.environ.get("RECORD_GOLDEN"):
        rows = [f"| {name} | {number} |" for name, number in clicks.items()]
        table = "\n".join([BEGIN, "| job | clicks |", "|---|---|", *rows, END])
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(
            re.sub(f"{BEGIN}.*{END}", lambda _: table, text, flags=re.DOTALL), encoding="utf-8"
        )

    assert clicks == read_table()
