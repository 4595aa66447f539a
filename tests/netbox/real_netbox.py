"""The scenarios against a real NetBox: `make test-netbox`. Not collected by `make test`."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from netbox_openapi import RECORDED, subset
from netbox_scenario import SCENARIOS, Site
from netbox_server import NetBox


@pytest.fixture(scope="module")
def netbox() -> Iterator[NetBox]:
    server = NetBox(Path(os.environ["NETBOX_VENV"]))
    try:
        server.start()
        yield server
    finally:
        server.remove()


def test_the_fleet_is_shown_in_a_real_netbox_and_read_back(netbox: NetBox, tmp_path: Path):
    site = Site(tmp_path, netbox.url, netbox.token)
    for scenario in SCENARIOS:
        scenario(site)


def test_what_was_recorded_of_its_openapi_is_what_it_says(netbox: NetBox):
    """With NETBOX_RECORD=1 it is written anew."""
    request = urllib.request.Request(
        f"{netbox.url}/api/schema/?format=json", headers={"Authorization": f"Bearer {netbox.token}"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        now = subset(json.load(answer))
    if os.environ.get("NETBOX_RECORD"):
        RECORDED.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")

    assert json.loads(RECORDED.read_text()) == now
