"""State of one throw-away host's stand-in tools: a JSON file, changed under a lock.

What is burned and what runs are two values; a boot lets the first become the second (`boot`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys

FILE = "/var/lib/standins/state.json"
SYS = "/sys/bus/pci/devices"

# As a card has them after its power came: nothing of a Spectrum-X profile is in force.
RUNTIME = {"trust-mode": "pcp", "pfc": "00000000"}


@contextlib.contextmanager
def state():
    """The state; what the block changes is written back."""
    with open(FILE, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        content = json.load(file)
        before = json.dumps(content)
        yield content
        after = json.dumps(content)
        if after != before:
            file.seek(0)
            file.truncate()
            file.write(after)
            file.flush()


def fail(text, code=1):
    """End as the real tools do: a line on the error stream."""
    sys.stderr.write(text + "\n")
    raise SystemExit(code)


def card(content, device):
    """A card by its PCI address, with or without the domain."""
    name = device if device.count(":") == 2 else "0000:" + device
    if name not in content["cards"]:
        fail(f"-E- Cannot open Device: {device}. No such file or directory.")
    return content["cards"][name]


def boot(cold):
    """Power came, or the system started again: what waited becomes what runs."""
    os.makedirs("/run/lock", exist_ok=True)
    with state() as content:
        content["units_running"] = [u for u in content["units_enabled"] if u != "doca-dms"]
        content["modules"] = []
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir("/etc/modules-load.d")):
                with open("/etc/modules-load.d/" + name) as file:
                    content["modules"] += [w for w in file.read().split() if w[0] != "#"]
        content["driver_loaded"] = installed_driver()
        content["persistence"] = "nvidia-persistenced" in content["units_running"]
        for name, facts in content["cards"].items():
            facts["runtime"] = {}
            if cold:
                reset(facts)
            for what, entry in (("net", facts["net"]), ("infiniband", facts["rdma"])):
                os.makedirs(f"{SYS}/{name}/{what}/{entry}", exist_ok=True)
            rshim = f"/dev/rshim{facts['rshim']}"
            os.makedirs(rshim, exist_ok=True)
            with open(rshim + "/misc", "w") as file:
                file.write(misc(name, facts, ["INFO[UEFI]: eMMC probed", "INFO[MISC]: Linux up"]))


def installed_driver():
    """Upstream version of the driver's package."""
    line = ["dpkg-query", "-W", "-f", "${Version} ${db:Status-Abbrev}\n"]
    line += ["nvidia-driver", "nvidia-driver-[0-9]*"]
    told = subprocess.run(line, capture_output=True, text=True, check=False).stdout
    # a package that was once known has no version, but a line
    versions = [
        line.split()[0] for line in told.splitlines() if line.split()[-1:] in (["ii"], ["hi"])
    ]
    return versions[-1].rpartition("-")[0] if versions else ""


def reset(facts):
    """A reset that is strong enough: flash and next-boot configuration come into force."""
    facts["running"] = facts["flash"]
    for entry in facts["config"].values():
        entry["current_value"] = entry["next_value"]


def misc(name, facts, log):
    """`cat /dev/rshim0/misc` at display level 2."""
    function = name.rsplit(".", 1)[0] + ".2"
    lines = [
        "DISPLAY_LEVEL   2 (0:basic, 1:advanced, 2:log)",
        "BOOT_MODE       1 (0:rshim, 1:emmc, 2:emmc-boot-swap)",
        "BOOT_TIMEOUT    300 (seconds)",
        "DROP_MODE       0 (0:normal, 1:drop)",
        "SW_RESET        0 (1: reset)",
        f"DEV_NAME        pcie-{function}",
        "DEV_INFO        BlueField-3(Rev 1)",
        "OPN_STR         N/A",
        "---------------------------------------",
        "             Log Messages",
        "---------------------------------------",
    ]
    return "\n".join([*lines, *(" " + text for text in log)]) + "\n"
