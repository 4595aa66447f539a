"""The login of the tenant's own key at its node, where a real system is behind the node."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from daemon_client import Daemon, RefusedError, mark, wait_for

LOGIN_S = 300.0
TRY_S = 30
NODE = os.environ.get("ACCEPTANCE_GUEST", "")  # the node with a system; empty: there is none
SSH = (
    *("ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
)
READ = "cat /proc/sys/kernel/random/boot_id"
Answer = dict[str, Any]


def set_key(daemon: Daemon, tenant: str) -> Answer:
    """Give a tenant the key of this run, and return it as the daemon has it."""
    file = Path(os.environ["ACCEPTANCE_TENANT_KEY"]).with_suffix(".pub")
    path = f"/tenants/{tenant}/keys/acceptance"
    daemon.change("PUT", path, {"public_key": file.read_text(encoding="utf-8")})
    return dict(daemon.get(path))


def describe_login(daemon: Daemon, node: str) -> Answer:
    """Return address, account and key of the tenant's login; empty for a node without a system."""
    if node != NODE:
        return {}
    settings = daemon.get("/settings")["items"]
    return {
        "public_ip": daemon.get(f"/nodes/{node}")["address"],
        "ssh_user": next(s["value"] for s in settings if s["name"] == "tenant_user"),
        "key_file": os.environ.get("ACCEPTANCE_LOGIN_KEY") or os.environ["ACCEPTANCE_TENANT_KEY"],
        "key_name": "acceptance",
    }


def read_boot(daemon: Daemon, node: str, before: str = "") -> str:
    """Return the boot id that the tenant reads at its login; another one than `before`."""
    login = describe_login(daemon, node)

    def read() -> str:
        words = [*SSH, "-i", login["key_file"], f"{login['ssh_user']}@{login['public_ip']}", READ]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TRY_S)
        if "Permission denied" in done.stderr:
            raise RefusedError(0, f"{node} does not take the key: {done.stderr.strip()[-200:]}")
        boot = done.stdout.strip() if done.returncode == 0 else ""
        return "" if boot == before else boot

    return str(wait_for(read, LOGIN_S, f"the tenant logs in to {node}"))


def crud_tenant_key(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Make, read, change and delete a key of a tenant."""
    tenant = "acceptance-keys"
    path = f"/tenants/{tenant}/keys/laptop"
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("one", "two"):
            file = Path(folder) / name
            words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file))
            subprocess.run(words, check=True)
            lines.append(file.with_suffix(".pub").read_text(encoding="utf-8"))
    daemon.change("PUT", f"/tenants/{tenant}", {"nodes": 0, "vrf": "ACC-KEYS"})
    daemon.change("PUT", path, {"public_key": lines[0]})
    made = daemon.get(path)
    daemon.change("PUT", path, {"public_key": lines[1]})
    changed = daemon.get(path)
    listed = daemon.get(f"/tenants/{tenant}/keys")["items"]
    daemon.change("DELETE", path)
    gone = daemon.find(path) is None
    daemon.change("DELETE", f"/tenants/{tenant}")
    return {
        "key_id": made["fingerprint"],
        **mark(
            create=lines[0].startswith(made["public_key"]),
            read=[key["name"] for key in listed] == ["laptop"],
            update=lines[1].startswith(changed["public_key"]),
            delete=gone,
        ),
    }


STEPS = {"crud_tenant_key": crud_tenant_key}
