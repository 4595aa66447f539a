"""Steps about rights and their record: who may act on which node, and the journal of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control_steps import create_key, open_as, revoke_key
from daemon_client import AGENT, Daemon, RefusedError, list_hosts, pick_host

TAG = "stage:burn-in"
WINDOW_S = 3600.0  # by the daemon's clock, which may run fast
Answer = dict[str, Any]


def try_denied(caller: Daemon, verb: str, path: str, body: Answer) -> Answer:
    """Return whether a caller's role does not permit a request, as the result of a test."""
    try:
        caller.change(verb, path, body)
    except RefusedError as error:
        return {"passed": error.status == 403, "message": str(error)}
    return {"passed": False, "message": "it was not refused"}


def least_privilege_policy(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Let a tenant read its own node, another's node, and try what only the staff may."""
    hosts = [h for h in list_hosts(daemon, "kind=host and state=released") if h["tenant"]]
    if not hosts:
        raise RefusedError(404, "the caller sees no host of a tenant")
    own = hosts[0]
    others = [h["id"] for h in hosts if h["tenant"] != own["tenant"]]
    key = create_key(daemon, "acceptance-member", "tenant", own["tenant"])["access_key_id"]
    member = open_as(key, "least_privilege_policy")
    reads = member.find(f"/nodes/{own['id']}") is not None
    hidden = bool(others) and all(member.find(f"/nodes/{other}") is None for other in others)
    body = {"nodes": 0, "vrf": "ACC-NONE"}
    denied = try_denied(member, "PUT", "/tenants/acceptance-none?dry_run=true", body)
    subject = member.get("/me")["subject"]
    revoke_key(daemon, key)
    return {
        "test_identity": subject,
        "allowed_resource": own["id"],
        "tests": {
            "policy_dimensions_user_based": denied,
            "policy_dimensions_resource_based": {"passed": reads and hidden},
            "policy_dimensions_allowed_action_succeeds": {"passed": reads},
        },
    }


def audit_logging_test(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Make a change, look for its row in the journal, and ask what a prune would remove."""
    host = pick_host(daemon)
    path = f"/nodes/{host['id']}/tags"
    before = daemon.get("/audit", limit=1)["items"][0]["seq"]
    began = datetime.fromisoformat(daemon.get("/me")["now"])
    daemon.change("PATCH", path, {"tags": {TAG: True}})
    daemon.change("PATCH", path, {"tags": {TAG: None}})
    me = daemon.get("/me")
    rows = [r for r in daemon.get("/audit", limit=50)["items"] if r["seq"] > before]
    own = [r for r in rows if r["detail"].get("asked_by") == me["subject"]]
    row = own[-1] if own else {"at": me["now"], "kind": "", "node": "", "detail": {}}
    detail = row["detail"]
    late_s = (datetime.fromisoformat(row["at"]) - began).total_seconds()
    first = daemon.get("/events", limit=1)["items"][0]["seq"]
    verified = daemon.get("/audit/verification")
    prune = daemon.change("POST", "/audit/prune?dry_run=true", {})
    stays = prune["result"]["lines"][0].startswith("0 rows are removed")
    passed = {
        "audit_log_entry_found": bool(own),
        "audit_log_event_name_matches": detail.get("kind") == "node.tag",
        "audit_log_event_time_in_window": 0 <= late_s <= WINDOW_S,
        "audit_log_user_identity_present": bool(detail.get("asked_by")),
        "audit_log_source_ip_present": bool(detail.get("source")),
        "audit_log_user_agent_matches": detail.get("agent") == AGENT,
        "audit_log_region_matches": row["node"] == host["id"] and bool(host["location"]["site"]),
        "audit_log_event_source_matches": row["kind"] == "asked",
        "audit_log_trail_logging_enabled": verified["intact"] and verified["rows"] > 0,
        "audit_log_retention_at_least_30_days": first == 1 and stays,
    }
    return {"row": row, "tests": {name: {"passed": bool(held)} for name, held in passed.items()}}


STEPS = {
    "least_privilege_policy": least_privilege_policy,
    "audit_logging_test": audit_logging_test,
}
