"""The simulator's UFM is an endpoint of the site, and rules disturb it like any other."""

from __future__ import annotations

import asyncio
import base64
import json

from provisioner.integrations.sim.faults.faults import read_rules
from provisioner.integrations.sim.hardware.clock import HandClock
from provisioner.integrations.sim.site.serve import Front
from provisioner.integrations.sim.site.site import Site
from provisioner.integrations.sim.switches.ufm import NAME, PASSWORD, UfmService

SMCONF = "/ufmRest/app/smconf"
PKEYS = "/ufmRest/resources/pkeys"
LOGIN = {"authorization": "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode()}


def test_a_site_serves_a_ufm_only_where_it_has_one() -> None:
    async def scenario() -> None:
        site = Site(1, 0, clock=HandClock())
        front = Front(site)
        assert NAME not in front.list_names()
        assert front.handle(NAME, "GET", SMCONF, {}, LOGIN, b"").status == 0

        site.ufm = UfmService()
        assert NAME in front.list_names()
        assert front.handle(NAME, "GET", SMCONF, {}, {}, b"").status == 401
        answer = front.handle(NAME, "GET", SMCONF, {}, LOGIN, b"")
        assert json.loads(answer.body)["m_key_per_port"] is True

        (rule,) = read_rules(
            [
                {
                    "name": "no key",
                    "action": "merge",
                    "endpoint": NAME,
                    "path": SMCONF,
                    "value": {"m_key": "0x0"},
                }
            ]
        )
        site.faults.add(rule)
        answer = front.handle(NAME, "GET", SMCONF, {}, LOGIN, b"")
        assert json.loads(answer.body)["m_key"] == "0x0"

    asyncio.run(scenario())


def test_bad_parameters_are_refused_as_its_guide_has_it() -> None:
    ufm = UfmService()
    for body in (b"{", b"[]", b'{"pkey": "0x7fff"}', b'{"pkey": "0x1", "colour": "red"}'):
        assert ufm.handle("POST", f"{PKEYS}/add", {}, LOGIN, body).status == 400
    assert ufm.handle("POST", f"{PKEYS}/add", {}, LOGIN, b'{"pkey": "0x1"}').status == 200
    short = b'{"pkey": "0x1", "guids": ["1"]}'
    assert ufm.handle("POST", f"{PKEYS}/", {}, LOGIN, short).status == 400
    assert ufm.handle("DELETE", f"{PKEYS}/0x2", {}, LOGIN, b"").status == 404
    assert list(ufm.partitions) == ["0x7fff", "0x1"]
