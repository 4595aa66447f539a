"""The filter between hosts in CONFIG_DB's form: one ingress ACL of type L3, and its rules.

source: sonic-net/sonic-buildimage, src/sonic-yang-models/yang-templates/sonic-acl.yang.j2 (tables
ACL_TABLE with `type`, `stage`, `policy_desc`, `ports`; ACL_RULE with the key "TABLE|RULE",
`PRIORITY` 0 to 999999, `PACKET_ACTION`, `SRC_IP`, `DST_IP`, `IP_PROTOCOL` 1 to 143). The rule with
the highest PRIORITY decides, so numbers are turned around; a packet that no rule matches is
forwarded.
source: sonic-net/SONiC, doc/acl, "Enhancements on show acl commands" (STATE_DB: ACL_TABLE_TABLE|T
and ACL_RULE_TABLE|T|R, each with `status` "Active" once the ASIC has it). Releases before 202305 do
not write these: then the filter counts as not in force.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provisioner.model.host_filter import (
    DENIES_FROM,
    PERMITS_FROM,
    FilterRule,
    HostFilter,
    SeenFilter,
    list_differing_rules,
)
from provisioner.model.outcome import Reason
from provisioner.model.switch import PortChange
from provisioner.ports.switch import SwitchRefused

NAME = "provisioner_apart4"
TABLE_TYPE = "L3"
STAGE = "ingress"
TCP = "6"  # IP protocol number
# acl-loader of sonic-utilities gives rules priorities below 10,000, which every ASIC takes
PRIORITY_MAX = 9999
PERMITS_PRIORITY = 4999
DENIES_PRIORITY = 1999
RULES_MAX = 1900  # of permits, and of denies

STATUS = (
    f"for k in $(sonic-db-cli STATE_DB KEYS 'ACL_*_TABLE|{NAME}*'); do "
    'echo "$k $(sonic-db-cli STATE_DB HGET "$k" status)"; done; echo read'
)

_RULE_KEY = re.compile(rf"{NAME}\|RULE_([1-9][0-9]{{0,5}})")
_ACTIONS = {"permit": "FORWARD", "deny": "DROP"}

Tree = dict[str, Any]


def escape(key: str) -> str:
    """Return a key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def pick_tables(tables: Mapping[str, Any]) -> tuple[Any, Tree]:
    """Return the rows of this filter in a CONFIG_DB."""
    rules = {k: v for k, v in tables.get("ACL_RULE", {}).items() if k.startswith(f"{NAME}|")}
    return tables.get("ACL_TABLE", {}).get(NAME), rules


def list_ports(tables: Mapping[str, Any]) -> frozenset[str]:
    """Return the ports that the filter is bound to."""
    return list_bound_ports(pick_tables(tables)[0])


def list_bound_ports(row: Any) -> frozenset[str]:
    """Return the ports of one row of ACL_TABLE; a list may be written as text with commas."""
    ports = row.get("ports") if isinstance(row, dict) else None
    listed = ports.split(",") if isinstance(ports, str) else ports
    named = listed if isinstance(listed, list) else []
    return frozenset(port for port in named if isinstance(port, str) and port)


def read_filter(tables: Mapping[str, Any]) -> SeenFilter | None:
    """Return the filter of a CONFIG_DB; None if there is none."""
    table, rows = pick_tables(tables)
    if table is None and not rows:
        return None
    typed = (
        isinstance(table, dict)
        and str(table.get("type", "")).upper() == TABLE_TYPE
        and str(table.get("stage", STAGE)).lower() == STAGE
    )
    rules: dict[int, FilterRule | None] = {}
    for place, (key, row) in enumerate(rows.items(), 1):
        match = _RULE_KEY.fullmatch(key)
        number = int(match[1]) if match else -place
        rules[number] = _read_rule(number, row) if match else None
    return SeenFilter(rules, typed=typed)


def read_active(text: str, configured: SeenFilter | None) -> SeenFilter | None:
    """Return the rules that the ASIC has, by STATE_DB; None if the table is not active.

    Raises `ValueError` for an output that is not whole.
    """
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines or lines.pop().strip() != "read":
        raise ValueError("the listing of STATE_DB is not whole")
    active = {
        key
        for key, _, status in (line.rpartition(" ") for line in lines)
        if status.strip() == "Active"
    }
    if f"ACL_TABLE_TABLE|{NAME}" not in active or configured is None:
        return None
    rules = {
        number: rule
        for number, rule in configured.rules.items()
        if f"ACL_RULE_TABLE|{NAME}|RULE_{number}" in active
    }
    return SeenFilter(rules, typed=configured.typed)


def plan_steps(tables: Mapping[str, Any], change: PortChange) -> list[Tree]:
    """Return the steps of a patch that bind the filter, free ports of it, and write its rules."""
    bound = list_ports(tables)
    ports = set(bound)
    for move in change.moves:
        if move.apart:
            ports.add(move.interface)
        elif move.apart is False:
            ports.discard(move.interface)
    steps: list[Tree] = []
    if any(move.apart for move in change.moves):
        steps += _plan_rules(tables, change.host_filter or {}, with_doors=change.with_doors)
    table, _ = pick_tables(tables)
    typed = (seen := read_filter(tables)) is not None and seen.typed
    if ports and (table is None or not typed):
        row = {
            "policy_desc": "hosts apart",
            "type": TABLE_TYPE,
            "stage": STAGE,
            "ports": sorted(ports),
        }
        steps.insert(0, _add(tables, "ACL_TABLE", NAME, row))
    elif table is not None and ports != bound:
        path = f"/ACL_TABLE/{NAME}/ports"
        steps.append({"op": "add", "path": path, "value": sorted(ports)})
    return steps


def _plan_rules(tables: Mapping[str, Any], wanted: HostFilter, *, with_doors: bool) -> list[Tree]:
    held = read_filter(tables)
    _, rows = pick_tables(tables)
    steps: list[Tree] = []
    table_is_there = bool(tables.get("ACL_RULE"))
    missing: Tree = {}
    for number in list_differing_rules(held, wanted, with_doors=with_doors):
        key = f"{NAME}|RULE_{number}"
        if number in wanted:
            missing[key] = encode_rule(number, wanted[number])
        elif key in rows:
            steps.append({"op": "remove", "path": f"/ACL_RULE/{escape(key)}"})
    strange = [key for key in rows if not _RULE_KEY.fullmatch(key)]
    steps += [{"op": "remove", "path": f"/ACL_RULE/{escape(key)}"} for key in strange]
    if missing and not table_is_there:
        return [{"op": "add", "path": "/ACL_RULE", "value": missing}]
    added = [
        {"op": "add", "path": f"/ACL_RULE/{escape(key)}", "value": row}
        for key, row in missing.items()
    ]
    return added + steps


def encode_rule(number: int, rule: FilterRule) -> Tree:
    """Return the row of one rule."""
    row: Tree = {"PRIORITY": str(_rank(number)), "PACKET_ACTION": _ACTIONS[rule.action]}
    if rule.source:
        row["SRC_IP"] = rule.source
    if rule.target:
        row["DST_IP"] = rule.target
    if rule.protocol == "tcp":
        row["IP_PROTOCOL"] = TCP
    return row


def _rank(number: int) -> int:
    """Return the PRIORITY of a rule: the lowest number has the highest."""
    if number < PERMITS_FROM:
        return PRIORITY_MAX - number
    first, priority = (
        (PERMITS_FROM, PERMITS_PRIORITY) if number < DENIES_FROM else (DENIES_FROM, DENIES_PRIORITY)
    )
    if number - first >= RULES_MAX:
        detail = f"more than {RULES_MAX} networks of one kind are no rules of an ACL here"
        raise SwitchRefused(Reason.NOT_OFFERED, detail)
    return priority - (number - first)


def _read_rule(number: int, row: Any) -> FilterRule | None:
    """Return a rule; None if it has another priority, or matches by anything else."""
    if not isinstance(row, dict):
        return None
    fields = {str(key): str(value) for key, value in row.items()}
    action = {v: k for k, v in _ACTIONS.items()}.get(fields.pop("PACKET_ACTION", "").upper())
    protocol = fields.pop("IP_PROTOCOL", "")
    source = fields.pop("SRC_IP", "")
    target = fields.pop("DST_IP", "")
    priority = fields.pop("PRIORITY", "")
    if action is None or fields or protocol not in ("", TCP):
        return None
    try:
        if priority != str(_rank(number)):
            return None
    except SwitchRefused:
        return None
    return FilterRule(action, source, target, "tcp" if protocol else "")


def _add(tables: Mapping[str, Any], table: str, key: str, row: Tree) -> Tree:
    if not tables.get(table):
        return {"op": "add", "path": f"/{table}", "value": {key: row}}
    return {"op": "add", "path": f"/{table}/{escape(key)}", "value": row}
