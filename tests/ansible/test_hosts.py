"""The throw-away hosts themselves: what the other tests here rely on."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
from hosts import Host


def ssh(host: Host, command: str) -> str:
    options = ["-o", f"UserKnownHostsFile={host.known_hosts}", "-o", "BatchMode=yes"]
    line = ["ssh", "-F", "none", *options, "-i", str(host.key), f"root@{host.address}", command]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_host_answers_over_ssh_and_is_not_the_machine(two_hosts: list[Host]):
    one, two = two_hosts
    one.put("/etc/only-here", "yes\n")

    assert ssh(one, "hostname; cat /etc/only-here") == "host-1\nyes"
    assert ssh(two, "ls /etc/only-here 2>/dev/null || echo none") == "none"
    assert not Path("/etc/only-here").exists()
    assert ssh(one, "cat /proc/sys/kernel/random/boot_id") == one.boot_id


def test_a_host_has_no_disk_and_sees_no_process_of_the_machine(two_hosts: list[Host]):
    assert ssh(two_hosts[0], "find /dev -type b | wc -l") == "0"
    assert int(ssh(two_hosts[0], "ls /proc | grep -c '^[0-9]'")) < 12


def test_a_reboot_keeps_the_disk_and_gives_a_new_boot_id(two_hosts: list[Host]):
    host = two_hosts[0]
    before = host.boot_id
    host.put("/opt/kept", "kept")
    host.put("/run/lost", "lost")

    ssh(host, "shutdown -r now")
    host.wait(not_boot=before)

    assert ssh(host, "cat /opt/kept; ls /run/lost 2>/dev/null || true") == "kept"
    assert host.boot_id != before


def test_a_host_without_power_is_silent_until_it_is_booted(two_hosts: list[Host]):
    host = two_hosts[1]
    host.power_off()
    with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
        socket.create_connection((host.address, host.port), timeout=1.0)
    host.boot()

    assert ssh(host, "echo back") == "back"
