"""Hosts of another system laid over a list: each row is taken, or refused for its own fault."""

from __future__ import annotations

import pytest

from provisioner.integrations.inventories.deciding.adoption_rows import MergedList, merge_rows
from provisioner.integrations.inventories.deciding.belief import Belief, SourceRow
from provisioner.integrations.inventories.deciding.host_table import find_rail, read_table
from provisioner.model.expected import Expected
from provisioner.model.input_error import InputError
from provisioner.model.location import Port
from provisioner.model.outcome import Reason
from provisioner.planning.intake import expected_text

BASE = """
site: fra1
factory_credentials: {supermicro: {username: ops, password: x}}
tenants: [{name: red, vrf: RED}]
nodes:
- {name: leaf01, kind: switch, address: "https://10.0.9.1:8765", username: u, password: p}
- name: su0-n02
  kind: host
  bmc: {serial: S2}
  ports: [{switch: leaf01, interface: swp2, rail: 0, nic_slot: NIC_0}]
"""
HEADER = "name,bmc,serial,tenant,rack,ports\n"


def parse(rows: str, base: str = BASE, **tenants: str) -> MergedList:
    table = read_table("hosts.csv", HEADER + rows)
    assert table.refused == ()
    return merge_rows(expected_text.parse("base", base), table.rows, tenants, "csv")


def list_refusals(merged: MergedList) -> dict[str, Reason]:
    return {b.subject: b.reason for b in merged.refused}


def hosts(expected: Expected) -> list[str]:
    return [n.name for n in expected.nodes if n.kind == "host"]


def test_rows_and_the_entries_of_the_list_make_one_list_that_the_daemon_reads() -> None:
    merged = parse(
        "su0-n01,10.0.0.1,S1,RED-4,r1,leaf01/swp1=NIC_3\n# a comment\nother,10.0.0.2,s2,red,r1,\n",
        **{"RED-4": "red"},
    )

    assert list_refusals(merged) == {}
    first, second = (n for n in merged.expected.nodes if n.kind == "host")
    assert (first.name, first.bmc.url, first.bmc.serial) == ("su0-n01", "https://10.0.0.1", "S1")
    assert (first.location.site, first.location.rack) == ("fra1", "r1")
    assert first.ports == (Port(switch="leaf01", interface="swp1", rail=3, nic_slot="NIC_3"),)
    # matched by its serial: it has the list's name and ports, and the table's address
    assert (second.name, second.bmc.url) == ("su0-n02", "https://10.0.0.2")
    assert second.ports[0].interface == "swp2"
    assert merged.tenants == {"su0-n01": "red", "su0-n02": "red"}
    text = merged.expected.model_dump_json()
    assert expected_text.parse("list", text).nodes == merged.expected.nodes


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("n1,10.0.0.1,S1,red,r1,", Reason.PRECONDITION),  # no source has its ports
        ("n1,10.0.0.1,S1,red,r1,leaf09/swp1", Reason.NOT_EXPECTED),
        ("n1,,,red,r1,leaf01/swp1", Reason.MALFORMED),  # no field identifies its BMC
        ("not a name!,10.0.0.1,S1,red,r1,leaf01/swp1", Reason.MALFORMED),
        ("n1,10.0.0.1,S2,red,r1,leaf01/swp2", None),  # its entry's ports are its own
        ("su0-n02,10.0.0.2,S9,red,r1,leaf01/swp9", Reason.DUPLICATE),  # another serial
    ],
)
def test_a_row_is_refused_for_its_own_fault_and_the_others_go_on(
    row: str, reason: Reason | None
) -> None:
    merged = parse(f"{row}\nn7,10.0.0.7,S7,red,r1,leaf01/swp7\n")
    refusals = list_refusals(merged)
    refusals.pop("su0-n02", None) if reason is not Reason.DUPLICATE else None

    assert "n7" in hosts(merged.expected)
    assert list(refusals.values()) == ([] if reason is None else [reason])
    assert all(b.detail and b.unblock for b in merged.refused)


def test_two_rows_of_one_identity_are_both_refused() -> None:
    merged = parse(
        "a,10.0.0.1,S1,,,leaf01/swp1\nb,10.0.0.3,S1,,,leaf01/swp3\n"
        "c,10.0.0.4,S4,,,leaf01/swp1\nd,10.0.0.5,S5,,,leaf01/swp5\n"
    )

    assert hosts(merged.expected) == ["d"]
    refusals = list_refusals(merged)
    assert refusals.pop("su0-n02") is Reason.NOT_EXPECTED  # the list has it, the table not
    assert refusals == dict.fromkeys("abc", Reason.DUPLICATE)


@pytest.mark.parametrize(
    ("belief", "reason"),
    [
        (Belief(key="1", name="n1", busy="cleaning"), Reason.BUSY),
        (Belief(key="1", name="n1", state="available", serves=False), Reason.PRECONDITION),
        (Belief(key="1", name="n1", state="error"), Reason.PRECONDITION),
        (Belief(key="1", serial="S1", state="active", serves=True), Reason.PRECONDITION),
    ],
)
def test_what_the_other_system_says_of_a_host_refuses_it(belief: Belief, reason: Reason) -> None:
    base = expected_text.parse("base", "nodes: []")
    merged = merge_rows(base, [SourceRow(belief=belief)], {}, "ironic")

    assert [b.reason for b in merged.refused] == [reason]
    assert merged.expected.nodes == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "header"),
        ("bmc,serial\n", "`name`"),
        ("name,colour\n", "'colour'"),
        ("name,name\n", "twice"),
        ('name\n"a\n', "no CSV"),
    ],
)
def test_a_file_whose_header_cannot_be_read_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_table("hosts.csv", text)


def test_a_row_that_cannot_be_read_is_refused_alone() -> None:
    text = "\ufeffName,ports,bmc\na,leaf01,\nb,leaf01/swp1\nc,,::1\nd,,https://[x\n"
    table = read_table("hosts.csv", text)

    assert [r.belief.name for r in table.rows] == ["c"]
    assert table.rows[0].belief.address == "::1:443"
    assert [b.subject for b in table.refused] == ["row 2", "row 3", "row 5"]


def test_a_rail_is_that_of_its_card() -> None:
    assert [find_rail(slot) for slot in ("NIC_3", "NIC_12.0", "DPU_0", "")] == [3, 12, -1, -1]
