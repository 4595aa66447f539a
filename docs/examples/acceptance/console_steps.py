"""Steps that read the serial console of a host: its lines, how old they get, and who may read.

The kernel prints on the console, so its lines are the log of a running host. A tenant's key is its
token of the API: no shell of a BMC is open to it.
"""

from __future__ import annotations

import os
import re
from datetime import datetime
from typing import Any

from control_steps import create_key, open_as, revoke_key
from daemon_client import Daemon, RefusedError, wait_for
from power_steps import switch_power

KERNEL = re.compile(r"^\[ *\d+\.\d+\] ")
PRINTED_S = 60.0
LINES = 2000
DAY_S = 86400.0
Answer = dict[str, Any]


def _read_lines(daemon: Daemon, node: str, after: int = -1) -> list[Answer]:
    page = daemon.get(f"/nodes/{node}/console", after=after, limit=LINES)
    return list(page["lines"])


def _restart(daemon: Daemon, node: str) -> list[Answer]:
    """Switch the node off and on, and return the lines that its console printed from then on."""
    before = _read_lines(daemon, node)
    last = before[-1]["seq"] if before else -1
    switch_power(daemon, node, "cycle")

    def read() -> list[Answer]:
        lines = [line for line in _read_lines(daemon, node) if line["seq"] > last]
        return lines if any(KERNEL.match(line["text"]) for line in lines) else []

    return list(wait_for(read, PRINTED_S, "the console prints the start of the host"))


def _read_age_days(daemon: Daemon, at: str) -> int:
    """Return the age of a line in whole days, by the daemon's own clock."""
    now = datetime.fromisoformat(daemon.get("/me")["now"])
    return int((now - datetime.fromisoformat(at)).total_seconds() // DAY_S)


def serial_console(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Restart the node, read the lines of its start, and the oldest line that is stored."""
    lines = _restart(daemon, node)
    stored = _read_lines(daemon, node, 0)
    oldest = stored[0]
    settings = daemon.get("/settings")["items"]
    days = next(s["value"] for s in settings if s["name"] == "console_days")
    return {
        "instance_id": node,
        "console_available": True,
        "output_length": sum(len(line["text"]) for line in lines),
        "console_log_queryable": bool(stored),
        "retention_days_configured": int(days),
        "oldest_queryable_log_age_days": _read_age_days(daemon, oldest["at"]),
        "query_result_count": len(stored),
        "retention_evidence": f"setting console_days; line {oldest['seq']} of {oldest['at']}",
    }


def host_status_log(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Restart the node and count the lines of its kernel that came since."""
    kernel = [line for line in _restart(daemon, node) if KERNEL.match(line["text"])]
    message = f"{len(kernel)} lines of the kernel on the serial console since the restart"
    return {
        "instance_id": node,
        "tests": {"dmesg_recent": {"passed": bool(kernel), "message": message}},
    }


def _make_owner_key(daemon: Daemon, node: str) -> str:
    """Make a key of the node's tenant; that of another one is for the counter-proof."""
    tenant = os.environ.get("ACCEPTANCE_TENANT") or daemon.get(f"/nodes/{node}")["tenant"]
    return str(create_key(daemon, "acceptance-owner", "tenant", tenant)["access_key_id"])


def query_key_access(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Let the tenant of a node read its console with a key of its own."""
    key = _make_owner_key(daemon, node)
    try:
        lines = _read_lines(open_as(key, "query_key_access"), node)
        detail = f"{len(lines)} lines since the tenant has the node"
    except RefusedError as error:
        lines = []
        detail = str(error)
    good = [t for t in daemon.get("/tokens")["items"] if t["id"] == key and t["good"]]
    target = {
        "type": "serial_console",
        "name": node,
        "key_access_enabled": bool(good),
        "reachable": bool(lines),
        "detail": detail,
    }
    revoke_key(daemon, key)
    return {"specified_keys": len(good), "access_targets": [target]}


def read_console_only(daemon: Daemon, node: str, _rack: str) -> Answer:
    """Let the tenant of a node read its console, and try to write to it."""
    key = _make_owner_key(daemon, node)
    owner = open_as(key, "read_console_only")
    _restart(daemon, node)
    lines = _read_lines(owner, node)
    refused = False
    try:
        owner.accept(f"/nodes/{node}/console", {"text": "acceptance"})
    except RefusedError as error:
        refused = error.status == 405
    revoke_key(daemon, key)
    results = {"read": bool(lines), "refuse_writing": refused}
    return {"operations": {name: {"passed": done} for name, done in results.items()}}


STEPS = {
    "serial_console": serial_console,
    "host_status_log": host_status_log,
    "query_key_access": query_key_access,
    "read_console_only": read_console_only,
}
