"""Leases beside the expected-hardware list: who is listed, moved, in conflict, or missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import run

NOW = 4_000_000_000  # the clock of this machine is before it
PREFIX = "5c:25:73:00:00"
LIST = """
nodes:
  - {name: n1, kind: host, bmc: {mac: "5C:25:73:00:00:01", url: "https://10.0.1.1"}}
  - {name: n2, kind: host, bmc: {mac: "5c:25:73:00:00:02", url: "https://10.0.1.2"}}
  - {name: n3, kind: host, bmc: {url: "https://10.0.1.3"}}
  - {name: n4, kind: host, bmc: {mac: "5c:25:73:00:00:04"}}
  - {name: n5, kind: host, bmc: {serial: S5}}
  - name: n6
    kind: host
    bmc: {mac: "5c:25:73:00:00:06"}
    dpus: [{slot: DPU_0, base_mac: "5c:25:73:00:0d:06"}]
  - {name: leaf1, kind: switch, address: "https://10.0.1.9:8765"}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "expected.yaml").write_text(LIST)
    return tmp_path


def compare(site: Path, *rows: str, more: tuple[str, ...] = ()) -> tuple[int, dict]:
    (site / "dnsmasq.leases").write_text("".join(f"{row} * *\n" for row in rows))
    line = ["discover", "leases", "dnsmasq.leases", "--file", "expected.yaml", "--json", *more]
    done = run(line, site)
    assert not done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("mac", "address", "standing", "entry", "detail"),
    [
        (f"{PREFIX}:01", "10.0.1.1", "listed", "n1", ""),
        (f"{PREFIX}:01", "10.0.1.7", "moved", "n1", "the list has 10.0.1.1"),
        (f"{PREFIX}:01", "10.0.1.2", "conflict", "n1", "for n2"),
        (f"{PREFIX}:77", "10.0.1.1", "conflict", "n1", "5c:25:73:00:00:01"),
        (f"{PREFIX}:77", "10.0.1.3", "by address", "n3", "no MAC"),
        (f"{PREFIX}:77", "10.0.1.9", "by address", "leaf1", "no MAC"),
        (f"{PREFIX}:04", "10.0.1.44", "listed", "n4", ""),
        ("5c:25:73:00:0d:06", "10.0.1.66", "listed", "n6/DPU_0", ""),
        (f"{PREFIX}:77", "10.0.1.77", "not listed", "", ""),
    ],
)
def test_a_mac_decides_before_an_address(
    site: Path, mac: str, address: str, standing: str, entry: str, detail: str
) -> None:
    code, result = compare(site, f"{NOW} {mac} {address}")
    (row,) = result["candidates"]

    assert (row["standing"], row["entry"]) == (standing, entry)
    assert detail in row["detail"]
    assert bool(row["remedy"]) == (standing not in ("listed", "by address"))
    assert row["hint"] == "MAC prefix of 4 listed BMCs"
    assert code == 1  # the others have no lease


def test_each_listed_host_without_a_lease_has_its_reason(site: Path) -> None:
    _, result = compare(site, f"{NOW} {PREFIX}:01 10.0.1.1", f"1700000000 {PREFIX}:04 10.0.1.44")
    details = {row["entry"]: row["detail"] for row in result["missing"]}

    assert list(details) == ["n2", "n3", "n4", "n5", "n6"]
    assert details["n2"] == "it has no lease in these files"
    assert "10.0.1.44" in details["n4"]
    assert "2023-11-14T22:13:20" in details["n4"]
    assert "neither the MAC nor an IP address" in details["n5"]


def test_leases_outside_of_the_named_networks_are_dropped(site: Path) -> None:
    _, result = compare(
        site,
        f"{NOW} {PREFIX}:01 10.0.1.1",
        f"{NOW} 02:00:00:00:00:01 192.0.2.4",
        more=("--subnet", "10.0.1.0/24"),
    )

    assert [row["address"] for row in result["candidates"]] == ["10.0.1.1"]
    assert result["notes"] == ["leases outside of the named networks, dropped: 1"]


def test_a_card_with_several_leases_is_one_row_with_the_latest(tmp_path: Path) -> None:
    header = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,hostname,state\n"
    row = f"{PREFIX}:01,,60"
    (tmp_path / "a.csv").write_text(
        f"{header}10.0.1.5,{row},{NOW + 9},1,,0\n10.0.1.4,{row},{NOW},1,,0\n"
    )
    (tmp_path / "b.csv").write_text(f"{header}10.0.1.6,{row},1000,1,,2\n")
    done = run(["discover", "leases", "a.csv", "b.csv", "--json"], tmp_path)
    (candidate,) = json.loads(done.stdout)["candidates"]

    assert done.returncode == 0
    assert candidate["address"] == "10.0.1.5"
    assert candidate["other_addresses"] == ["10.0.1.4", "10.0.1.6"]
    assert candidate["standing"] is None


def test_a_list_that_agrees_ends_with_exit_code_0_and_a_table(tmp_path: Path) -> None:
    (tmp_path / "expected.yaml").write_text(
        'nodes: [{name: n1, kind: host, bmc: {mac: "5c:25:73:00:00:01"}}]\n'
    )
    (tmp_path / "l").write_text(f"0 {PREFIX}:01 10.0.1.1 idrac-[red]x *\n")
    done = run(["discover", "leases", "l", "--file", "expected.yaml"], tmp_path)

    assert done.returncode == 0
    for text in ("10.0.1.1", "idrac-[red]x", "never", "listed", "1 leases in force, 0 listed"):
        assert text in done.stdout


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["none.leases"], "no such file"),
        (["expected.yaml"], "no lease file"),
        (["expected.yaml", "--subnet", "10.0.0.300/8"], "no network"),
    ],
)
def test_a_wrong_input_is_refused(site: Path, options: list[str], reason: str) -> None:
    done = run(["discover", "leases", *options], site)

    assert done.returncode == 2
    assert reason in done.stderr
