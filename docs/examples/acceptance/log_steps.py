"""Steps about system logs of hosts and switches that reached the daemon by syslog."""

from __future__ import annotations

from typing import Any

from daemon_client import Daemon, RefusedError, read_age_s, wait_for

KERNEL = "kern"
MARK = "-- MARK --"  # of rsyslog itself: it lives, and nothing happened
RECENT_S = 6 * 3600.0  # of the demonstration's clock, which runs fast
ARRIVES_S = 60.0
LINES = 2000
Answer = dict[str, Any]
Lines = dict[str, list[Answer]]


def _read_lines(daemon: Daemon, kind: str, **query: str) -> Lines:
    """Return the stored lines of each node of a kind that has some, without marks."""
    nodes = daemon.list_all("/nodes", where=f"kind={kind}")
    if not nodes:
        raise RefusedError(404, f"the caller sees no {kind}")
    lines = {}
    for node in nodes:
        page = daemon.get(f"/nodes/{node['id']}/syslog", limit=LINES, **query)
        own = [line for line in page["lines"] if line["text"] != MARK]
        if own:
            lines[node["id"]] = own
    return lines


def _find_latest(lines: Lines) -> str:
    return max((line["at"] for own in lines.values() for line in own), default="")


def _judge(lines: Lines, names: tuple[str, str, str], counted: str, *, good: bool) -> Answer:
    """Return the results of a test of logs in the suite's form."""
    endpoint, source, entries = names
    probes = {
        "log_source": "/v1/nodes/NODE/syslog" if lines else "",
        counted: len(lines),
        "entry_count": sum(map(len, lines.values())),
        "latest_timestamp": _find_latest(lines),
        "programs": sorted({line["program"] for own in lines.values() for line in own}),
    }
    return {
        "tests": {
            endpoint: {"passed": True, "probes": probes},
            source: {"passed": bool(lines)},
            entries: {"passed": good},
        }
    }


def _count_recent(daemon: Daemon, kind: str) -> bool:
    """Return whether the newest entry of a kind of nodes is recent, a mark of its rsyslog too."""
    newest = ""
    for node in daemon.list_all("/nodes", where=f"kind={kind}"):
        page = daemon.get(f"/nodes/{node['id']}/syslog", limit=1)
        newest = max([newest, *(line["at"] for line in page["lines"])])
    age_s = read_age_s(daemon, newest or None)
    return age_s is not None and age_s <= RECENT_S


def general_switch_logs(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read all messages of the switches."""
    lines = _read_lines(daemon, "switch")
    names = ("log_endpoint_reachable", "switch_log_source_present", "entries_queryable")
    return _judge(lines, names, "switches_checked", good=bool(lines))


def switch_kernel_logs(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the messages of the switches' kernels."""
    lines = _read_lines(daemon, "switch", facility=KERNEL)
    names = ("log_endpoint_reachable", "kernel_log_source_present", "entries_queryable")
    return _judge(lines, names, "switches_checked", good=bool(lines))


def switch_syslogs(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the messages of the switches' programs, and whether any came of late."""
    lines = {
        node: kept
        for node, own in _read_lines(daemon, "switch").items()
        if (kept := [line for line in own if line["facility"] != KERNEL])
    }
    names = ("syslog_endpoint_reachable", "switch_syslog_source_present", "entries_recent")
    return _judge(lines, names, "switches_checked", good=_count_recent(daemon, "switch"))


def host_syslogs(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the messages of the hosts, and whether any came of late."""
    lines = _read_lines(daemon, "host")
    names = ("syslog_endpoint_reachable", "host_log_source_present", "entries_recent")
    return _judge(lines, names, "hosts_checked", good=_count_recent(daemon, "host"))


def fabric_manager_logs(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Read the messages of the Fabric Manager of the hosts."""
    lines = _read_lines(daemon, "host", program="nv-fabricmanager")
    names = ("log_endpoint_reachable", "log_source_present", "log_entries_queryable")
    return _judge(lines, names, "log_endpoints_checked", good=bool(lines))


def wait_for_logs(daemon: Daemon) -> None:
    """Wait until a switch and a host of the demonstration have sent something."""

    def read() -> bool:
        return all(_read_lines(daemon, kind) for kind in ("switch", "host"))

    wait_for(read, ARRIVES_S, "logs of a switch and of a host are stored")


STEPS = {
    "general_switch_logs": general_switch_logs,
    "switch_kernel_logs": switch_kernel_logs,
    "switch_syslogs": switch_syslogs,
    "host_syslogs": host_syslogs,
    "fabric_manager_logs": fabric_manager_logs,
}
