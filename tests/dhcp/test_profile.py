"""A DHCP and ZTP profile for an empty management network, judged by the servers themselves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from program import Done, run
from servers import find_program, kea_environment

LIST = """
nodes:
  - {name: n1, kind: host, bmc: {mac: "5C:25:73:00:00:01", url: "https://10.0.1.11"}}
  - {name: n2, kind: host, bmc: {mac: "5c:25:73:00:00:02"}}
  - {name: n3, kind: host, bmc: {serial: S3, url: "https://10.0.1.13"}}
  - {name: n4, kind: host, bmc: {mac: "5c:25:73:00:00:04", url: "https://10.9.1.13"}}
  - {name: leaf1, kind: switch, address: "https://10.0.1.9:8765", bmc: {mac: "5c:25:73:00:00:09"}}
  - {name: leaf.2, kind: switch, os: sonic, address: "ssh://10.0.1.8"}
"""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKsdcINmWP4cm0pKjGS0xlc55pd/MdhMg0798jEUAE+P daemon"
WWW = {"cumulus-ztp.sh", "ztp.json", "sonic-login.sh"}
SERVERS = ("kea", "dnsmasq")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "expected.yaml").write_text(LIST)
    (tmp_path / "key.pub").write_text(KEY + "\n")
    return tmp_path


def write(site: Path, server: str, *more: str, subnet: str = "10.0.1.0/24") -> Done:
    line = ["discover", "profile", server, "--file", "expected.yaml", "--subnet", subnet]
    line += ["--address", "10.0.1.1", "--interface", "lo", "--out", "p", "--ssh-key", "key.pub"]
    return run([*line, *more], site)


@pytest.mark.parametrize("server", SERVERS)
def test_a_profile_is_accepted_by_its_server_and_written_only_when_asked(
    site: Path, server: str
) -> None:
    program = find_program("kea-dhcp4" if server == "kea" else "dnsmasq")
    dry = write(site, server)
    assert (dry.returncode, (site / "p").exists()) == (0, False)
    assert "was accepted by" in dry.stdout
    assert "Nothing was written" in dry.stdout

    done = write(site, server, "--write")

    assert done.returncode == 0, done.stderr
    assert "Power the racks" in done.stdout
    assert {f.name for f in (site / "p/www").iterdir()} == WWW
    if server == "kea":
        test = [program, "-t", "p/kea-dhcp4.conf"]
    else:
        test = [program, "--test", "--conf-file=p/dnsmasq.conf"]
    env = kea_environment(site)
    assert subprocess.run(test, cwd=site, env=env, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("server", SERVERS)
def test_no_file_is_replaced(site: Path, server: str) -> None:
    (site / "p/www").mkdir(parents=True)
    (site / "p/www/ztp.json").symlink_to("elsewhere")

    done = write(site, server, "--write")

    assert done.returncode == 2
    assert "www/ztp.json already" in done.stderr
    assert [f.name for f in (site / "p").iterdir()] == ["www"]


def test_listed_addresses_are_given_to_their_cards_alone(site: Path) -> None:
    done = write(site, "kea", "--write", "--pool", "10.0.1.7-10.0.1.14")
    (subnet,) = json.loads((site / "p/kea-dhcp4.conf").read_text())["Dhcp4"]["subnet4"]

    assert [p["pool"] for p in subnet["pools"]] == [
        "10.0.1.7 - 10.0.1.7",
        "10.0.1.10 - 10.0.1.10",
        "10.0.1.12 - 10.0.1.12",
        "10.0.1.14 - 10.0.1.14",
    ]
    assert [(r["hw-address"], r["ip-address"], r["hostname"]) for r in subnet["reservations"]] == [
        ("5c:25:73:00:00:01", "10.0.1.11", "n1-bmc"),
        ("5c:25:73:00:00:09", "10.0.1.9", "leaf1"),
    ]
    for name, why in (
        ("n2-bmc", "no address of its own"),
        ("n3-bmc", "no MAC"),
        ("n4-bmc", "not in 10.0.1.0/24"),
        ("leaf.2", "no MAC"),
    ):
        assert any(name in line and why in line for line in done.stdout.splitlines())


TOOLS = {
    "ip": 'echo "2: eth0    inet $ADDRESS/24 brd 10.0.1.255 scope global eth0"',
    "nv": 'echo "nv $*" >>"$LOG"',
    "config": 'echo "config $*" >>"$LOG"',
    "id": "exit 1",
    "useradd": 'echo "useradd $*" >>"$LOG"',
}


def start(site: Path, script: str, address: str) -> list[str]:
    """Run a first script with a switch's own commands recorded; return these."""
    tools = site / "tools"
    tools.mkdir(exist_ok=True)
    for name, body in TOOLS.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    text = (site / "p/www" / script).read_text()
    here = text.replace("/var/log/autoprovision", str(site / "autoprovision"))
    (site / "first").write_text(here)
    log = site / f"log-{address}"
    log.touch()
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "ADDRESS": address, "LOG": str(log)}
    subprocess.run(["bash", "first"], cwd=site, env=env, check=True)
    return log.read_text().splitlines()


def test_the_first_script_of_cumulus_names_the_switch_by_its_address(site: Path) -> None:
    write(site, "dnsmasq", "--write")
    script = (site / "p/www/cumulus-ztp.sh").read_text()
    ends = ["nv config apply -y", "nv config save"]

    assert "\n# CUMULUS-AUTOPROVISIONING\n" in script
    assert start(site, "cumulus-ztp.sh", "10.0.1.9") == [
        "nv set system api state enabled",
        "nv set system hostname leaf1",
        *ends,
    ]
    assert start(site, "cumulus-ztp.sh", "10.0.1.8") == ["nv set system api state enabled", *ends]


def test_the_data_of_sonic_name_a_script_that_lets_the_daemons_key_in(site: Path) -> None:
    write(site, "kea", "--write", "--url", "https://ztp.example/racks/", "--ssh-user", "ada")
    data = json.loads((site / "p/www/ztp.json").read_text())
    script = (site / "p/www/sonic-login.sh").read_text()

    (section,) = data["ztp"].values()
    assert section["plugin"]["url"] == "https://ztp.example/racks/sonic-login.sh"
    assert f"key='{KEY}'" in script
    assert "user=ada\n" in script
    assert "10.0.1.8) echo leaf.2 ;;" in script
    assert "leaf1" not in script


def test_scripts_pass_shellcheck_and_hold_no_login_of_the_list(site: Path) -> None:
    (site / "expected.yaml").write_text(
        LIST + "factory_credentials:\n  unknown: {username: admin, password: Very-secret-1}\n"
    )
    write(site, "dnsmasq", "--write")
    files = [f for f in (site / "p").rglob("*") if f.is_file()]
    checker = shutil.which("shellcheck") or str(Path(".venv/bin/shellcheck").resolve())
    scripts = [str(f) for f in files if f.read_text().startswith("#!")]

    assert len(scripts) == 3
    assert not any("Very-secret" in f.read_text() for f in files)
    subprocess.run([checker, *scripts], check=True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--subnet", "10.0.1.0/30"], "16 to 29 bits"),
        (["--subnet", "fd00::/64"], "no network of IPv4"),
        (["--address", "10.0.2.1"], "no host address"),
        (["--address", "10.0.1.255"], "no host address"),
        (["--address", "10.0.1.11"], "n1-bmc has the address"),
        (["--gateway", "10.0.1.9"], "leaf1 has the address"),
        (["--pool", "10.0.1.9"], "no host address"),
        (["--pool", "10.0.1.8-10.0.1.9"], "no address is left"),
        (["--interface", "eth0\ndhcp-script=/x"], "cannot be used"),
        (["--url", "http://a b"], "cannot be used"),
        (["--url", "file:///etc/shadow"], "cannot be used"),
        (["--ssh-user", "root;id"], "cannot be used"),
    ],
)
def test_values_that_do_not_fit_are_refused(site: Path, options: list[str], reason: str) -> None:
    done = write(site, "kea", "--write", *options)

    assert done.returncode == 2
    assert reason in done.stderr
    assert not (site / "p").exists()


def test_a_list_with_sonic_needs_the_daemons_public_key(site: Path) -> None:
    line = ["discover", "profile", "kea", "--file", "expected.yaml", "--subnet", "10.0.1.0/24"]
    line += ["--address", "10.0.1.1", "--interface", "lo", "--out", "p"]
    done = run(line, site)
    (site / "key.pub").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n")
    private = run([*line, "--ssh-key", "key.pub"], site)

    assert (done.returncode, private.returncode) == (2, 2)
    assert "--ssh-key" in done.stderr
    assert "public key" in private.stderr


CLIENT = """#!/bin/sh
[ "$1" != bound ] || echo "$ip name=$hostname script=$opt239 data=$bootfile" >>seen
"""
NETWORK = """
ip link set lo up
ip link add s0 type veth peer name c0
ip address add 10.0.1.1/24 dev s0
ip link set s0 up
ip link set c0 up
ask() {{
  ip link set c0 down; ip link set c0 address $1; ip link set c0 up; shift
  busybox udhcpc -i c0 -f -q -n -t 8 -T 2 -s ./client -O 67 -O 239 "$@"
}}
{server} &
sleep 3
ask 5c:25:73:00:00:01 -V iDRAC
ask 5c:25:73:00:00:09 -V 'cumulus-linux x86_64'
ask 5c:25:73:00:00:0a -x 0x4d:534f4e69432d5a5450
kill $!; wait
"""


@pytest.mark.long
@pytest.mark.parametrize("server", SERVERS)
def test_only_new_switches_get_the_address_of_a_first_script(site: Path, server: str) -> None:
    if os.geteuid() != 0 or not shutil.which("busybox") or not shutil.which("unshare"):
        pytest.skip("a network namespace needs root, and a DHCP client busybox")
    program = find_program("kea-dhcp4" if server == "kea" else "dnsmasq")
    write(site, server, "--write", "--interface", "s0")
    file = site / "p" / ("kea-dhcp4.conf" if server == "kea" else "dnsmasq.conf")
    text = file.read_text()
    for place in ("/run/kea", "/var/lib/kea", "/var/lib/misc"):
        text = text.replace(place, str(site))
    text = text.replace("/usr/local/sbin/note-lease", f"{site}/p/note-lease")
    file.write_text(text.replace("scriptuser=dnsmasq", "scriptuser=root"))
    command = f"{program} -c {file}" if server == "kea" else f"{program} -C {file} -k -u root"
    (site / "client").write_text(CLIENT)
    (site / "client").chmod(0o755)
    (site / "run").write_text(NETWORK.format(server=command))
    env = {**kea_environment(site), "LEASE_NOTES": str(site / "notes")}
    subprocess.run(["unshare", "--net", "sh", "run"], cwd=site, env=env, check=False, timeout=90)

    script = b"http://10.0.1.1/cumulus-ztp.sh".hex()
    bmc, cumulus, sonic = (site / "seen").read_text().splitlines()
    assert bmc == "10.0.1.11 name=n1-bmc script= data="
    assert cumulus == f"10.0.1.9 name=leaf1 script={script} data="
    assert sonic.endswith("name= script= data=http://10.0.1.1/ztp.json")
    if server == "dnsmasq":
        assert "cumulus-linux x86_64" in (site / "notes").read_text()
