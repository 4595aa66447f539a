"""The console's daily jobs by the generated client: run by its own Python, with nothing of ours.

Arguments: a folder with the package `provisioner_client`, and a JSON file with the address, the CA
and the tokens. The last line is a JSON object: each job with its operations, or with its failure.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])
SITE = json.loads(Path(sys.argv[2]).read_text())
client_module = importlib.import_module("provisioner_client")
api = importlib.import_module("provisioner_client.api")
NODE, FREE, STUCK, RELEASE, OLDER = (
    "su0-n01", "su0-n04", "su0-n05", "spectrum-x-1.3.0", "spectrum-x-1.2.0"
)  # fmt: skip
OPERATIONS = {
    name.rpartition(".")[2]: name
    for _, name, package in pkgutil.walk_packages(api.__path__, "provisioner_client.api.")
    if not package
}
used: list[str] = []


def connect(who: str) -> Any:
    """Return the generated client of one person."""
    return client_module.AuthenticatedClient(
        base_url=SITE["url"], token=SITE["tokens"][who], verify_ssl=SITE["ca"],
        raise_on_unexpected_status=True,
    )  # fmt: skip


PEOPLE = {who: connect(who) for who in SITE["tokens"]}


def ask(name: str, *path: str, who: str = "operator", body: Any = None, **query: Any) -> Any:
    """Call one generated function; return its parsed answer. A refusal fails the job."""
    call = importlib.import_module(OPERATIONS[name]).sync_detailed
    used.append(name)
    given = dict(query)
    if body is not None:
        wanted = typing.get_type_hints(call)["body"]
        kinds = typing.get_args(wanted) or (wanted,)
        kind = next(k for k in kinds if hasattr(k, "from_dict"))
        given["body"] = kind.from_dict(body)
    if given.pop("dry_run", False):
        hint = inspect.signature(call).parameters["dry_run"].default
        given["dry_run"] = type(hint)("true")
    answer = call(*path, client=PEOPLE[who], **given)
    status = int(answer.status_code)
    assert status in (200, 202), f"{name}: {status} {answer.content[:300]!r}"
    assert answer.parsed is not None, f"{name}: its answer was not parsed"
    return answer.parsed


def draft(name: str) -> str:
    """Return the id of a drafted campaign."""
    body = {"release": RELEASE, "select": "kind=host", "name": name, "policy_name": "careful"}
    return str(ask("create_campaign", body=body).result["campaign"])


def search_blocked() -> None:
    page = ask("list_nodes", who="viewer", where="state=quarantined")
    assert [n.id for n in page.items] == [STUCK]
    assert page.items[0].blockers[0].unblock == "Reseat it."


def open_and_work_on_a_case() -> None:
    case = ask("open_case", FREE, body={"reason": "GPU 5 fell off the bus"}).result["case"]
    shown = ask("show_case", case, who="viewer")
    assert shown.case.node == FREE
    ask("close_case", case, body={"why": "nothing was wrong"})
    assert case in [line.id for line in ask("list_cases", who="viewer").items]


def report_own() -> None:
    """A tenant reports its node, and agrees that the repair begins now."""
    case = ask("open_case", NODE, who="red", body={"reason": "a slow GPU"}).result["case"]
    ask("accept_case", case, who="red")


def approve() -> None:
    body = {"id": "FanFailed", "why": "it was replaced"}
    asked = ask("clear_alert", "su0-n03", body=body)
    waiting = ask("list_requests", who="approver", waiting=_true("list_requests", "waiting"))
    assert asked.id in [r.id for r in waiting.items]
    done = ask("approve_request", asked.id, who="approver", body={"note": "agreed"})
    assert done.state.value == "done"


def _true(operation: str, name: str) -> Any:
    default = inspect.signature(importlib.import_module(OPERATIONS[operation]).sync_detailed)
    kind = type(default.parameters[name].default)
    return True if kind is bool else kind("true")


def tags() -> None:
    ask("merge_node_tags", FREE, body={"tags": {"loan": True}})
    assert ask("show_node_tags", FREE, who="viewer").tags == ["loan"]


def pin() -> None:
    until = SITE["until"]
    body = {"release": RELEASE, "reason": "a pilot", "until": until}
    ask("replace_pin", f"node:{FREE}", body=body)
    assert ask("show_pin", f"node:{FREE}", who="viewer").release == RELEASE


def policies() -> None:
    ask("put_policy", "careful", body={"policy": {"canary": {"size": 1}}})
    ask("merge_policy", "careful", body={"note": "one canary"})
    assert ask("show_policy", "careful", who="viewer").policy.canary.size == 1


def onboard() -> None:
    body = {"nodes": 1}
    shown = ask("put_tenant", "green", body=body, dry_run=True)
    assert shown.state.value == "dry_run"
    ask("put_tenant", "green", body=body)
    assert ask("show_tenant", "green", who="viewer").tenant.name == "green"


def grow_and_shrink() -> None:
    ask("merge_tenant", "green", body={"nodes": 3})
    assert ask("show_tenant", "green", who="viewer").tenant.nodes_wanted == 3
    ask("shrink_tenant", "green", body={"to": 1})
    assert ask("show_tenant", "green", who="viewer").tenant.nodes_wanted == 1


def webhook() -> None:
    secret = SITE["secret"]
    body = {"url": "https://hooks.example/x", "kinds": ["alert*"], "secret": secret}
    ask("add_webhook", "pager", body=body)
    assert ask("show_webhook", "pager", who="viewer").url == body["url"]
    ask("pause_webhook", "pager", body={"why": "its server moves"})
    ask("resume_webhook", "pager")
    ask("remove_webhook", "pager")


def token() -> None:
    body = {"sha256": "a" * 64, "subject": "ada", "role": "viewer", "days": 1.0}
    made = ask("create_token", body=body).result["token"]
    ask("revoke_token", str(made))


def campaign() -> None:
    name = draft("pilot")
    preview = ask("preview_campaign", name, who="viewer")
    assert preview is not None
    assert ask("show_campaign", name, who="viewer").campaign.policy.canary.size == 1
    ask("abort_campaign", name, body={"reason": "another day"})
    assert ask("show_campaign", name, who="viewer").campaign.state.value == "aborted"


def audit() -> None:
    assert ask("list_audit", who="viewer").items
    assert ask("show_audit_head", who="viewer").rows > 0


def overlays() -> None:
    body = {"overlays": [{"name": "site.yaml", "text": "schema: 1\nreleases: {}\n"}]}
    assert ask("try_overlays", who="viewer", body=body).changes == []


# jobs like those of docs/console-jobs.md; policies come first, since the campaign names one
JOBS: dict[str, Callable[[], Any]] = {
    "Campaigns | (a policy under a name)": policies,
    "Campaigns | Draft, preview and abort a campaign": campaign,
    "Campaigns | See how a release differs from what the chosen nodes run": lambda: ask(
        "show_moves", OLDER, RELEASE, who="viewer"
    ),
    "Home | See all blocked nodes by reason and remedy": lambda: ask("show_home", who="viewer"),
    "Home | List the nodes that one reason blocks": search_blocked,
    "Home | Approve a request of another person": approve,
    "Nodes | Find a node by name and see its journey, plan and versions": lambda: [
        ask(name, NODE, who="viewer") for name in ("show_node", "show_parts", "explain_node")
    ],
    "Nodes | Let one node try again": lambda: ask("retry_node", STUCK),
    "Nodes | Take a node back from its tenant": lambda: ask(
        "reclaim_node", NODE, body={"for_repair": False}, dry_run=True
    ),
    "Nodes | Report a fault of one's node": report_own,
    "Nodes | Give a node a tag": tags,
    "Cases | Report a fault, read the case and close it": open_and_work_on_a_case,
    "Alerts | Suspend an alert for a day": lambda: ask(
        "override_alert", NODE, body={"id": "FanFailed", "hours": 24, "why": "a fan is ordered"}
    ),
    "Releases | See the pins of a release": lambda: ask("show_release", RELEASE, who="viewer"),
    "Releases | Try an overlay": overlays,
    "Audit | Search the actions of people": audit,
    "Checks | See checks, thresholds and measured values": lambda: ask(
        "list_checks", who="viewer"
    ),
    "Checks | See nodes that differ, and pending resets": lambda: [
        ask(name, who="viewer") for name in ("list_drift", "list_debt")
    ],
    "Access | Make a token for a person and revoke it": token,
    "Site | Pin a release to a node": pin,
    "Site | Remove a pin": lambda: ask("delete_pin", f"node:{FREE}"),
    "Site | See the settings in force": lambda: ask("list_settings", who="viewer"),
    "Site | See the hardware list": lambda: ask("list_hardware", who="viewer"),
    "Site | Add, pause and remove a receiver of events": webhook,
    "Tenants | Onboard a tenant with a quota": onboard,
    "Tenants | Give a tenant more nodes, and take some": grow_and_shrink,
    "Tenants | Continue with a network that is not on every leaf yet": lambda: ask(
        "settle_tenant", "green"
    ),
    "Tenants | Delete a tenant with its network": lambda: ask("delete_tenant", "green"),
    "Tenants | See one's own nodes, quota and notices": lambda: [
        ask("list_nodes", who="red"), ask("show_tenant", "red", who="red"),
        ask("list_notices", who="red"),
    ],
}  # fmt: skip


def main() -> None:
    """Do every job, in order; print what each used, or why it failed."""
    done: dict[str, Any] = {}
    for job, do in JOBS.items():
        used.clear()
        try:
            do()
            done[job] = list(used)
        except Exception as error:  # the report is the point: one job does not hide the others
            done[job] = f"{type(error).__name__}: {error}"[:500]
    print(json.dumps(done))  # noqa: T201 (the result of this program)


main()
