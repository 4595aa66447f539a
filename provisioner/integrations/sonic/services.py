"""Time servers, syslog servers and logins of SONiC: tables of CONFIG_DB, and patches of them.

Sources: sonic-buildimage, src/sonic-yang-models/yang-models: sonic-ntp.yang (NTP_SERVER),
sonic-syslog.yang (SYSLOG_SERVER), sonic-system-tacacs.yang (TACPLUS_SERVER: the server with the
higher priority is asked first, 1 to 64; TACPLUS: passkey), sonic-system-aaa.yang (AAA:
authentication, login). The key of TACACS+ servers is never sent: `config apply-patch` writes each
patch into the switch's log (sonic-utilities, generic_config_updater/generic_updater.py,
`log_notice(f"Patch: {patch}")`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.integrations.sonic import acl_rows
from provisioner.model.outcome import Reason
from provisioner.model.switch import SwitchServices
from provisioner.ports.switch import ServiceChange, SwitchRefused

Tree = dict[str, Any]
SERVERS_MAX = 64  # of one table that are looked at
NTP = "NTP_SERVER"
SYSLOG = "SYSLOG_SERVER"
TACACS = "TACPLUS_SERVER"
_LOGINS = {"tacacs+": "tacacs"}  # SONiC's name -> ours
_OWN_NAMES = {ours: theirs for theirs, ours in _LOGINS.items()}


def read_services(tables: Mapping[str, Any]) -> SwitchServices:
    """Return the services of a CONFIG_DB; rows of another form show none."""
    servers = _rows(tables, TACACS)
    asked = sorted(servers, key=lambda name: (-_number(servers[name].get("priority")), name))
    login = _rows(tables, "AAA").get("authentication", {}).get("login", "local")
    names = str(login)[:100].split(",")
    return SwitchServices(
        ntp=tuple(sorted(_rows(tables, NTP))[:SERVERS_MAX]),
        syslog=tuple(sorted(_rows(tables, SYSLOG))[:SERVERS_MAX]),
        tacacs=tuple(asked[:SERVERS_MAX]),
        logins=tuple(_LOGINS.get(name.strip(), name.strip()) for name in names),
        tacacs_keyed=_has_keys(tables, tuple(servers)),
    )


def plan_services(tables: Mapping[str, Any], change: ServiceChange) -> list[Tree]:
    """Return the steps that make a change. Raises `SwitchRefused` for TACACS+ without a key."""
    runs = read_services(tables)
    if change.tacacs and not _has_keys(tables, change.tacacs):
        raise SwitchRefused(
            Reason.NOT_OFFERED,
            "no key of TACACS+ is stored on this switch, and a SONiC switch writes each patch into "
            "its log: store it on the switch itself (`config tacacs passkey`)",
        )
    vrf: Tree = {"vrf": "mgmt"} if _has_management_vrf(tables) else {}
    steps: list[Tree] = []
    if change.ntp is not None and set(change.ntp) != set(runs.ntp):
        steps += _exchange(tables, NTP, {name: {} for name in change.ntp})
    if change.syslog is not None and set(change.syslog) != set(runs.syslog):
        steps += _exchange(tables, SYSLOG, {name: dict(vrf) for name in change.syslog})
    if change.tacacs is not None and change.tacacs != runs.tacacs:
        ranks = {
            name: {"priority": str(len(change.tacacs) - rank), **vrf}
            for rank, name in enumerate(change.tacacs)
        }
        steps += _exchange(tables, TACACS, ranks, replaced=True)
    if change.logins is not None and change.logins != runs.logins:
        login = ",".join(_OWN_NAMES.get(name, name) for name in change.logins)
        step: Tree
        if "authentication" in _rows(tables, "AAA"):
            step = {"op": "add", "path": "/AAA/authentication/login", "value": login}
        elif _rows(tables, "AAA"):
            step = {"op": "add", "path": "/AAA/authentication", "value": {"login": login}}
        else:
            step = {"op": "add", "path": "/AAA", "value": {"authentication": {"login": login}}}
        steps.append(step)
    return steps


def _exchange(
    tables: Mapping[str, Any], table: str, rows: Tree, *, replaced: bool = False
) -> list[Tree]:
    """Return the steps to these rows; one that stays keeps its other fields, and its key.

    A patch that leaves an empty table is refused, so the last rows go with their table.
    """
    held = _rows(tables, table)
    if not rows:
        return [{"op": "remove", "path": f"/{table}"}] if held else []
    if not held:
        return [{"op": "add", "path": f"/{table}", "value": rows}]
    steps: list[Tree] = []
    for name, row in rows.items():
        path = f"/{table}/{acl_rows.escape(name)}"
        if name not in held:
            steps.append({"op": "add", "path": path, "value": row})
        elif replaced and "priority" in row:
            steps.append({"op": "add", "path": f"{path}/priority", "value": row["priority"]})
    gone = [name for name in held if name not in rows]
    return steps + [{"op": "remove", "path": f"/{table}/{acl_rows.escape(n)}"} for n in gone]


def _has_keys(tables: Mapping[str, Any], servers: Sequence[str]) -> bool:
    """Return whether each of these servers has a key: one of its own, or the shared one."""
    held = _rows(tables, TACACS)
    shared = _rows(tables, "TACPLUS").get("global", {}).get("passkey")
    return bool(shared) or (
        bool(servers) and all(held.get(name, {}).get("passkey") for name in servers)
    )


def _has_management_vrf(tables: Mapping[str, Any]) -> bool:
    enabled = _rows(tables, "MGMT_VRF_CONFIG").get("vrf_global", {}).get("mgmtVrfEnabled")
    return str(enabled).lower() == "true"


def _number(value: Any) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 1


def _rows(tables: Mapping[str, Any], table: str) -> dict[str, Tree]:
    rows = tables.get(table)
    listed = rows.items() if isinstance(rows, dict) else ()
    return {str(name): row if isinstance(row, dict) else {} for name, row in listed}
