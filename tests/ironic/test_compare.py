"""`provisioner compare ironic` with the answers of a real Ironic, and what is refused before."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from program import Done, run
from recorded_ironic import Served, serve_ironic

from provisioner.daemon.data import open_data
from provisioner.integrations.inventories import ironic
from provisioner.model.inventory import Component, Inventory, Power
from provisioner.model.node import BmcRef, Node, NodeKind, State

BIOS = "BIOS Date: 08/04/2023 Ver 1.4"


def fill(folder: Path, served: Served) -> None:
    """Make a data directory in which each node is as that Ironic records it."""

    async def add() -> None:
        async with open_data(folder, 1.0) as data:
            for number, node in enumerate(served.nodes):
                serving = node["provision_state"] == "active"
                name = f"su0-n{number:02d}"
                row = Node(
                    id=name,
                    kind=NodeKind.HOST,
                    state=State.RELEASED if serving else State.CERTIFIED,
                    tenant="red" if serving else "",
                    bmcs=(BmcRef(name="host", url=node["driver_info"]["redfish_address"]),),
                )
                await data.store.nodes.add(row)
                await data.store.evidence.put_inventory(_inventory(name), 1.0)

    asyncio.run(add())


def _inventory(name: str) -> Inventory:
    bios = Component(kind="host.bios", slot="BIOS", version="1.4", source="x", bmc="host")
    return Inventory(node=name, vendor="supermicro", power=Power.ON, components=(bios,))


def compare(folder: Path, served: Served, *words: str) -> tuple[Done, list[dict[str, Any]]]:
    done = run(["compare", "ironic", served.url, "--json", *words], folder)
    return done, json.loads(done.stdout) if done.stdout else []


def test_what_a_real_ironic_records_is_compared_by_reads_alone(tmp_path: Path) -> None:
    with serve_ironic() as served:
        fill(tmp_path / "var", served)
        done, differences = compare(tmp_path, served)

        # the one that Ironic has in maintenance is the only one that both see differently
        assert done.returncode == 1, done.stderr
        assert [(d["aspect"], d["there"]) for d in differences] == [
            ("work", "maintenance: RMA 17, waits for a fan")
        ]
        assert {method for method, _, _ in served.log} == {"GET"}
        versions = {h.get(ironic.VERSION_HEADER) for _, path, h in served.log if path != "/v1"}
        assert versions == {"1.86"}


def test_each_kind_of_difference_is_named_with_what_settles_it(tmp_path: Path) -> None:
    with serve_ironic() as served:
        fill(tmp_path / "var", served)
        lent, broken, idle = sorted(
            served.nodes, key=lambda n: (n["provision_state"] != "active", not n["maintenance"])
        )
        lent |= {"lessee": "blue", "power_state": "power off"}
        broken |= {"maintenance": False, "provision_state": "active"}
        idle["driver_info"]["redfish_address"] = "https://10.9.9.9"
        firmware = served.answers[f"/v1/nodes/{broken['uuid']}/firmware"]["firmware"]
        firmware[0]["current_version"] = BIOS.replace("1.4", "1.9")
        _, differences = compare(tmp_path, served)

        by_aspect = {d["aspect"]: d for d in differences if d["aspect"] != "identity"}
        assert set(by_aspect) == {"tenant", "power", "state", "version"}
        assert (by_aspect["tenant"]["here"], by_aspect["tenant"]["there"]) == ("red", "blue")
        assert (by_aspect["power"]["here"], by_aspect["power"]["there"]) == ("On", "Off")
        assert by_aspect["state"]["there"] == "active"
        assert "1.9" in by_aspect["version"]["there"]
        lost = [d["there"] for d in differences if d["aspect"] == "identity"]
        assert sorted(lost) == sorted([idle["uuid"], "not there"])
        assert all(d["settle"] for d in differences)


def test_no_difference_ends_with_zero_and_one_line(tmp_path: Path) -> None:
    with serve_ironic() as served:
        fill(tmp_path / "var", served)
        for node in served.nodes:
            node["maintenance"] = False
        done = run(["compare", "ironic", served.url], tmp_path)

        assert (done.returncode, done.stdout) == (0, "3 records, no difference\n")


def test_an_older_ironic_is_asked_in_its_own_version(tmp_path: Path) -> None:
    with serve_ironic() as served:
        fill(tmp_path / "var", served)
        served.answers["/v1"]["version"]["version"] = "1.70"
        compare(tmp_path, served)
        assert {h.get(ironic.VERSION_HEADER) for _, p, h in served.log if p != "/v1"} == {"1.70"}

        served.answers["/v1"]["version"]["version"] = "1.40"
        done, _ = compare(tmp_path, served)
        assert done.returncode == 2  # no difference: no answer
        assert "1.65" in done.stderr


def test_a_login_is_sent_as_a_header_and_its_refusal_is_one_line(tmp_path: Path) -> None:
    with serve_ironic() as served:
        fill(tmp_path / "var", served)
        for name in ("token", "password"):
            (tmp_path / name).touch(0o600)
            (tmp_path / name).write_text("a-secret")
        compare(tmp_path, served, "--token-file", "token")
        compare(tmp_path, served, "--user", "ada", "--password-file", "password")
        headers = [h for _, path, h in served.log if path == "/v1"]
        assert [h.get("X-Auth-Token") for h in headers] == ["a-secret", None]
        assert [h.get("Authorization", "")[:6] for h in headers] == ["", "Basic "]

        served.statuses["/v1/nodes/detail?limit=200"] = 401
        done, _ = compare(tmp_path, served, "--token-file", "token")
        assert done.returncode == 2  # no difference: no answer
        assert done.stderr.count("\n") == 1
        assert "a-secret" not in done.stderr


def test_a_login_goes_over_https_only(tmp_path: Path) -> None:
    plain = run(["compare", "ironic", "http://ironic.example:6385"], tmp_path)
    inside = run(["compare", "ironic", "https://a:b@ironic.example"], tmp_path)

    assert [plain.returncode, inside.returncode] == [2, 2]
    assert "https only" in plain.stderr
    assert "--token-file" in inside.stderr
