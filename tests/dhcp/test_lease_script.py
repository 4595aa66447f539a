"""The script that notes dnsmasq's leases: run by dnsmasq, and with words of hostile clients.

`dnsmasq.notes` was written by it beneath Debian's dnsmasq 2.90 in a network namespace: four clients
(busybox's udhcpc) with vendor classes, then SIGHUP, then a restart, after which the classes lack.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from program import run
from servers import find_program

from provisioner.integrations.dhcp.deciding.dhcp_leases import read_leases
from provisioner.integrations.dhcp.discover_commands import LEASE_SCRIPT

MAC = "5c:25:73:00:00:0"
NOTE = "note1\t1000\t{}\t{}\t10.0.0.5\t{}\t\t{}\t{}\t{}\n"
START_S = 20.0


def test_what_dnsmasq_noted_has_class_and_name_also_after_its_restart() -> None:
    text = Path(__file__).with_name("dnsmasq.notes").read_text()
    file = read_leases("notes", text)
    leases = {lease.mac: lease for lease in file.leases}

    assert file.notes == ()
    assert text.endswith("\t\t\t\t\n")  # the last note has no class
    assert {mac: lease.vendor_class for mac, lease in leases.items()} == {
        f"{MAC}1": "iDRAC",
        f"{MAC}2": "NVIDIA/BF/BMC",
        f"{MAC}3": "CPQRIB3",
        f"{MAC}4": "PXEClient:Arch:00016:UNDI:003001",
    }
    assert leases[f"{MAC}1"].hostname == "bmc-a"
    assert all(lease.active and lease.ends_at for lease in leases.values())


def test_an_address_that_another_card_takes_over_forgets_the_class() -> None:
    first = NOTE.format("add", f"{MAC}1", 2000, "iDRAC", "leaf1", "swp3")
    (before,) = read_leases("a", first).leases
    (after,) = read_leases("a", first + NOTE.format("add", f"{MAC}2", 0, "", "", "")).leases

    assert before.relay == "circuit leaf1, remote swp3"
    assert (after.vendor_class, after.relay, after.ends_at) == ("", "", None)


@pytest.mark.parametrize(
    ("line", "note"),
    [
        (NOTE.format("add", f"{MAC}1", "soon", "", "", ""), "cannot be read"),
        (NOTE.format("add", "06-01:23", 2000, "", "", ""), "no Ethernet MAC"),
        ("note1\t1\tadd\n", "cannot be read"),
        (NOTE.format("tftp", f"{MAC}1", 2000, "", "", ""), "cannot be read"),
        ("note1\t1\tadd\t00:01\tfd00::1\t0\t\t\t\t\n", "DHCPv6"),
    ],
)
def test_a_note_that_is_left_out_is_counted(line: str, note: str) -> None:
    file = read_leases("a", line)

    assert file.leases == ()
    assert note in file.notes[0]


def note(folder: Path, *arguments: str, **environment: str) -> int:
    """Run the script as dnsmasq does."""
    notes = {"LEASE_NOTES": str(folder / "notes"), "PATH": os.environ["PATH"]}
    return subprocess.run(
        [LEASE_SCRIPT, *arguments], env=notes | environment, check=False
    ).returncode


HOSTILE = "x\ty\nnote1\t1\tadd\t02:00:00:00:00:99\t10.0.0.99\t0\t\t\t\t\n$(id)`id`\x1b[31m\\"


def test_words_of_a_client_begin_no_line_and_no_field(tmp_path: Path) -> None:
    code = note(
        tmp_path,
        "add",
        f"{MAC}1",
        "10.0.0.5",
        HOSTILE,
        DNSMASQ_LEASE_EXPIRES="2000000000",
        DNSMASQ_VENDOR_CLASS=HOSTILE * 40,
        DNSMASQ_CIRCUIT_ID="%s%n",
    )
    text = (tmp_path / "notes").read_text()
    (lease,) = read_leases("notes", text).leases

    assert code == 0
    assert text.count("\n") == 1
    assert (lease.mac, lease.address, lease.ends_at) == (f"{MAC}1", "10.0.0.5", 2_000_000_000)
    assert "$(id)`id`" in lease.hostname
    assert len(lease.vendor_class) <= 255
    assert lease.relay == "circuit %s%n"


def test_other_actions_of_dnsmasq_are_not_noted(tmp_path: Path) -> None:
    assert note(tmp_path, "init") == 0
    assert note(tmp_path, "tftp", "9", "10.0.0.5", "/file") == 0
    assert note(tmp_path, "add", f"{MAC}1") == 0
    assert not (tmp_path / "notes").exists()


def test_notes_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"#" * 4_194_304)
    note(tmp_path, "del", f"{MAC}1", "10.0.0.5", DNSMASQ_LEASE_EXPIRES="99999999999999999999")

    assert (tmp_path / "notes.1").stat().st_size == 4_194_304
    (lease,) = read_leases("notes", (tmp_path / "notes").read_text()).leases
    assert not lease.active


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_dnsmasq_runs_the_script_for_its_leases(tmp_path: Path) -> None:
    program = find_program("dnsmasq")
    script = tmp_path / "note-lease"
    script.write_text(run(["discover", "script"], tmp_path).stdout)
    script.chmod(0o755)
    end = int(time.time()) + 3600
    (tmp_path / "leases").write_text(f"{end} {MAC}1 10.0.1.60 bmc-a *\n")
    options = [
        *("--conf-file=/dev/null", "--port=0", "--interface=lo", "--bind-interfaces"),
        *("--dhcp-range=10.0.1.50,10.0.1.99,1h", f"--dhcp-leasefile={tmp_path}/leases"),
        *(
            f"--dhcp-script={script}",
            "--dhcp-scriptuser=root",
            "--user=root",
            "--keep-in-foreground",
        ),
        *("--log-facility=-", "--pid-file="),
    ]
    shell = f"ip link set lo up && exec {program} {' '.join(options)}"
    unshare = shutil.which("unshare") or pytest.skip("unshare is not installed")
    server = subprocess.Popen(
        [unshare, "--net", "sh", "-c", shell],
        env={**os.environ, "LEASE_NOTES": str(tmp_path / "notes")},
        stderr=subprocess.PIPE,
    )
    try:
        until = time.monotonic() + START_S
        while not (tmp_path / "notes").exists() and time.monotonic() < until:
            assert server.poll() is None
            time.sleep(0.05)
        time.sleep(0.1)
    finally:
        server.terminate()
        server.communicate(timeout=START_S)
    (lease,) = read_leases("notes", (tmp_path / "notes").read_text()).leases
    assert (lease.mac, lease.address, lease.hostname) == (f"{MAC}1", "10.0.1.60", "bmc-a")
    assert lease.ends_at == end
