"""The lease files of Kea, dnsmasq and ISC's dhcpd: as the servers write them, and as a foe would.

The files beside this test were written by Debian's kea-dhcp4 2.2.0, dnsmasq 2.90 and dhcpd 4.4.3-P1
in a network namespace, each for the same four clients (busybox's udhcpc): the first asks again;
the second takes .60, then .70 with another client id; the third has a hostile host name, which the
servers drop or reduce; the fourth has the vendor class of a network boot.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.integrations.dhcp.deciding import dhcp_leases
from provisioner.integrations.dhcp.deciding.dhcp_lease import DhcpLease, LeaseFile
from provisioner.integrations.dhcp.deciding.dhcp_leases import read_leases
from provisioner.model.input_error import InputError

HERE = Path(__file__).parent
FILES = {"kea": "kea-leases4.csv", "dnsmasq": "dnsmasq.leases", "dhcpd": "dhcpd.leases"}
MAC = "5c:25:73:00:00:0"
KEA = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,hostname,state\n"


def read(server: str) -> LeaseFile:
    name = FILES[server]
    return read_leases(name, (HERE / name).read_text(encoding="utf-8"))


def active(file: LeaseFile) -> dict[str, DhcpLease]:
    return {lease.mac: lease for lease in file.leases if lease.active}


@pytest.mark.parametrize("server", FILES)
def test_each_server_has_the_same_clients_in_its_file(server: str) -> None:
    file = read(server)

    assert (file.server, file.notes) == (server, ())
    assert set(active(file)) == {f"{MAC}{n}" for n in (1, 2, 3, 4)}
    assert active(file)[f"{MAC}1"].hostname == "bmc-a"


FREED = f"""lease 10.0.1.60 {{
  starts 1 2026/11/23 16:44:14;
  ends 1 2026/11/23 16:44:15;
  tstp 1 2026/11/23 16:44:15;
  cltt 1 2026/11/23 16:44:14;
  binding state free;
  hardware ethernet {MAC}2;
  uid "\\001\\\\%s\\000\\000\\002";
}}
"""  # by the same dhcpd, of a client that gave its lease back


@pytest.mark.parametrize("text", [FREED, KEA + f"10.0.1.60,{MAC}2,,0,1000,1,,0\n"])
def test_a_lease_that_was_given_back_is_not_in_force(text: str) -> None:
    (lease,) = read_leases("a", text).leases

    assert (lease.mac, lease.active) == (f"{MAC}2", False)


@pytest.mark.parametrize("server", FILES)
def test_a_card_that_changed_its_client_id_has_two_leases(server: str) -> None:
    leases = [lease for lease in read(server).leases if lease.mac == f"{MAC}2"]

    assert {lease.address for lease in leases} == {"10.0.1.60", "10.0.1.70"}
    assert max(leases, key=lambda lease: lease.ends_at or 0.0).address == "10.0.1.70"


def test_dhcpd_records_the_vendor_class() -> None:
    classes = {lease.mac: lease.vendor_class for lease in active(read("dhcpd")).values()}

    assert list(classes.values()) == [
        "iDRAC",
        "NVIDIA/BF/BMC",
        "CPQRIB3",
        "PXEClient:Arch:00016:UNDI:003001",
    ]


@pytest.mark.parametrize(
    ("end", "ends_at"),
    [
        ("never", None),
        ("4 2026/11/26 12:00:00", 1795694400.0),
        ("epoch 1795694400", 1795694400.0),
    ],
)
def test_dhcpd_writes_an_end_in_three_ways(end: str, ends_at: float | None) -> None:
    text = f"lease 10.0.0.5 {{ ends {end}; # Thu\n hardware ethernet {MAC}1; }}"

    (lease,) = read_leases("a", text).leases

    assert lease.ends_at == ends_at


def test_the_last_row_of_an_address_counts() -> None:
    rows = f"10.0.0.5,{MAC}1,,60,1000,1,,0\n10.0.0.5,{MAC}2,,60,2000,1,,0\n"

    (lease,) = read_leases("a", KEA + rows).leases

    assert (lease.mac, lease.began_at, lease.ends_at) == (f"{MAC}2", 1940.0, 2000.0)


def test_a_lease_of_kea_may_be_without_end_or_declined() -> None:
    rows = f"10.0.0.5,{MAC}1,,4294967295,4294968295,1,,0\n10.0.0.6,{MAC}2,,60,2000,1,,1\n"

    infinite, declined = read_leases("a", KEA + rows).leases

    assert (infinite.active, infinite.ends_at, declined.active) == (True, None, False)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (KEA + f"10.0.0.5,{MAC}1,,60,1000", "the row cannot be read; the first at line 2"),
        (KEA + "10.0.0.5,,01:02,60,1000,1,,0\n", "no Ethernet MAC"),
        ("1795694400 06-01:02:03:04:05:06 10.0.0.5 * *\n", "no Ethernet MAC"),
        ("duid 00:01\n1795694400 7 fd00::5 a 00:01\n", "DHCPv6"),
        ("lease 10.0.0.5 { ends never; }", "no Ethernet MAC"),
        ("\n\nlease x { ends never; }", "the row cannot be read; the first at line 3"),
        ('ia-na "x" { iaaddr fd00::5 { ends never; } }', "DHCPv6"),
        ("# a comment alone\n", "it has no lease"),
    ],
)
def test_a_row_that_is_left_out_is_counted(text: str, note: str) -> None:
    file = read_leases("a", text)

    assert file.leases == ()
    assert note in file.notes[0]


HOSTILE = (
    f"lease 10.0.0.5 {{ ends never; hardware ethernet {MAC}1; client-hostname "
    r'"} lease 10.0.0.6 { ends never;\"\033";}'
)


@pytest.mark.parametrize(
    "text",
    [
        f"1795694400 {MAC}1 10.0.0.5 x\u2028{MAC}2\x0c1795694400 {MAC}2 10.0.0.6 * * *\n",
        KEA + f"10.0.0.5,{MAC}1,,60,1000,1,x\x0c10.0.0.6\u2028,0\n",
        HOSTILE,
    ],
)
def test_a_host_name_begins_no_row_and_has_no_control_character(text: str) -> None:
    (lease,) = read_leases("a", text).leases

    assert lease.address == "10.0.0.5"
    assert lease.hostname.isprintable()


def test_a_declaration_that_did_not_end_is_left_out() -> None:
    whole = f"lease 10.0.0.5 {{ ends never; hardware ethernet {MAC}1; }}\n"

    assert len(read_leases("a", whole + whole.replace(".5", ".6")[:40]).leases) == 1


@pytest.mark.parametrize("text", ["hello\n", "address,hwaddr\n", "address," * 9])
def test_another_file_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(InputError, match="Name "):
        read_leases("a", text)


def test_a_file_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dhcp_leases, "LINES_MAX", 3)

    with pytest.raises(InputError, match="more than"):
        read_leases("a", KEA + "\n\n\n")
