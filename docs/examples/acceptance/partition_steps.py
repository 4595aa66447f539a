"""Steps about InfiniBand: tenants' partitions, and the keys of the subnet manager."""

from __future__ import annotations

from typing import Any

from daemon_client import Daemon, RefusedError

Answer = dict[str, Any]
UNREAD = "UFM's REST API does not show it"
# of the suite's keys, those that no answer of UFM has
UNSEEN = (
    *("aggregation_management_key", "vendor_specific_key", "congestion_control_key"),
    *("node2node_key", "manager2node_key"),
)


def _read(daemon: Daemon) -> Answer:
    """Return the partitions as UFM lists them. Raise RefusedError where it does not answer."""
    listed: Answer = daemon.get("/fabric/partitions")
    if listed["blockers"]:
        raise RefusedError(0, listed["blockers"][0]["detail"])
    return listed


def query_ib_tenant_isolation(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return each partition with the tenant that the daemon gave it to."""
    phases = {t["name"]: t["phase"] for t in daemon.list_all("/tenants")}
    rows = [
        {
            "name": row["vrf"] or row["pkey"],
            "partition_key": row["pkey"],
            "tenant_id": row["tenant"],
            "status": phases.get(row["tenant"], "unknown"),
            "ports": row["ports"],
        }
        for row in _read(daemon)["items"]
    ]
    return {"partitions_checked": len(rows), "partitions": rows}


def query_ib_keys(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return which keys are set: P_Keys of tenants, and the subnet manager's M_Key."""
    listed = _read(daemon)
    given = sum(1 for row in listed["items"] if row["tenant"])
    keys = listed["keys"]
    return {
        "partitions_with_pkey": given,
        "keys": {
            "p_key": {"configured": given > 0, "source": "ufm", "detail": f"{given} partitions"},
            "management_key": {
                "configured": keys["management"] and keys["per_port"],
                "source": "ufm",
                "detail": f"set: {keys['management']}, for each port: {keys['per_port']}",
            },
            **{name: {"configured": None, "detail": UNREAD} for name in UNSEEN},
        },
    }


STEPS = {
    "query_ib_tenant_isolation": query_ib_tenant_isolation,
    "query_ib_keys": query_ib_keys,
}
