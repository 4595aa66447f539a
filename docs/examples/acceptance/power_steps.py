"""Steps that switch the power of the node that the suite ordered, at its tenant's wish.

`ssh_ready` is the login of the daemon to the system on the node, which the note of the operation
reports with the boot id; in a demonstration the simulator's shell answers it.
"""

from __future__ import annotations

import re
import time
from typing import Any

from daemon_client import ENDED, Daemon, wait_for
from guest_steps import NODE, describe_login, read_boot

SWITCH_S = 300.0
BOOT = re.compile(r"its system answers, boot id (?P<now>[^,]+), before: (?P<before>\S+)")
Answer = dict[str, Any]


def switch_power(daemon: Daemon, node: str, action: str) -> Answer:
    """Switch a node and return the operation of the node that did it."""
    body = {"action": action, "tenant": True}
    done = daemon.change("POST", f"/nodes/{node}/power", body, limit_s=SWITCH_S)
    name = done["result"]["operation"]

    def read() -> Any:
        operation = daemon.get(f"/operations/{name}")
        return operation if operation["state"] in ENDED else None

    return dict(wait_for(read, SWITCH_S, f"the node is switched {action}"))


def _read_state(daemon: Daemon, node: str) -> str:
    power = daemon.get(f"/nodes/{node}/power")["power"]
    return {"On": "running", "Off": "stopped"}.get(power, power)


def _read_boot(operation: Answer) -> tuple[str, str]:
    """Return the boot id after an act, and the one before; empty if the system did not answer."""
    match = BOOT.search(operation["note"])
    return (match["now"], match["before"]) if match else ("", "")


def _describe(daemon: Daemon, node: str, operation: Answer) -> Answer:
    boot, _ = _read_boot(operation)
    if node == NODE and _read_state(daemon, node) == "running":
        boot = read_boot(daemon, node)  # the tenant's own login
    return {
        "instance_id": daemon.get(f"/nodes/{node}")["id"],
        "state": _read_state(daemon, node),
        "public_ip": daemon.get(f"/nodes/{node}")["address"],
        "ssh_ready": bool(boot),
        "boot_id": boot,
        "note": operation["note"],
        **describe_login(daemon, node),
    }


def stop_instance(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Switch the node off."""
    operation = switch_power(daemon, node, "off")
    return {"stop_initiated": operation["state"] == "done", **_describe(daemon, node, operation)}


def start_instance(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Switch the node on and wait until its system answers."""
    operation = switch_power(daemon, node, "on")
    return {"start_initiated": operation["state"] == "done", **_describe(daemon, node, operation)}


def reboot_instance(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Cycle the node and compare the boot ids before and after."""
    before = read_boot(daemon, node) if node == NODE else ""
    operation = switch_power(daemon, node, "cycle")
    if node == NODE:
        after = read_boot(daemon, node, before)
    else:
        after, before = _read_boot(operation)
    return {
        "reboot_initiated": operation["state"] == "done",
        "reboot_confirmed": bool(after) and before not in ("none", after),
        **_describe(daemon, node, operation),
    }


def power_cycle_instance(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Switch the node off, read that it is off, and switch it on again."""
    off = switch_power(daemon, node, "off")
    was_off = _read_state(daemon, node) == "stopped"
    began = time.monotonic()
    on = switch_power(daemon, node, "on")
    return {
        "power_cycle_initiated": off["state"] == "done",
        "power_was_off": was_off,
        "recovery_seconds": round(time.monotonic() - began, 1),
        **_describe(daemon, node, on),
    }


def stable_ip_test(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Compare the addresses of a node's ports before and after it was switched off and on."""

    def read() -> list[str]:
        ports = daemon.get(f"/nodes/{node}")["ports"]
        return sorted(p["address"] for p in ports if p["address"])

    before = read()
    off = switch_power(daemon, node, "off")
    stopped = _read_state(daemon, node) == "stopped"
    on = switch_power(daemon, node, "on")
    after = read()
    return {
        "tests": {
            "create_instance": {"passed": bool(before), "instance_id": node},
            "record_ip": {"passed": bool(before), "private_ip": before[0] if before else ""},
            "stop_instance": {"passed": stopped and off["state"] == "done"},
            "start_instance": {"passed": on["state"] == "done" and bool(_read_boot(on)[0])},
            "ip_unchanged": {"passed": before == after, "ip_before": before, "ip_after": after},
        }
    }


STEPS = {
    "stop_instance": stop_instance,
    "start_instance": start_instance,
    "reboot_instance": reboot_instance,
    "power_cycle_instance": power_cycle_instance,
    "stable_ip_test": stable_ip_test,
}
