"""The simulated Cumulus switch, asked as a REST client asks it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from provisioner.integrations.sim.hardware.clock import HandClock, Schedule
from provisioner.integrations.sim.redfish.redfish_tree import GONE
from provisioner.integrations.sim.switches.nvue import NvueService
from provisioner.integrations.sim.switches.switch import Neighbour, Switch

BASIC = "Basic " + base64.b64encode(b"cumulus:secret").decode()
APPLY = {"state": "apply", "auto-prompt": {"ays": "ays_yes"}}
IMAGE = json.dumps(
    {"simulated": True, "target": "switch.os", "contents": {"switch.os": "5.12.1.100"}}
).encode()


class Client:
    """The switch under test with its clock; answers are (status, document)."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.switch = Switch("leaf", Schedule(), seed="1", version="5.11.0.0026", password="secret")
        self.peer_up = True
        peer = Neighbour("su0-n00", "rail0", "aa:bb:cc:dd:ee:ff", lambda: self.peer_up)
        self.switch.add_port("swp1s0", "172.0.0.1/31", peer)
        self.switch.add_vrf("MAINT", 65000)
        self.switch.add_vrf("RED", 65000)
        self.switch.fetch = lambda _url, done: done(IMAGE)
        self.service = NvueService(self.switch, self.clock)

    def __call__(
        self, method: str, path: str, body: Any = None, auth: str = BASIC
    ) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        pairs = dict(p.split("=") for p in query.split("&") if p)
        answer = self.service.handle(
            method,
            "/nvue_v1" + path,
            pairs,
            {"authorization": auth},
            b"" if body is None else json.dumps(body).encode(),
        )
        assert answer.status, "the switch is down"
        return answer.status, json.loads(answer.body or b"null")

    def revise(self, path: str, change: Any) -> str:
        """Open a revision, change one thing in it, ask to apply it; the revision's id."""
        _, created = self("POST", "/revision", {})
        (revision,) = created
        assert self("PATCH", f"{path}?rev={revision}", change)[0] == 200
        assert self("PATCH", f"/revision/{revision}", APPLY)[0] == 200
        return revision

    def act(self, path: str, action: str, parameters: dict[str, Any] | None = None) -> str:
        """Start an action; its job id."""
        body = {action: {"state": "start", "parameters": parameters or {}}}
        status, job = self("POST", path, body)
        assert status == 202
        return str(job)

    def vrf(self, rev: str = "operational") -> str:
        """The port's VRF as one view shows it."""
        return self("GET", f"/interface/swp1s0?rev={rev}")[1].get("ip", {}).get("vrf", "none")


@pytest.fixture
def client() -> Client:
    return Client()


def test_a_move_is_operational_only_after_it_was_applied(client: Client) -> None:
    revision = client.revise("/interface/swp1s0", {"ip": {"vrf": "MAINT"}})
    seen = []
    for _ in range(24):
        client.clock.move(0.5)
        seen.append((client("GET", f"/revision/{revision}")[1]["state"], client.vrf()))

    assert ("applied", "default") in seen
    assert seen[-1] == ("applied", "MAINT")
    assert [e.detail for e in client.switch.log if e.kind == "vrf"] == ["default -> MAINT"]


def test_the_address_stays_and_the_route_moves_with_the_port(client: Client) -> None:
    client.revise("/interface/swp1s0", {"ip": {"vrf": "RED"}})
    client.clock.move(10)

    assert "172.0.0.0/31" in client("GET", "/vrf/RED/router/rib/ipv4/route")[1]
    assert client("GET", "/vrf/MAINT/router/rib/ipv4/route")[1] == {}
    assert client("GET", "/vrf/default/router/rib/ipv4/route")[1] == {}


def test_no_route_and_no_neighbour_without_carrier(client: Client) -> None:
    assert "su0-n00" in client("GET", "/interface/swp1s0/lldp/neighbor")[1]
    client.peer_up = False

    assert client("GET", "/interface/swp1s0/lldp/neighbor")[1] == {}
    assert client("GET", "/vrf/default/router/rib/ipv4/route")[1] == {}


def test_a_get_without_a_revision_shows_the_intention(client: Client) -> None:
    client.revise("/interface/swp1s0", {"ip": {"vrf": "RED"}})
    client.switch.faults.add("moves_ignored")
    client.clock.move(60)
    applied = client("GET", "/interface/swp1s0")[1]["ip"]["vrf"]

    assert (applied, client.vrf()) == ("RED", "default")


def test_a_vrf_that_does_not_exist_is_refused_with_its_issue(client: Client) -> None:
    revision = client.revise("/interface/swp1s0", {"ip": {"vrf": "NOWHERE"}})
    client.clock.move(30)
    _, answer = client("GET", f"/revision/{revision}")

    assert answer["state"] == "invalid"
    assert "NOWHERE" in answer["transition"]["issue"]["0"]["message"]
    assert client.vrf("applied") == "none"


def test_a_revision_without_the_prompt_answered_is_not_applied(client: Client) -> None:
    _, created = client("POST", "/revision", {})
    (revision,) = created
    client("PATCH", f"/interface/swp1s0?rev={revision}", {"ip": {"vrf": "RED"}})
    client("PATCH", f"/revision/{revision}", {"state": "apply"})
    client.clock.move(30)

    assert client("GET", f"/revision/{revision}")[1]["state"] == "ays_fail"


def test_two_revisions_are_applied_one_after_the_other_without_loss(client: Client) -> None:
    client.switch.add_port("swp1s1", "172.0.0.3/31")
    client.revise("/interface/swp1s0", {"ip": {"vrf": "RED"}})
    client.revise("/interface/swp1s1", {"ip": {"vrf": "MAINT"}})
    client.switch.schedule.advance(client.clock.move(30))

    assert client.switch.get_vrf("swp1s0") == "RED"
    assert client.switch.get_vrf("swp1s1") == "MAINT"


def test_what_was_not_saved_is_gone_after_a_reboot(client: Client) -> None:
    client.revise("/interface/swp1s0", {"ip": {"vrf": "MAINT"}})
    client.clock.move(10)
    client("PATCH", "/revision/applied", {"state": "save", "auto-prompt": {"ays": "ays_yes"}})
    client.revise("/interface/swp1s0", {"ip": {"vrf": "RED"}})
    client.clock.move(10)
    assert client.vrf() == "RED"
    client.act("/system", "@reboot")
    client.clock.move(1000)

    assert client.vrf() == "MAINT"


def test_the_image_runs_after_fetch_install_boot_next_and_reboot(client: Client) -> None:
    url = "http://artifacts/cumulus-linux-5.12.1-mlx-amd64.bin"
    job = client.act("/system/image", "@fetch", {"remote-url": url})
    assert client("GET", f"/action/{job}")[1]["state"] == "running"
    client.clock.move(100)
    assert client("GET", f"/action/{job}")[1]["state"] == "action_success"
    name = url.rsplit("/", 1)[-1]
    job = client.act(f"/system/image/files/{name}", "@install", {"force": True})
    client.clock.move(300)
    assert client("GET", f"/action/{job}")[1]["state"] == "action_success"
    _, image = client("GET", "/system/image")
    assert (image["current"], image["partition2"]["build-id"]) == ("1", "5.12.1.100")
    client.act("/system/image", "@boot-next", {"image": "other"})
    client.clock.move(2)
    client.act("/system", "@reboot")
    client.clock.move(5)
    assert client.service.handle("GET", "/nvue_v1/system", {}, {}, b"") == GONE
    client.clock.move(600)

    assert client("GET", "/system/version")[1]["image"] == "5.12.1.100"
    assert client("GET", "/system/image")[1]["current"] == "2"


def test_a_file_that_is_no_image_is_not_installed(client: Client) -> None:
    client.switch.fetch = lambda _url, done: done(b"#!/bin/sh")
    client.act("/system/image", "@fetch", {"remote-url": "http://x/y.bin"})
    client.clock.move(100)
    job = client.act("/system/image/files/y.bin", "@install")
    client.clock.move(400)

    assert client("GET", f"/action/{job}")[1]["state"] == "action_error"
    assert client.switch.partitions[2] is None


def test_the_wrong_password_and_the_factory_password_are_refused(client: Client) -> None:
    assert client("GET", "/system", auth="Basic bm9wZTpub3Bl")[0] == 401
    assert client("GET", "/system", auth="Basic %%%")[0] == 401
    client.switch.password_expired = True

    assert client("GET", "/system")[0] == 403


def test_a_changed_password_is_in_force_and_not_shown(client: Client) -> None:
    client.revise("/system/aaa/user/cumulus", {"password": "better"})
    client.clock.move(30)
    assert client("GET", "/system")[0] == 401
    better = "Basic " + base64.b64encode(b"cumulus:better").decode()
    _, user = client("GET", "/system/aaa/user/cumulus", auth=better)

    assert "better" not in json.dumps(user)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nowhere", None, 404),
        ("GET", "/revision/77", None, 404),
        ("GET", "/interface?rev=77", None, 404),
        ("GET", "/action/9", None, 404),
        ("PATCH", "/interface/swp1s0?rev=77", {}, 400),
        ("PATCH", "/revision/77", APPLY, 404),
        ("POST", "/system", {"@dance": {}}, 404),
        ("POST", "/system", ["@reboot"], 400),
        ("PUT", "/system", {}, 405),
    ],
)
def test_what_makes_no_sense_is_answered_with_a_problem(
    client: Client, method: str, path: str, body: Any, status: int
) -> None:
    assert client(method, path, body)[0] == status
