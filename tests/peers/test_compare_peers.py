"""`provisioner compare maas` and `compare nico` against stand-ins of their published APIs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import maas_standin
import nico_standin
import pytest
from maas_standin import KEY, serve_maas
from nico_standin import ORG, TOKEN, Records, serve_nico
from program import Done, run

from provisioner.daemon.data import open_data
from provisioner.model.inventory import Component, Inventory, Power
from provisioner.model.location import Location
from provisioner.model.node import BmcRef, Node, NodeKind, State

Rows = list[dict[str, Any]]


def fill(folder: Path, names: int = 2) -> None:
    """Make a data directory with hosts that serve `red`; their power and BIOS are read."""

    async def add() -> None:
        async with open_data(folder, 1.0) as data:
            for number in range(1, names + 1):
                name = f"su0-n{number:02d}"
                bmc = BmcRef(name="host", url=f"https://10.0.0.{number}", serial=f"S{number}")
                row = Node(
                    id=name,
                    kind=NodeKind.HOST,
                    state=State.RELEASED,
                    tenant="red",
                    location=Location(site="fra1", rack="rack1"),
                    bmcs=(bmc,),
                )
                await data.store.nodes.add(row)
                bios = Component(
                    kind="host.bios", slot="BIOS", version="1.4", source="x", bmc="host"
                )
                inventory = Inventory(
                    node=name, vendor="supermicro", power=Power.ON, components=(bios,)
                )
                await data.store.evidence.put_inventory(inventory, 1.0)

    asyncio.run(add())


def write_secret(folder: Path, text: str) -> str:
    """Return the name of a file that only its owner may read."""
    path = folder / "secret"
    path.touch(0o600)
    path.write_text(text)
    return path.name


def compare(folder: Path, *words: str) -> tuple[Done, Rows]:
    done = run(["compare", *words, "--json"], folder)
    return done, json.loads(done.stdout) if done.stdout else []


def list_aspects(rows: Rows) -> list[tuple[str, str, str, str]]:
    return [(r["node"], r["aspect"], r["here"], r["there"]) for r in rows]


def test_a_maas_that_agrees_has_no_difference_and_is_only_read(tmp_path: Path) -> None:
    fill(tmp_path / "var")
    key = write_secret(tmp_path, KEY)
    with serve_maas([maas_standin.machine(n, 6) for n in (1, 2)]) as served:
        done, rows = compare(tmp_path, "maas", served.url, "--key-file", key)

    assert (done.returncode, rows) == (0, []), done.stderr
    assert {method for method, _ in served.log} == {"GET"}
    assert not any("power_parameters" in path for _, path in served.log)


def test_each_difference_from_a_maas_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "var", 4)
    key = write_secret(tmp_path, KEY)
    zone = {"name": "fra2", "description": "", "id": 2}
    hardware = {"system_serial": "Unknown", "mainboard_firmware_version": "1.9"}
    machines = [
        maas_standin.machine(1, 6, owner="blue", zone=zone, power_state="off"),
        maas_standin.machine(2, 4, power_state="unknown"),
        maas_standin.machine(3, 14, hardware_info=hardware),
        maas_standin.machine(4, 8, error_description="a fan"),
    ]
    with serve_maas(machines) as served:
        done, rows = compare(tmp_path, "maas", f"{served.url}/MAAS/", "--key-file", key)
        _, by_pool = compare(
            tmp_path, "maas", served.url, "--key-file", key, "--tenant-field", "pool"
        )

    assert done.returncode == 1
    assert list_aspects(rows) == [
        ("su0-n01", "power", "On", "Off"),
        ("su0-n01", "tenant", "red", "blue"),
        ("su0-n01", "place", "fra1", "fra2"),
        ("su0-n02", "state", "released", "Ready"),
        ("su0-n03", "work", "released", "Disk erasing"),
        ("su0-n03", "version", "host.bios 1.4", "host.bios 1.9"),
        ("su0-n04", "work", "released", "Broken: a fan"),
    ]
    assert {r["there"] for r in by_pool if r["aspect"] == "tenant"} == {"red-pool"}


@pytest.mark.parametrize("text", ["one:two", "a:b:c:d", "a b:c:d"])
def test_a_file_without_an_api_key_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    key = write_secret(tmp_path, text)
    done = run(["compare", "maas", "https://maas.example", "--key-file", key], tmp_path)

    assert done.returncode == 2
    assert "API key" in done.stderr
    assert text not in done.stderr


def test_a_wrong_key_is_one_line(tmp_path: Path) -> None:
    fill(tmp_path / "var")
    key = write_secret(tmp_path, "consumer1:token2:another")
    with serve_maas([]) as served:
        done, _ = compare(tmp_path, "maas", served.url, "--key-file", key)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "401" in done.stderr


@pytest.mark.parametrize("machine_key", ["componentId", "id"])
def test_a_nico_that_agrees_has_no_difference_and_is_only_read(
    tmp_path: Path, machine_key: str
) -> None:
    fill(tmp_path / "var")
    records = Records([nico_standin.machine(n, "InUse") for n in (1, 2)], machine_key=machine_key)
    token = write_secret(tmp_path, TOKEN)
    with serve_nico(records) as served:
        done, rows = compare(tmp_path, "nico", served.url, "--org", ORG, "--token-file", token)

    assert (done.returncode, rows) == (0, []), done.stderr
    assert {method for method, _ in served.log} == {"GET"}


def test_each_difference_from_a_nico_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "var", 3)
    records = Records(
        [
            nico_standin.machine(1, "Maintenance", maintenanceMessage="NVLink", tenantId="t-9"),
            nico_standin.machine(2, "Ready"),
        ]
    )
    records.machines[1]["metadata"]["dmiData"]["biosVersion"] = "1.9"
    token = write_secret(tmp_path, TOKEN)
    with serve_nico(records) as served:
        _, rows = compare(tmp_path, "nico", served.url, "--org", ORG, "--token-file", token)

    assert list_aspects(rows) == [
        ("su0-n01", "work", "released", "Maintenance: NVLink"),
        ("su0-n01", "tenant", "red", "t-9"),
        ("su0-n02", "state", "released", "Ready"),
        ("su0-n02", "version", "host.bios 1.4", "host.bios 1.9"),
        ("su0-n03", "identity", "su0-n03", "not there"),
    ]


def test_every_page_of_a_nico_is_read_and_lists_that_it_hides_are_not_needed(
    tmp_path: Path,
) -> None:
    fill(tmp_path / "var", 1)
    hidden = frozenset({"rack", "expected-machine", "tenant/account"})
    records = Records([nico_standin.machine(n, "InUse") for n in range(1, 202)], refused=hidden)
    token = write_secret(tmp_path, TOKEN)
    with serve_nico(records) as served:
        done, rows = compare(tmp_path, "nico", served.url, "--org", ORG, "--token-file", token)
        wrong, _ = compare(
            tmp_path, "nico", served.url, "--org", ORG, "--token-file", token, "--site", "x"
        )

    aspects = [r["aspect"] for r in rows]
    assert done.returncode == 1, done.stderr
    assert aspects.count("identity") == 200
    assert [(r["node"], r["there"]) for r in rows if r["aspect"] == "tenant"] == [
        ("su0-n01", nico_standin.TENANT)  # its org is not shown to this token
    ]
    assert wrong.returncode == 2
    assert "no such site" in wrong.stderr


@pytest.mark.parametrize("system", ["ironic", "netbox", "maas", "nico"])
def test_a_system_that_does_not_answer_is_no_difference(tmp_path: Path, system: str) -> None:
    fill(tmp_path / "var", 1)
    secret = write_secret(tmp_path, KEY if system == "maas" else TOKEN)
    key = "--key-file" if system == "maas" else "--token-file"
    more = {"netbox": ("--site", "fra1"), "nico": ("--org", ORG)}.get(system, ())

    done, rows = compare(tmp_path, system, "https://127.0.0.1:9", key, secret, *more)

    assert (done.returncode, rows) == (2, [])
    assert "Connection refused" in done.stderr
    assert "Check the address" in done.stderr
    assert "ConnectionPool" not in done.stderr
