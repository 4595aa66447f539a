"""The command of each route, and the description that the command line loads.

The command line is a client: it reads the routes from a file that is generated from the table here,
so that it starts without loading a server. `python -m pytest tests/cli/test_surface.py` holds the
two equal; with RECORD_GOLDEN=1 it writes the file anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from provisioner.api.openapi import WORDS
from provisioner.api.route import Dry, Route

# ------------------------------------------------------------------------------
# Words of the command line that the routes do not have: options, and names for examples.


# fields whose text is in a file, and the options that name it
FILES = {
    "thresholds": "--thresholds",
    "ca": "--ca-file",
    "expected": "--file",
    "secret": "--secret-file",
    "user_data": "--user-data-file",
}
# options that are repeated have the name of one of their values
SINGULAR = {
    "kinds": "--kind",
    "nodes": "--node",
    "cards": "--card",
    "tags": "--tag",
    "networks": "--range",
    "racks": "--rack",
    "logins": "--login",
    "releases": "--release",
    "tenants": "--for-tenant",
}
EXAMPLES: Mapping[str, str] = {
    "node": "su0-n03",
    "switch": "leaf-su0-r0",
    "tenant": "red",
    "certificate": "su0-n03",
    "campaign": "c0001",
    "case": "su0-n03-c0001",
    "rack": "su0-rack1",
    "release": "spectrum-x-1.2.0",
    "newer": "spectrum-x-1.3.0",
    "operation": "r12",
    "request": "r12",
    "token": "3f2a9c01",
    "session": "81c2d07e",
    "view_name": "mine",
    "webhook": "pager",
    "action": "3f2a9c01de45",
    "bmc": "host",
    "pin": "rack:su0-rack1",
    "key": "laptop",
    "policy_name": "bmc-firmware",
    "matrix_file": "1",
    "image_name": "ubuntu-22.04-hgx-7.qcow2",
}


SCALARS: Mapping[type, str] = {str: "text", int: "integer", float: "number", bool: "flag"}
PAGED = ("limit", "cursor", "where")  # every list command has its own options for these


@dataclass(frozen=True)
class Command:
    """A route as a command. `words`: fields of the body that follow the path's as arguments."""

    name: str  # "node reclaim"
    words: tuple[str, ...] = ()
    destructive: bool = False  # it shows its effects, and asks
    # the arguments after the name; "": built from the path and the route's example
    example: str = ""


C = Command
COMMANDS: Mapping[str, Command] = {
    "list_nodes": C("node list", example="--where 'state=quarantined and rack=su0-*' --sort state"),
    "show_node": C("node show"),
    "retry_node": C("node retry"),
    "retry_blocked_nodes": C("node retry-group", ("reason", "unblock")),
    "reclaim_node": C("node reclaim", destructive=True, example="su0-n03 --for-repair"),
    "detach_node": C(
        "node detach", destructive=True, example="su0-n03 --reason 'back to Ironic' --dry-run"
    ),
    "show_node_power": C("node power-state"),
    "switch_node_power": C(
        "node power", ("action",), destructive=True, example="su0-n03 cycle --dry-run"
    ),
    "show_bmc_logs": C("node logs", example="su0-n03 --bmc host"),
    "show_bmc_metrics": C("node metrics"),
    "show_links": C("node links", example="su0-n03 --part GPU_SXM_1"),
    "count_ports": C("node ports"),
    "follow_bmc": C("node follow-bmc", example="su0-n03 --url https://10.0.1.77 --dry-run"),
    "set_bmc_time": C("node set-time", example="su0-n03 --dry-run"),
    "reset_node_gpus": C("node reset-gpu", example="su0-n03 --dry-run"),
    "show_node_tags": C("node tags"),
    "replace_node_tags": C("node tag", example="su0-n03 --tag loan --tag team:vision"),
    "summarise": C("node summary"),
    "show_parts": C("node parts"),
    "show_plan": C("node plan"),
    "show_plan_requests": C("node plan-requests"),
    "show_report": C("node report"),
    "list_actions": C("node actions", example="su0-n03 --limit 20"),
    "show_action": C("node action"),
    "explain_node": C("explain"),
    "show_inventory": C("node inventory", example="su0-n03 -o yaml"),
    "show_console": C("node console", example="su0-n03 --follow"),
    "list_syslog": C("node syslog", example="su0-leaf0 --facility kern --follow"),
    "show_erasure": C("node erasure"),
    "show_node_attestation": C("node attestation", example="su0-n03 --evidence -o json"),
    "show_proof": C("node proof"),
    "show_libraries": C("node libraries"),
    "rejudge_nodes": C("node rejudge", ("node",), example="su0-n03 --thresholds new.yaml"),
    "take_node_ports": C("node take", destructive=True),
    "show_node_certificate": C("node certificate"),
    "list_switches": C("switch list"),
    "show_switch": C("switch show"),
    "show_home": C("node waiting"),
    "search": C("search", ("q",), example="MT2233X01234"),
    "show_node_timeline": C("node timeline"),
    "show_campaign_course": C("campaign course"),
    "list_drift": C("drift", example="--select 'rack=su0-*'"),
    "list_selection_fields": C("node fields", example="--where 'name=driver*'"),
    "list_debt": C("debt"),
    "list_views": C("view list"),
    "show_view": C("view show", example="'broken in su0'"),
    "save_view": C(
        "view save", example="'broken in su0' --address '#/nodes?where=rack%3Dsu0-*' --shared"
    ),
    "delete_view": C("view delete", example="'broken in su0'"),
    "show_usage": C("usage show", example="--begins-at 2026-11-01T00:00:00Z --by node"),
    "show_usage_course": C("usage course", example="--tenant red --steps 30"),
    "export_usage": C(
        "usage focus", example="--price 2.10 --currency EUR --provider 'Example GmbH'"
    ),
    "sign_usage": C("usage statement", example="red --out red.json"),
    "show_log": C("log head", example="--out checkpoint.txt"),
    "export_log": C("log export", example="su0-n03 --since 1024 --out su0-n03.log.json"),
    "list_versions": C("versions", example="--select 'rack=su0-*' --where 'standing=differs'"),
    "show_cohorts": C("cohort show"),
    "list_suspects": C("cohort suspects", example="--days 30"),
    "compare_cohorts": C("cohort compare", example="--before 3f2a9c --after 81c2d0"),
    "list_tenants": C("tenant list"),
    "show_tenant": C("tenant show"),
    "merge_tenant": C("tenant apply", example="red --nodes 4 --dry-run"),
    "shrink_tenant": C("tenant shrink", destructive=True, example="red --to 2 --node su0-n03"),
    "settle_tenant": C("tenant settle"),
    "audit_tenants": C("tenant audit"),
    "list_tenant_keys": C("tenant keys"),
    "show_tenant_key": C("tenant show-key"),
    "set_tenant_key": C(
        "tenant set-key", example="red laptop --public-key 'ssh-ed25519 AAAA... ada@laptop'"
    ),
    "remove_tenant_key": C("tenant remove-key"),
    "show_user_data": C("tenant user-data"),
    "set_user_data": C("tenant set-user-data", example="red --user-data-file first-boot.yaml"),
    "remove_user_data": C("tenant remove-user-data", destructive=True),
    "show_tenant_filters": C("tenant filters"),
    "check_storage": C("storage check"),
    "show_storage": C("storage show"),
    "show_placement": C("tenant places"),
    "list_partitions": C("tenant partitions"),
    "delete_tenant": C("tenant delete", destructive=True),
    "list_certificates": C("certificate list", example="--node su0-n03"),
    "show_certificate": C("certificate show"),
    "show_attestation": C("certificate export", example="su0-n03 --out su0-n03.json"),
    "revoke_certificate": C(
        "certificate revoke", destructive=True, example="su0-n03 --reason 'the wrong cable'"
    ),
    "list_revocations": C("certificate revocations", example="--out revocations.json"),
    "list_keys": C("certificate keys", example="--pem"),
    "rotate_key": C("certificate rotate", destructive=True, example="--compromised"),
    "list_campaigns": C("campaign list"),
    "create_campaign": C(
        "campaign create",
        example="--release spectrum-x-1.3.0 --select kind=host --policy slow.yaml",
    ),
    "show_campaign": C("campaign show"),
    "preview_campaign": C("campaign preview"),
    "preview_campaign_rollback": C("campaign preview-rollback"),
    "start_campaign": C("campaign start", example="c0001 --confirm 'host.bios 2.1'"),
    "pause_campaign": C("campaign pause", example="c0001 --reason 'the fabric is busy'"),
    "resume_campaign": C("campaign resume"),
    "abort_campaign": C("campaign abort", destructive=True, example="c0001 --reason 'later'"),
    "rollback_campaign": C("campaign rollback", destructive=True),
    "show_campaign_report": C("campaign report"),
    "rehearse_campaign": C("campaign rehearse", example="c0001 --nodes 4"),
    "accept_campaign_metric": C("campaign accept", ("metric",), example="c0001 nccl_all_reduce"),
    "defer_campaign_node": C("campaign defer", example="c0001 su0-n03 --until 2026-12-24T18:00"),
    "skip_campaign_node": C("campaign skip", example="c0001 su0-n03 --reason 'it is on loan'"),
    "again_campaign_node": C("campaign again"),
    "list_pins": C("pin list"),
    "set_pin": C(
        "pin set",
        ("scope", "name"),
        example="rack su0-rack1 --release spectrum-x-1.2.0 --reason 'a pilot' --until 2026-12-24",
    ),
    "show_pin": C("pin show"),
    "remove_pin": C("pin remove", ("scope", "name"), destructive=True, example="rack su0-rack1"),
    "list_hardware": C("hardware list", example="--limit 20"),
    "declare_hardware": C("hardware set", example="su0-n03 --file su0-n03.yaml --dry-run"),
    "show_hardware": C("hardware show", example="su0-n03 -o yaml"),
    "list_policies": C("policy list"),
    "show_policy": C("policy show", example="bmc-firmware -o yaml"),
    "put_policy": C("policy set", example="bmc-firmware --policy slow.yaml --note 'for BMCs'"),
    "delete_policy": C("policy delete", destructive=True),
    "list_cases": C("case list", example="--open --node su0-n03"),
    "show_case": C("case show"),
    "open_case": C("case open", example="su0-n03 --reason 'GPU 5 fell off the bus'"),
    "open_rack": C("case open-rack", destructive=True, example="su0-rack1 --reason 'a leak below'"),
    "accept_case": C("case accept"),
    "defer_case": C("case defer", example="su0-n03-c0001 --until 2026-12-24T18:00"),
    "returned_case": C("case returned", example="su0-n03-c0001 --work 'GPU_SXM_5 replaced'"),
    "replace_case": C("case replace", destructive=True),
    "retire_case": C("case retire", destructive=True, example="su0-n03-c0001 --why 'too old'"),
    "close_case": C("case close", example="su0-n03-c0001 --why 'nothing was wrong'"),
    "rma_case": C("case rma", ("number",), example="su0-n03-c0001 RMA-4711"),
    "spare_case": C("case spare", example="su0-n03-c0001 --kind gpu --serial 1650000000042"),
    "tell_case": C("case tell"),
    "show_case_bundle": C("case bundle", example="su0-n03-c0001 --out case.tar.gz"),
    "list_notices": C("notice list", example="--kind failure"),
    "show_repairs": C("case report", example="--days 90"),
    "list_alerts": C("alert list", example="--node su0-n03"),
    "override_alert": C(
        "alert override", ("id",), example="su0-n03 FanFailed --hours 24 --why 'a fan is ordered'"
    ),
    "clear_alert": C("alert clear", ("id",), example="su0-n03 FanFailed --why 'it was replaced'"),
    "list_releases": C("release list"),
    "show_release": C("release show"),
    "show_moves": C("release compare"),
    "list_images": C("image list"),
    "show_image": C("image show"),
    "merge_image": C("image describe", ("note",), example="ubuntu-22.04-hgx-7.qcow2 'with DOCA 3'"),
    "delete_image": C("image remove", destructive=True),
    "show_matrix": C("overlay list"),
    "show_matrix_file": C("overlay show", example="1 -o yaml"),
    "reload_matrix": C("overlay reload", destructive=True),
    "list_artifacts": C("artifact list"),
    "show_health": C("health"),
    "show_me": C("whoami"),
    "list_operations": C("operation list", example="--status active"),
    "show_operation": C("operation show"),
    "list_requests": C("request list", example="--waiting"),
    "approve_request": C("request approve", example="r12 --note 'agreed with the tenant'"),
    "refuse_request": C("request refuse", example="r12 --note 'not this week'"),
    "list_events": C("event list", example="--node su0-n03 --limit 20"),
    "stream_events": C("event watch", example="--kind state"),
    "list_audit": C("audit list", example="--limit 20"),
    "show_audit_head": C("audit head"),
    "list_audit_exports": C("audit exports"),
    "archive_journal": C("audit archive", example="--older-than-days 90"),
    "prune_journal": C("audit prune", destructive=True, example="--dry-run"),
    "show_webhook": C("webhook show"),
    "list_webhooks": C("webhook list"),
    "list_dead_letters": C("webhook dead"),
    "add_webhook": C("webhook add", example="pager --url https://hooks.example/x --kind 'alert*'"),
    "merge_webhook": C("webhook set", example="pager --url https://hooks.example/y --dry-run"),
    "remove_webhook": C("webhook remove", destructive=True),
    "resend_dead_letters": C("webhook again", example="pager --seq 4711"),
    "drop_dead_letters": C("webhook drop", destructive=True, example="pager --seq 4711"),
    "pause_webhook": C("webhook pause", example="pager --why 'its server moves'"),
    "resume_webhook": C("webhook resume"),
    "rotate_webhook_secret": C("webhook rotate", example="pager --done"),
    "list_differences": C("recovery list"),
    "settle_difference": C(
        "recovery settle", ("subject", "word"), destructive=True, example="su0-n03 keep"
    ),
    "finish_recovery": C("recovery finish"),
    "list_agents": C("agents list"),
    "show_authority": C("agents ca", example="--kernel https://10.0.0.1:6385"),
    "show_mode": C("mode"),
    "list_observations": C("observation list"),
    "show_observation": C("observation show"),
    "list_strange_ports": C("observation ports"),
    "show_watch": C("watch status", ("node",)),
    "accept_clock": C("clock accept", destructive=True),
    "keep_factory_logins": C("case factory", example="--file expected.yaml"),
    "take_nodes_in": C(
        "intake", destructive=True, example="--file expected.yaml --range 10.0.0.0/24 --dry-run"
    ),
    "adopt_nodes": C("adopt", ("expected",), example="serving.yaml --dry-run"),
    "list_capabilities": C("capability list"),
    "show_capabilities": C("capability show"),
    "grant_capability": C(
        "capability grant",
        ("capability",),
        destructive=True,
        example="firmware --scope rack --name su0-rack1 --reason 'first rack'",
    ),
    "withdraw_capability": C(
        "capability withdraw",
        ("capability",),
        example="firmware --scope rack --name su0-rack1 --reason 'wave stopped'",
    ),
    "list_sessions": C("session list"),
    "end_other_session": C("session end", destructive=True),
    "end_sessions": C("session end-all", ("subject",), destructive=True, example="ada"),
    "list_credentials": C("credential list", example="--node su0-n03"),
    "rotate_credentials": C(
        "credential rotate",
        destructive=True,
        example="--rack su0-rack1 --reason 'a laptop was lost'",
    ),
    "request_credential": C(
        "credential show", example="su0-n03 host --reason 'the host hangs, its console is needed'"
    ),
    "reveal_credential": C("credential reveal"),
    "list_tokens": C("token list"),
    "create_token": C(
        "token create", example="--subject ada --role operator --rack 'su0-*' --days 90"
    ),
    "revoke_token": C("token revoke", destructive=True),
}
# pages and pictures for a browser, its cookie, answers that a local command shows better, and one
# of several ways: `tenant apply` merges, `node tag` replaces, `pin set` names what it pins
WITHOUT_COMMAND = frozenset(
    {
        "show_docs",
        "show_docs_file",
        "show_openapi",
        "begin_session",
        "end_session",
        "show_fleet",
        "show_fleet_map",
        "show_fleet_marks",
        "list_checks",
        "list_settings",
        "show_overview",
        "show_selection",  # `node list --where`
        "merge_node_tags",
        "put_tenant",
        "replace_pin",
        "merge_pin",
        "delete_pin",
        "merge_policy",
        "put_image",  # `image upload`, which reads a file
        "try_overlays",
        "show_measurements",
        "verify_audit",
        "seal_bundle",
    }
)


def describe(routes: Sequence[Route]) -> dict[str, dict[str, Any]]:
    """Return the description of each command for the command line, as JSON's values."""
    described = {}
    for route in routes:
        if route.name not in WITHOUT_COMMAND:
            command = COMMANDS[route.name]
            described[command.name] = _describe(route, command)
    return described


def _describe(route: Route, command: Command) -> dict[str, Any]:
    answer = next(iter(route.answers.values()))
    items = answer.model_fields.get("items")
    query = {n: f for n, f in route.query.model_fields.items() if route.query is not Dry}
    fields = route.query.model_fields
    description: dict[str, Any] = {
        "name": route.name,
        "verb": route.verb,
        "path": route.path,
        "summary": route.summary,
        "roles": sorted(r.value for r in route.roles),
        "words": [(w, WORDS[w], True) for w in re.findall(r"\{(\w+)\}", route.path)],
        "query": [_option(n, f) for n, f in query.items() if n not in PAGED],
        "example": f"{command.name} {command.example or _example(route)}".strip(),
    }
    body = {} if route.body is None else dict(route.body.model_fields)
    named = {**query, **body}
    description["words"] += [
        (n, named[n].description or "", named[n].is_required()) for n in command.words
    ]
    if route.body is not None:
        description["body"] = [_option(n, f) for n, f in body.items()]
    if items is not None and route.verb == "GET":
        description["list"] = _row_fields(items)
        description["paged"] = "cursor" in fields
        description["filters"] = "where" in fields
        description["limits"] = "limit" in fields
    for name, holds in (
        ("changes", route.changes),
        ("recorded", route.recorded),
        ("destructive", command.destructive),
        ("entity", route.entity and route.changes),
    ):
        if holds:
            description[name] = True
    if route.media != "application/json":
        description["media"] = route.media
    return description


def _example(route: Route) -> str:
    return " ".join(EXAMPLES[w] for w in re.findall(r"\{(\w+)\}", route.path))


def _row_fields(items: FieldInfo) -> list[str]:
    """Return the names of a list's columns, in the order of the record."""
    (row, *_) = get_args(items.annotation)
    return list(row.model_fields) if isinstance(row, type) and issubclass(row, BaseModel) else []


def _option(name: str, field: FieldInfo) -> dict[str, Any]:
    kind, many, choices = _kind(field.annotation)
    option: dict[str, Any] = {"name": name, "kind": kind, "help": field.description or ""}
    if many:
        option["many"] = True
        if name in SINGULAR:
            option["flag"] = SINGULAR[name]
    if choices:
        option["choices"] = choices
    if field.is_required():
        option["required"] = True
    if name in FILES:
        option |= {"kind": "file", "flag": FILES[name]}
    if choices == ["true", "false"]:
        option["kind"] = "flag"
        del option["choices"]
    if name in ("until", "begins_at", "ends_at"):
        option["kind"] = "time"
    return option


def _kind(annotation: Any) -> tuple[str, bool, list[str]]:
    """Return the type of a value on the command line, whether it repeats, and the choices."""
    origin = get_origin(annotation)
    parts = [a for a in get_args(annotation) if a is not NoneType]
    if origin is Annotated or (origin in (Union, UnionType) and len(parts) == 1):
        return _kind(parts[0])
    if origin in (tuple, list) and _kind(parts[0])[0] == "text":
        return "text", True, []
    if origin is Literal:
        return "text", False, [str(word) for word in get_args(annotation) if word]
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return "text", False, [word.value for word in annotation]
    return SCALARS.get(annotation, "document"), False, []
