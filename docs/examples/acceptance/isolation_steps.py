"""Steps about what separates tenants, about the management network, and about renewed keys."""

from __future__ import annotations

import os
import socket
import ssl
from ipaddress import ip_address, ip_interface
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from control_steps import create_key, open_as, revoke_key
from daemon_client import Daemon, RefusedError, list_hosts, mark, wait_for
from second_steps import open_second
from telemetry_steps import PORT_METRICS, judge_metrics

WINDOW_DAYS = 60
RENEW_S = 120.0  # the daemon looks at its files every half minute
DAY_S = 86400
Answer = dict[str, Any]


def _list_tenants_hosts(daemon: Daemon) -> dict[str, list[Answer]]:
    """Return the hosts that serve each tenant."""
    hosts: dict[str, list[Answer]] = {}
    for host in list_hosts(daemon, "kind=host and state=released"):
        if host["tenant"]:
            hosts.setdefault(host["tenant"], []).append(host)
    if len(hosts) < 2:
        raise RefusedError(404, "the caller sees no hosts of two tenants")
    return dict(sorted(hosts.items()))


def _is_shut(caller: Daemon, verb: str, path: str, body: Answer | None = None) -> bool:
    """Return whether a caller gets nothing from a path: it is hidden, or not permitted."""
    try:
        caller.get(path) if verb == "GET" else caller.change(verb, path, body)
    except RefusedError as error:
        return error.status in (403, 404)
    return False


def tenant_isolation_test(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Let one tenant's key try the other one's node: its lines, reports, power and drives."""
    (one, own), (two, others) = list(_list_tenants_hosts(daemon).items())[:2]
    mine = f"/nodes/{own[0]['id']}"
    foreign = f"/nodes/{others[0]['id']}"
    audit = daemon.get("/fabric/audit")
    vrfs = {daemon.get(f"/tenants/{name}")["tenant"]["vrf"] for name in (one, two)}
    proofs = [daemon.get(f"/nodes/{host['id']}/proof")["proof"] for host in own]
    placed = {port["vrf"] for proof in proofs for port in proof["placements"]}
    apart = not audit["steps"] and not audit["blockers"] and len(vrfs) == 2
    role = os.environ.get("ACCEPTANCE_ROLE", "tenant")  # another one is for the counter-proof
    key = create_key(daemon, "acceptance-neighbour", role, one if role == "tenant" else "")
    caller = open_as(key["access_key_id"], "tenant_isolation_test")
    # the key is good: it reads its own node
    reads = caller.find(mine) is not None and caller.find(f"{mine}/report") is not None
    data = [_is_shut(caller, "GET", f"{foreign}/{part}") for part in ("console", "report")]
    compute = [
        _is_shut(caller, "GET", foreign),
        _is_shut(caller, "POST", f"{foreign}/power?dry_run=true", {"action": "off"}),
    ]
    storage = [
        _is_shut(caller, "GET", f"{foreign}/inventory"),
        _is_shut(caller, "POST", f"{foreign}/reclaim?dry_run=true", {}),
    ]
    revoke_key(daemon, key["access_key_id"])
    tests = {
        "network_isolated": apart and placed == {own[0]["vrf"]},
        "data_isolated": reads and all(data),
        "compute_isolated": reads and all(compute),
        "storage_isolated": reads and all(storage),
    }
    return {
        "tenant_a_id": one,
        "tenant_b_id": two,
        "tests": {name: {"passed": bool(held)} for name, held in tests.items()},
    }


def query_cross_tenant_probes(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the releases' probes from hosts of one tenant to links of another tenant's hosts."""
    hosts = _list_tenants_hosts(daemon)
    owner = {
        str(address): tenant
        for tenant, own in hosts.items()
        for host in own
        for port in host["ports"]
        if port["rail"] >= 0
        for address in ip_interface(port["address"]).network
    }
    rows = []
    for tenant, own in hosts.items():
        for host in own:
            for row in daemon.get(f"/nodes/{host['id']}/proof")["proof"]["gate"]:
                if row["check"] not in ("shut_out", "shut_in") or " to " not in row["subject"]:
                    continue
                ends = [w for w in row["subject"].split() if _is_address(w)]
                tenants = {owner.get(end, tenant) for end in ends}
                if len(tenants) > 1:
                    rows.append(row)
    silent = bool(rows) and all(row["verdict"] == "pass" for row in rows)
    return {"probes": len(rows), **mark(probed=len(rows) > 1, silent=silent)}


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def management_network_telemetry(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the counters of the switches' own ports in the management network."""
    switches = daemon.list_all("/switches")
    if not switches:
        raise RefusedError(404, "the caller sees no switch")
    values: dict[str, list[int]] = {}
    gaps = []
    latest = ""
    for switch in switches:
        read = daemon.get(f"/nodes/{switch['id']}/ports")
        gaps += read["gaps"]
        latest = max(latest, read["read_at"])
        for port in read["ports"]:
            for name in PORT_METRICS:
                if port[name] is not None:
                    values.setdefault(name, []).append(port[name])
    facts = {
        "sample_count": sum(map(len, values.values())),
        "latest_timestamp": latest,
        "switches_checked": len(switches),
        "gaps": gaps,
    }
    return judge_metrics("/v1/nodes/SWITCH/ports", "plane_metrics_present", list(values), facts)


def _read_certificate(address: str, authority: str) -> Answer:
    """Return the certificate that a server shows in a handshake that trusts this authority."""
    parts = urlsplit(address)
    context = ssl.create_default_context(cafile=authority)
    with (
        socket.create_connection((parts.hostname or "", parts.port or 443), 10) as connection,
        context.wrap_socket(connection, server_hostname=parts.hostname) as secured,
    ):
        return dict(secured.getpeercert() or {})


def _count_days(certificate: Answer) -> float:
    ends = ssl.cert_time_to_seconds(certificate["notAfter"])
    return (ends - ssl.cert_time_to_seconds(certificate["notBefore"])) / DAY_S


def cert_rotation_test(_daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Renew the certificate of the second daemon, and see it served without a restart."""
    from certificate_issue import DAYS, issue

    second = open_second("cert_rotation_test")
    authority = os.environ["ACCEPTANCE_SECOND_CA"]
    before = _read_certificate(second.url, authority)
    days = float(os.environ.get("ACCEPTANCE_CERTIFICATE_DAYS", DAYS))
    file = Path(os.environ["ACCEPTANCE_SECOND_CERTIFICATE"])
    serial = issue(Path(os.environ["ACCEPTANCE_SECOND_DATA"]), file, days)

    def read() -> Answer | None:
        shown = _read_certificate(second.url, authority)
        return shown if int(shown["serialNumber"], 16) == serial else None

    after = wait_for(read, RENEW_S, "the renewed certificate is served")
    inspected = [before, after]
    wrong = [c for c in inspected if _count_days(c) > WINDOW_DAYS]
    tests = {
        "cert_inventory_non_empty": all(inspected),
        "no_certs_out_of_policy": not wrong,
        "rotation_evidence_present": before["serialNumber"] != after["serialNumber"],
    }
    return {
        "rotation_window_days": WINDOW_DAYS,
        "certs_inspected": len(inspected),
        "out_of_policy": len(wrong),
        "tests": {name: {"passed": bool(held)} for name, held in tests.items()},
    }


STEPS = {
    "tenant_isolation_test": tenant_isolation_test,
    "query_cross_tenant_probes": query_cross_tenant_probes,
    "management_network_telemetry": management_network_telemetry,
    "cert_rotation_test": cert_rotation_test,
}
