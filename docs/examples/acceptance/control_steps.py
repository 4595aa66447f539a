"""Steps of the suites control-plane and iam: tokens of people and programs, tenants."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Any

from daemon_client import Daemon, RefusedError, open_daemon, wait_for

GROUP = "acceptance-group"
DELETE_S = 240.0
SERVICES = ("nodes", "tenants", "releases", "operations")
Answer = dict[str, Any]


def check_api(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Ask who the caller is, and each of some services."""
    me = daemon.get("/me")
    tests = {"auth": {"passed": bool(me["roles"])}}
    for service in SERVICES:
        tests[service] = {"passed": isinstance(daemon.get(f"/{service}")["items"], list)}
    passed = all(t["passed"] for t in tests.values())
    return {"success": passed, "account_id": me["subject"], "tests": tests}


def _secret_file(key: str) -> Path:
    """Return the file of a token; the suite's output and logs have its public part only."""
    return Path(os.environ["ACCEPTANCE_EVIDENCE"]).parent / f"token-{key}"


def create_key(
    daemon: Daemon, subject: str, role: str = "viewer", tenant: str = "", days: float = 1.0
) -> Answer:
    """Create a token for a subject and store it in a file of its own."""
    token = f"prv_{secrets.token_urlsafe(32)}"
    body = {
        "sha256": hashlib.sha256(token.encode()).hexdigest(),
        "subject": subject,
        "role": role,
        "tenant": tenant,
        "days": days,
    }
    key = daemon.change("POST", "/tokens", body)["result"]["token"]
    file = _secret_file(key)
    file.touch(mode=0o600)
    file.write_text(token, encoding="utf-8")
    return {"username": subject, "user_id": subject, "access_key_id": key}


def open_as(key: str, step: str) -> Daemon:
    """Return a client of the API with a key that was created before."""
    return open_daemon(step, _secret_file(key).read_text(encoding="utf-8"))


def revoke_key(daemon: Daemon, key: str) -> bool:
    """Revoke a key and return whether the daemon lists it as good no more."""
    row = next(t for t in daemon.get("/tokens")["items"] if t["id"] == key)
    if row["good"]:
        daemon.change("POST", f"/tokens/{key}/revoke")
    rows = daemon.get("/tokens")["items"]
    return not next(t["good"] for t in rows if t["id"] == key)


def create_access_key(daemon: Daemon, _key: str, _rack: str) -> Answer:
    """Create a token for a program."""
    return create_key(daemon, "acceptance-program")


def use_access_key(_daemon: Daemon, key: str, _rack: str) -> Answer:
    """Use the token."""
    me = open_as(key, "test_access_key").get("/me")
    subject = me["subject"]
    return {"authenticated": bool(me["roles"]), "account_id": subject, "identity_id": subject}


def disable_access_key(daemon: Daemon, key: str, _rack: str) -> Answer:
    """Revoke the token; it is not usable again."""
    status = "Inactive" if revoke_key(daemon, key) else "Active"
    return {"access_key_id": key, "status": status}


def verify_key_rejected(_daemon: Daemon, key: str, _rack: str) -> Answer:
    """Use the revoked token."""
    try:
        open_as(key, "verify_key_rejected").get("/me")
    except RefusedError as error:
        return {"rejected": error.status == 401, "error_code": str(error.status)}
    return {"success": False, "rejected": False}


def delete_access_key(daemon: Daemon, key: str, _rack: str) -> Answer:
    """Revoke the token if it is good still."""
    return {"success": revoke_key(daemon, key), "resources_deleted": [key], "message": "revoked"}


def create_tenant(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Create a tenant without nodes."""
    daemon.change("PUT", f"/tenants/{GROUP}", {"nodes": 0, "vrf": "ACC-GROUP"})
    return get_tenant(daemon, GROUP, "")


def list_tenants(daemon: Daemon, group: str, _rack: str) -> Answer:
    """List the tenants and look for one."""
    rows = [
        {"tenant_name": t["name"], "tenant_id": str(t["l3vni"])}
        for t in daemon.list_all("/tenants")
    ]
    return {
        "tenants": rows,
        "count": len(rows),
        "target_tenant": group,
        "found_target": any(row["tenant_name"] == group for row in rows),
    }


def get_tenant(daemon: Daemon, group: str, _rack: str) -> Answer:
    """Return one tenant; its number in the fabric is its identity."""
    tenant = daemon.get(f"/tenants/{group}")["tenant"]
    text = f"VRF {tenant['vrf']}, {tenant['phase']}, {tenant['nodes_wanted']} nodes wanted"
    return {
        "tenant_name": tenant["name"],
        "tenant_id": str(tenant["l3vni"]),
        "description": text,
    }


def delete_tenant(daemon: Daemon, group: str, _rack: str) -> Answer:
    """Delete the tenant and wait until it is gone."""
    daemon.get(f"/tenants/{group}")  # to delete it twice would prove nothing
    daemon.change("DELETE", f"/tenants/{group}")
    wait_for(lambda: daemon.find(f"/tenants/{group}") is None, DELETE_S, "the tenant is gone")
    return {"resources_deleted": [group], "message": "the tenant is deleted"}


def create_user(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Let a person in by a token of their own."""
    return create_key(daemon, "acceptance-person")


def use_credentials(_daemon: Daemon, key: str, _rack: str) -> Answer:
    """Sign in as that person and read the list of nodes."""
    caller = open_as(key, "test_credentials")
    me = caller.get("/me")
    nodes = caller.get("/nodes")["items"]
    return {
        "account_id": me["subject"],
        "tests": {
            "identity": {"passed": me["subject"] == "acceptance-person"},
            "access": {"passed": isinstance(nodes, list) and bool(nodes)},
        },
    }


def delete_user(daemon: Daemon, key: str, _rack: str) -> Answer:
    """Shut that person out, and prove it by another sign-in."""
    revoked = revoke_key(daemon, key)
    rejected = verify_key_rejected(daemon, key, "")["rejected"]
    return {"success": revoked and rejected, "resources_deleted": [key], "message": "shut out"}


STEPS = {
    "check_api": check_api,
    "create_access_key": create_access_key,
    "test_access_key": use_access_key,
    "disable_access_key": disable_access_key,
    "verify_key_rejected": verify_key_rejected,
    "delete_access_key": delete_access_key,
    "create_tenant": create_tenant,
    "list_tenants": list_tenants,
    "get_tenant": get_tenant,
    "delete_tenant": delete_tenant,
    "create_user": create_user,
    "test_credentials": use_credentials,
    "delete_user": delete_user,
}
