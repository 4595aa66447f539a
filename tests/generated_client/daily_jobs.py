"""The jobs of console_jobs.md by the generated client, and a few that the page does not have.

Each line of the input is a job's name, its role, and what it begins with; the answer is a line with
the operations that it used, or with its failure.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from campaign_and_case_steps import (
    NEWER,
    RELEASE,
    accept_metric,
    act,
    after,
    change,
    change_node,
    clear_alert,
    draft,
    find_work,
    read_clock,
    rehearse,
    replace_host,
    report_at_rack,
    report_fault,
    roll_back,
    save_evidence,
    see_case,
    see_difference,
    see_preview,
    see_waiting_case,
    start,
    suspend_alert,
)
from generated_calls import SITE, ask, doers, propose, used


def retry_group(names: list[str]) -> None:
    rows = ask("show_home").blocked
    (group,) = [g for g in rows if g.unblock == "Plug the management cable in."]
    assert group.retryable == len(names)
    propose("retry_blocked_nodes", body={"reason": group.reason, "unblock": group.unblock})
    assert "quarantined" not in [ask("show_node", name).state.value for name in names]


def list_blocked(_: Any) -> None:
    nodes = ask("list_nodes", where="reason=check_failed").items
    assert "Reseat GPU 5, then try it again." in [n.blockers[0].unblock for n in nodes]


def retry_chosen(names: list[str]) -> None:
    listed = {n.id for n in ask("list_nodes", where="reason=unreachable").items}
    assert listed >= set(names)
    for name in names:
        retry(name)


def retry(name: str) -> None:
    propose("retry_node", name)
    assert ask("show_node", name).state.value != "quarantined"


def approve(request: str) -> None:
    assert request in [r.id for r in ask("list_requests", waiting="true").items]
    ask("approve_request", request, body={"note": "agreed"})


def see_node(_: Any) -> None:
    for name in ("show_node", "show_parts", "explain_node"):
        ask(name, "su1-n15")
    assert ask("list_events", node="su1-n15").items


def see_action(_: Any) -> None:
    newest = ask("list_actions", "su1-n15").items[0]
    assert ask("show_action", "su1-n15", newest.id).action.action == newest.action


def list_with_version(_: Any) -> None:
    row = next(r for r in ask("list_versions").items if r.kind == "host.doca")
    assert ask("list_nodes", where=f'{row.kind}="{row.version}"').items


def see_ports(_: Any) -> None:
    leaf = ask("show_node", "su1-n00").ports[0].switch
    assert "su1-n00" in [n.id for n in ask("list_nodes", where=f"leaf={leaf}").items]


def see_taken_in(names: list[str]) -> None:
    """Wait until an intake that was asked for has stored its nodes."""
    for _ in range(300):
        if {n.name for n in ask("list_hardware", limit=500).items} >= set(names):
            return
        time.sleep(0.2)
    raise AssertionError(f"{names} are not on the hardware list")


def add_hardware(given: Any) -> None:
    (url,), factory = given
    place = {"rack": "client-rack0"}
    body = {"kind": "host", "bmc": {"url": url}, "location": place, "factory_credentials": factory}
    propose("declare_hardware", "client-n00", body=body)
    see_taken_in(["client-n00"])


def take_in(given: Any) -> None:
    urls, factory = given
    names = [f"client-list-n{n:02d}" for n in range(len(urls))]
    nodes = [
        {"name": name, "kind": "host", "bmc": {"url": url}}
        for name, url in zip(names, urls, strict=True)
    ]
    listed = {"site": "site", "factory_credentials": factory, "nodes": nodes}
    propose("take_nodes_in", body={"expected": json.dumps(listed)})
    see_taken_in(names)


def change_policy(name: str) -> None:
    propose("merge_policy", name, body={"note": "for cards"})
    assert ask("show_policy", name).note == "for cards"


def keep_view(_: Any) -> None:
    body = {"address": "#/home", "shared": True}
    assert ask("save_view", "what waits", body=body).shared


def refuse_stale(name: str) -> None:
    """Change what another one changed meanwhile: the generation that was read is no longer so."""
    read = ask("show_policy", name).generation
    body = {"note": "mine"}
    refused = ""
    try:
        ask("merge_policy", name, body=body, if_match=f'"g{read - 1}"')
    except AssertionError as error:
        refused = str(error)
    assert ": 412 " in refused
    assert ask("show_policy", name).note != body["note"]


def reclaim(name: str) -> None:
    propose("reclaim_node", name)
    assert ask("show_node", name).state.value == "draining"


def see_marks(kind: str) -> Callable[[Any], None]:
    """A job that reads the words of one kind for the map."""

    def do(_: Any) -> None:
        assert ask("show_fleet_marks", by=kind).nodes

    return do


def tag_many(names: list[str]) -> None:
    for name in names:
        propose("merge_node_tags", name, body={"tags": {"fans": True, "burn-in": True}})
        assert ask("show_node_tags", name).tags == ["burn-in", "fans"]


def tag(name: str) -> None:
    propose("replace_node_tags", name, body={"tags": ["loan", "team:vision"]})
    assert ask("show_node_tags", name).tags == ["loan", "team:vision"]


def make_token(subject: str, **bounds: Any) -> None:
    role = "operator" if bounds else "viewer"
    body = {"sha256": subject[0] * 64, "subject": subject, "role": role, "days": 1.0, **bounds}
    propose("create_token", body=body)
    assert subject in [t.subject for t in ask("list_tokens").items]


def revoke_token(_: Any) -> None:
    (token,) = [t for t in ask("list_tokens").items if t.subject == "ada@example"]
    propose("revoke_token", token.id)
    assert [t.good for t in ask("list_tokens").items if t.id == token.id] == [False]


def end_session(_: Any) -> None:
    ask("begin_session", who="viewer")
    (session,) = [s for s in ask("list_sessions").items if s.subject == "viewer@example"]
    propose("end_other_session", session.id)
    assert session.id not in [s.id for s in ask("list_sessions").items]


def pin(_: Any) -> None:
    body = {"release": RELEASE, "reason": "it measures", "until": after(24)}
    propose("replace_pin", "node:su1-n00", body=body)
    assert ask("show_pin", "node:su1-n00").release == RELEASE


def remove_pin(_: Any) -> None:
    propose("delete_pin", "node:su1-n00")
    assert ask("list_pins").items == []


def add_webhook(_: Any) -> None:
    body = {"url": "https://billing.example/a", "secret": SITE["secret"]}
    propose("add_webhook", "billing", body=body)
    assert ask("show_webhook", "billing").url == body["url"]


def pause_webhook(_: Any) -> None:
    propose("pause_webhook", "billing", body={"why": "it is moved"})
    assert ask("show_webhook", "billing").paused_why == "it is moved"


def cycle(name: str) -> None:
    assert ask("switch_node_power", name, body={"action": "cycle"}).subject == name


def read_console(line: str) -> Callable[[str], None]:
    """A job that reads a line of a node's console."""

    def do(name: str) -> None:
        assert [row.text for row in ask("show_console", name).lines] == [line]

    return do


def see_passwords(name: str) -> None:
    (login,) = ask("list_credentials", node=name).items
    assert login.name == f"{name}/host"
    assert login.changed_at < read_clock(-24 * 30)


def change_password(name: str) -> None:
    body = {"logins": [f"{name}/host"], "reason": "a laptop was lost"}
    propose("rotate_credentials", body=body)
    (login,) = ask("list_credentials", node=name).items
    assert login.cause.value == "requested"


def ask_password(name: str) -> None:
    asked = ask("request_credential", name, "host", body={"reason": "the host hangs"})
    assert asked.state.value == "waiting"


def read_password(request: str) -> None:
    ask("approve_request", request, who="approver", body={"note": ""})
    assert ask("reveal_credential", request).password == SITE["password"]


def revoke(certificate: str) -> None:
    propose("revoke_certificate", certificate, body={"reason": "the wrong cable was tested"})
    assert ask("show_certificate", certificate).revoked_reason == "the wrong cable was tested"


def see_lines(_: Any) -> None:
    shown = ask("put_tenant", "paper", body={"nodes": 2}, dry_run="true")
    assert shown.result["steps"]
    assert "paper" not in [t.name for t in ask("list_tenants").items]


def onboard(name: str, **body: Any) -> None:
    propose("put_tenant", name, body=body)
    assert ask("show_tenant", name).tenant.nodes_wanted == (body.get("nodes") or 0)


def pick(name: str, where: str, number: int) -> None:
    """Onboard a tenant on the first free nodes that an expression finds."""
    free = [n.id for n in ask("list_nodes", where=where).items if not n.tenant][:number]
    assert len(free) == number
    propose("put_tenant", name, body={"nodes": number, "picked": free})
    assert list(ask("show_tenant", name).tenant.picked) == free


def follow(names: list[str]) -> None:
    assert ask("show_tenant", "amber").usage.nodes == len(names)
    assert [n.id for n in ask("list_nodes", where="tenant=amber").items] == names


def grow(_: Any) -> None:
    propose("merge_tenant", "coral", body={"nodes": 3})
    assert ask("show_tenant", "coral").tenant.nodes_wanted == 3


def shrink(names: list[str]) -> None:
    shown = propose("shrink_tenant", "ivory", body={"to": 1})
    assert any(name in str(shown.result) for name in names)
    assert ask("show_tenant", "ivory").tenant.nodes_wanted == 1


def settle(name: str) -> None:
    propose("settle_tenant", name)
    assert ask("show_tenant", name).tenant.phase.value == "ready"


def delete(name: str) -> None:
    propose("delete_tenant", name)
    assert name not in [t.name for t in ask("list_tenants").items]


def see_own(_: Any) -> None:
    assert ask("list_nodes").items
    assert ask("show_tenant", "red").tenant.name == "red"
    ask("list_notices")


def policies(_: Any) -> None:
    ask("put_policy", "careful", body={"policy": {"canary": {"size": 1}}})
    ask("merge_policy", "careful", body={"note": "one canary"})
    assert ask("show_policy", "careful").policy.canary.size == 1


def overlays(_: Any) -> None:
    body = {"overlays": [{"name": "site.yaml", "text": "schema: 1\nreleases: {}\n"}]}
    assert NEWER in str(ask("try_overlays", body=body).changes)  # this overlay does not have it


def end_webhook(_: Any) -> None:
    ask("resume_webhook", "billing")
    ask("remove_webhook", "billing")


JOBS: dict[str, Callable[[Any], Any]] = {
    "See how a release differs from what the chosen nodes run": see_difference,
    "Draft a campaign with its canaries, its window and its preview": draft,
    "See the waves, the length and the refused nodes of a draft": see_preview,
    "Start a campaign": start,
    "Pause a campaign": change("pause_campaign", "paused", reason="a leaf is replaced"),
    "Resume a campaign that stopped itself": change("resume_campaign", "started"),
    "Abort a campaign": change("abort_campaign", "aborted", reason="it is withdrawn"),
    "Bring the nodes of a campaign back to their release": roll_back,
    "Rehearse a campaign on a twin and see its result": rehearse,
    "Accept a measurement that got worse": accept_metric,
    "Leave a node out of a campaign": change_node(
        "skip_campaign_node", "skipped", lambda: {"reason": "its tenant measures"}
    ),
    "Try a failed node of a campaign again": change_node("again_campaign_node", "pending"),
    "Defer a node of a campaign for its tenant": change_node(
        "defer_campaign_node", "deferred", lambda: {"until": after(6)}
    ),
    "Accept the repair of one's node": act(
        "accept_case", lambda case: case.drain_at < read_clock()
    ),
    "Defer the repair of one's node": act(
        "defer_case", lambda case: case.drain_at > read_clock(40), lambda: {"until": after(48)}
    ),
    "See the next step, the suspects and the ticket of a case": see_case,
    "Report a node returned with the work and the new serial": act(
        "returned_case",
        lambda case: case.stage.value == "returning",
        lambda: {"work": "Replaced. (new serial NEW-72)"},
    ),
    "Record the spare part of a repair": act(
        "spare_case",
        lambda case: case.spare.serial == "SPARE-73",
        lambda: {"kind": "gpu", "serial": "SPARE-73", "part_number": "900-21001"},
    ),
    "Record the vendor's return number": act(
        "rma_case", lambda case: case.ticket.rma == "RMA-74", lambda: {"number": "RMA-74"}
    ),
    "Send a ticket again that its system did not take": act(
        "tell_case", lambda case: (case.ticket.tries, case.ticket.problem) == (0, "")
    ),
    "Retire a node with notice to its tenant": act(
        "retire_case", lambda case: case.retire_at, lambda: {"why": "its board is at its end"}
    ),
    "Close a case by decision": act(
        "close_case",
        lambda case: case.ending.value == "no_fault",
        lambda: {"why": "nothing was found"},
    ),
    "Save the evidence of a case as one signed file": save_evidence,
    "Report another host in the place of a node": replace_host,
    "Find the work at a rack by the serial of a part": find_work,
    "Report a node returned from a phone at the rack": report_at_rack,
    "See all blocked nodes by reason and remedy": lambda _: ask("show_home").blocked[0].unblock,
    "Retry all nodes that one remedy unblocks": retry_group,
    "Open the case that waits for a technician": see_waiting_case,
    "List the nodes that one reason blocks": list_blocked,
    "Retry some nodes that are chosen from a list": retry_chosen,
    "See free nodes by unit and by rail": lambda _: ask("show_home").capacity.units[0],
    "Approve a request of another person": approve,
    "Keep a view under a name, shared with the staff": keep_view,
    "Open a view that another person shares": lambda _: ask("list_views").items[0].address,
    "Find a node by name and see its journey, plan and versions": see_node,
    "Let one node try again": retry,
    "See the output of an Ansible task while it runs, and when it fails": see_action,
    "Take a node back from its tenant, after a look at its erasure": reclaim,
    "Report a fault of one's node": report_fault,
    "See the nodes by their blocker, in the table of the whole fleet": list_blocked,
    "See on the map when certificates end": see_marks("certificate"),
    "See on the map the waves of a campaign": see_marks("wave"),
    "Show on the map only the nodes with one alert": see_marks("alert"),
    "Give all nodes of a list a tag": tag_many,
    "Suspend an alert for a day": suspend_alert,
    "Clear an alert": clear_alert,
    "See the pins of a release": lambda _: ask("show_release", NEWER),
    "Compare two releases": lambda _: ask("show_moves", RELEASE, NEWER),
    "Search the actions of people": lambda _: ask("list_audit").items[0],
    "Verify the journal": lambda _: ask("verify_audit"),
    "Export the actions of people to a file": lambda _: ask("list_audit", limit=500).items[0],
    "See checks, thresholds and measured values": lambda _: [
        ask("list_checks"), ask("show_measurements"),
    ],
    "See nodes that differ from their target, and pending resets": lambda _: [
        ask("list_drift"), ask("list_debt"),
    ],
    "Make a token for a person": lambda _: make_token("ada@example"),
    "Revoke a token": revoke_token,
    "Make a token that changes some racks only": lambda _: make_token(
        "bea@example", racks=["su1-*"]
    ),
    "End the browser's session of a person": end_session,
    "Pin a release to a node": pin,
    "Remove a pin": remove_pin,
    "See the settings in force": lambda _: ask("list_settings"),
    "See the receivers of events": lambda _: ask("list_webhooks"),
    "Send events to another system": add_webhook,
    "Pause the events to another system": pause_webhook,
    "See the versions of the fleet against their pins": lambda _: ask("list_versions").items[0],
    "List all nodes with one version of a component": list_with_version,
    "See the ports of a node, and the neighbours at one of them": see_ports,
    "See the hardware list, and what the server says of a new entry": lambda _: ask(
        "list_hardware"
    ).items[0],
    "Add a node to the hardware list, which takes it in": add_hardware,
    "Take the nodes of a list in": take_in,
    "Change a policy of campaigns": change_policy,
    "Change what another tab changed meanwhile, and see that nothing was overwritten": (
        refuse_stale
    ),
    "See what a tenant has, and its limits": lambda _: ask("show_tenant", "red").usage,
    "Upload a firmware file to the artifact store": lambda _: ask("list_images"),
    "Switch a node off and on again": cycle,
    "Switch the power of one's node": cycle,
    "Read the serial console of a node": read_console("kernel panic"),
    "Read the serial console of one's node": read_console("login:"),
    "Set the time of a node's BMCs": lambda name: propose("set_bmc_time", name),
    "Change the tags of a node": tag,
    "See the age of the passwords of BMCs, and what is due": see_passwords,
    "Change the password of a BMC now": change_password,
    "Ask to see the password of a BMC": ask_password,
    "See the password that another person allowed one to see": read_password,
    "Revoke the certificate of a node": revoke,
    "See the lines that each leaf would receive for a new tenant": see_lines,
    "Onboard a tenant with a quota, its VRF and VNI as proposed": lambda _: onboard(
        "green", nodes=1, quota={"nodes": 4, "gpus": 32}
    ),
    "Onboard a tenant on nodes of the same unit": lambda _: pick(
        "olive", "state=certified and su=1", 2
    ),
    "Onboard a tenant on a node that is picked on the map": lambda _: pick(
        "violet", "state=certified and su=2", 1
    ),
    "Follow the nodes of a tenant on their way into service": follow,
    "Give a tenant more nodes": grow,
    "Take nodes from a tenant, after a look at which ones and at their erasure": shrink,
    "Continue with a tenant's network that is not on every leaf yet": settle,
    "Delete a tenant with its network": delete,
    "See one's own nodes, quota and notices": see_own,
    # jobs that the page does not have
    "Keep a policy under a name": policies,
    "Try an overlay": overlays,
    "See the hardware list": lambda _: ask("list_hardware"),
    "Resume and remove a receiver of events": end_webhook,
}  # fmt: skip


def main() -> None:
    """Do the jobs of the input, one a line."""
    for line in sys.stdin:
        job, role, given = json.loads(line)
        used.clear()
        doers.append(role)
        try:
            JOBS[job](given)
            answer: Any = list(dict.fromkeys(used))
        except Exception as error:  # it is reported: one job does not hide the others
            answer = f"{type(error).__name__}: {error}"[:500]
        print(json.dumps(answer), flush=True)  # noqa: T201 (the answer of this program)


main()
