"""Answers laid out for people, where a table of fields would hide the important ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer
from rich.text import Text

from provisioner.cli.client.output import (
    format_cell,
    format_minute,
    list_effects,
    show_blockers,
    show_rows,
    strip_controls,
)
from provisioner.cli.options.tables import Table, open_console

Document = Mapping[str, Any]


def _print(line: str, style: str = "") -> None:
    open_console().print(Text(strip_controls(line), style=style), soft_wrap=True)


def _table(title: Sequence[str], rows: Sequence[Sequence[Any]], name: str = "") -> None:
    table = Table(*title, title=name or None)
    for row in rows:
        table.add_row(*(Text(format_cell(value)) for value in row))
    open_console().print(table)


def show_explanation(told: Document, _given: Document) -> None:
    """Print a node's explanation, a heading above each part."""
    for heading, field in (
        ("What it is", "what"),
        ("Why it is there", "why"),
        ("What comes next", "next"),
        ("What would unblock it", "unblock"),
    ):
        _print(f"{heading}:", "bold")
        for sentence in told[field] or ["Nothing needs to be done."]:
            _print(f"  {sentence}")


def show_drift(told: Document, given: Document) -> None:
    """Print what differs by component; with `-o wide` each node too."""
    rows = told.get("table") or ()
    if rows or not told["items"]:
        show_rows("drift", rows, (), "table")
    other = [line for line in told["items"] if not line["behind"]]
    if given.get("output") == "wide":
        show_rows("drift nodes", told["items"], (), "table")
    elif told["items"]:
        _print(f"{len(told['items'])} nodes differ: -o wide lists them.")
    if other and given.get("output") != "wide":
        names = format_cell([line["node"] for line in other], "some")
        _print(f"{len(other)} of them run their pins under another release: {names}.")


def show_usage(told: Document, _given: Document) -> None:
    """Print hours by owner and cause, and how available each tenant's nodes were."""
    rows = [
        {
            "owner": row["owner"] or "–",
            "cause": row["cause"],
            "what": row["what"],
            "node": row["node"],
            "node_hours": f"{row['node_s'] / 3600:.2f}",
            "GPU_hours": f"{row['gpu_s'] / 3600:.2f}",
        }
        for row in told["items"]
    ]
    show_rows("usage", rows, (), "table")
    for one in told["availability"]:
        share = "nothing counts yet" if one["share"] is None else f"{one['share']:.5%}"
        _print(f"{one['tenant']}: {share} of the time that counts was served")
    if told["behind"]:
        _print(f"{told['behind']} events are not counted yet: ask again in a minute", "yellow")


def show_optics(told: Document, _given: Document) -> None:
    """Print the fleet's optics that want something, and of how many ports nothing is known."""
    if told["items"] or told["ports"] > told["unknown"]:
        show_rows("switch optics", told["items"], (), "table")
    for one in told["causes"]:
        share = f"{one['bad']} of {one['all_bad']} {one['of']} ports, though it has {one['ports']}"
        _print(f"{one['group']}: {share} of {one['fleet']}: look for the cause there", "yellow")
    days = "at the end of the last day; of those with too few days of readings nothing is known"
    _print(f"{told['ports']} ports were judged, {told['unknown']} of them unknown, {days}.")
    if told["unread"]:
        _print(f"Not judged as a whole: {', '.join(told['unread'])}.", "yellow")


def show_suspects(told: Document, _given: Document) -> None:
    """Print what faults accuse, with a plot of the rate ratios and their intervals."""
    _print(f"{told['faults']} faults in {told['node_days']:.0f} node-days")
    rows = []
    for one in told["items"]:
        seen = one["evidence"]
        rows.append(
            {
                "accused": "yes" if one["accused"] else "–",
                "what": " and ".join(one["what"]),
                "ratio": _figure(seen["ratio"]),
                "interval": f"{_figure(seen['low'])} to {_figure(seen['high'])}",
                "plot": draw_ratio(seen["low"], seen["ratio"], seen["high"]),
                "faults": f"{seen['faults_with']} with, {seen['faults_without']} without",
            }
        )
    show_rows("cohort suspects", rows, (), "table")
    for one in told["items"]:
        if one["accused"] and one["decided_by"]:
            told_apart = ", ".join(one["decided_by"])
            _print(f"These always come together. To tell them apart, run: {told_apart}", "yellow")


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def draw_ratio(low: float | None, ratio: float | None, high: float | None) -> str:
    """Return an interval on a line from a tenth to ten times, with a mark at one.

    An unknown end is the line's; without a ratio there is nothing to draw.
    """
    width = 20
    if ratio is None:
        return ""

    def place(value: float | None, unknown: float = 0.1) -> int:
        held = min(max(unknown if value is None else value, 0.1), 10.0)
        return round((math.log10(held) + 1) / 2 * width)

    line = ["·"] * (width + 1)
    line[width // 2] = "|"
    for at in range(place(low), place(high, 10.0) + 1):
        line[at] = "─"
    line[place(ratio)] = "●"
    return "".join(line)


def show_usage_course(told: Document, _given: Document) -> None:
    """Print the nodes of each cause, a line for each step."""
    rows = [
        {
            "from": format_minute(at),
            **{line["cause"]: f"{line['nodes'][n]:.2f}" for line in told["lines"]},
        }
        for n, at in enumerate(told["times"])
    ]
    show_rows("usage", rows, ["from", *(line["cause"] for line in told["lines"])], "wide")
    if told["behind"]:
        _print(f"{told['behind']} events are not counted yet: ask again in a minute", "yellow")


def show_focus(told: Document, _given: Document) -> None:
    """Print the CSV as it is."""
    typer.echo(told["csv"], nl=False)


def show_node(node: Document, _given: Document) -> None:
    """Print a node: its state, its blockers with their remedies, its cables."""
    place = node["location"]
    where = f"pod{place['pod']}/su{place['scalable_unit']}/{place['rack'] or '–'}"
    _print(f"{node['id']} {node['kind']} · {node['state']} · {where}", "bold")
    release = f"release {node['release'] or '–'} · profile {node['profile'] or '–'}"
    _print(f"{release} · {node['note']}")
    _print(
        f"VRF {node['vrf'] or '–'} · tenant {node['tenant'] or '–'} · "
        f"certificate {node['certificate'] or '–'}"
    )
    since = format_minute(node["entered_at"])
    _print(f"in this state since {since} UTC · generation {node['generation']}")
    for blocker in node["blockers"]:
        _print(f"  blocked: {blocker['reason']}: {blocker['subject']}: {blocker['detail']}")
        _print(f"  unblock: {blocker['unblock']}")
    for bmc in node["bmcs"]:
        _print(f"  BMC {bmc['name']}: {bmc['url']}")
    if node["ports"]:
        names = ("switch", "interface", "rail", "nic_slot")
        rows = [[str(port.get(n, "")) for n in names] for port in node["ports"]]
        _table(("leaf", "port", "rail", "card"), rows)


def show_parts(told: Document, _given: Document) -> None:
    """Print a node's components with their five facts."""
    _print(f"{told['node']} · {told['vendor']} {told['model']}", "bold")
    names = ("kind", "slot", "target", "running", "staged", "pending", "met")
    rows = [[c[n] if n != "met" else _met(c) for n in names] for c in told["components"]]
    _table(("component", "slot", "target", "running", "staged", "waits for", "met"), rows)
    for gap in told["gaps"]:
        _print(f"not read: {gap['source']}: {gap['reason']} {gap['detail']}")


def _met(component: Document) -> str:
    return component["why"] if component["met"] is None else ("yes" if component["met"] else "no")


def show_plan(told: Document, _given: Document) -> None:
    """Print a node's plan: steps with reasons, or the blockers."""
    profile = told["profile"] or "none"
    _print(f"{told['node']} to {told['release'] or '–'}, profile {profile}", "bold")
    for blocker in told["blockers"]:
        _print(f"  blocked: {blocker['reason']}: {blocker['subject']}: {blocker['detail']}")
        _print(f"  unblock: {blocker['unblock']}")
    if told["in_flight"]:
        _print("In flight; look again later: " + "; ".join(told["in_flight"]))
    rows = [
        (
            n,
            s["title"],
            ", ".join(s["slots"] or s["bmcs"]),
            s["disruption"],
            f"{s['duration_s'] / 60:.0f}",
            s["reason"],
        )
        for n, s in enumerate(told["steps"], 1)
    ]
    if rows:
        _table(("#", "step", "slots", "takes away", "min", "why"), rows)
    elif not told["blockers"] and not told["in_flight"]:
        _print("Everything pinned runs; nothing waits. Nothing to do.")


def show_tenant_change(told: Document, _given: Document) -> None:
    """Print the result of a tenant's change: devices, nodes that leave, the tenant."""
    note = f" ({told['note']})" if told["note"] else ""
    _print(f"{told['id']} {told['kind']} {told['subject']}: {told['state']}{note}")
    result = told["result"] or {}
    for step in result.get("steps", ()):
        _print(f"{step['device']}: {len(step['lines'])} lines")
    for node in result.get("leaving", ()):
        _print(f"{node} leaves: it is drained, fenced and erased.")
    tenant = result.get("tenant")
    if tenant:
        summary = f"VNI {tenant['l3vni']}, {tenant['phase']}, {tenant['nodes_wanted']} nodes"
        _print(f"{tenant['name']}: VRF {tenant['vrf']}, {summary}")
    elif result.get("steps"):
        _print("it is gone")
    elif told["state"] == "done":
        _print("nothing to do")
    show_blockers(told["blockers"])


def show_tenant_audit(told: Document, _given: Document) -> None:
    """Print where tenants' networks differ from the records, device by device."""
    for step in told["steps"]:
        _print(f"{step['device']} would be sent:", "bold")
        for line in step["lines"] or ["(nothing: it is proved and saved)"]:
            _print(f"  {line}")
    show_blockers(told["blockers"])
    if not told["steps"] and not told["blockers"]:
        _print("Every network is as it is written down.")


def show_erasure(told: Document, _given: Document) -> None:
    """Print an erasure report, one line a device."""
    typer.echo("\n".join(strip_controls(line) for line in told["text"].splitlines()))


def show_proof(told: Document, given: Document) -> None:
    """Print the proof of a node's last release: rows that did not pass, or with --all every row."""
    proof = told["proof"]
    confirmed = format_minute(proof["confirmed_at"])
    head = f"{proof['node']} · {proof['tenant']} · {proof['vrf'] or '–'} · {confirmed} UTC"
    _print(head, "bold")
    _print(f"certificate {proof['certificate']} · sha256 {proof['sha256'] or '–'}")
    _print(f"revisions {', '.join(proof['revisions']) or 'none needed'}")
    gate = proof["gate"]
    rows = [
        (r["check"], r["subject"], r["verdict"], r["seen"][:60])
        for r in gate
        if given.get("all") or r["verdict"] != "pass"
    ]
    if rows:
        _table(("row", "where", "verdict", "seen"), rows)
    _print(f"{sum(r['verdict'] == 'pass' for r in gate)} of {len(gate)} rows passed")
    for objection in told["objections"]:
        _print(f"not valid: {objection}", "red")


def show_libraries(told: Document, _given: Document) -> None:
    """Print the oldest versions that a tenant's libraries need on a node."""
    _print(f"{told['node']} · {told['release'] or '–'} · {told['profile'] or '–'}", "bold")
    rows = [
        (r["library"].upper(), r["minimum"], r["tested"] or "–", r["why"] or "–")
        for r in told["libraries"]
    ]
    _table(("library", "at least", "tested with", "because"), rows)


def show_rejudgement(told: Document, _given: Document) -> None:
    """Print verdicts that would change."""
    rows = []
    for node in told["nodes"]:
        for r in node["results"]:
            first = (r["now"]["findings"] or [None])[0]
            why = f"{first['part']}: {first['detail']} {first['measured']}" if first else ""
            rows.append((node["node"], r["check"], r["was"], r["now"]["verdict"], why[:120]))
    if rows:
        _table(("node", "check", "was", "now", "why"), rows, "Verdicts that would change")
    judged = sum(n["judged"] for n in told["nodes"])
    count = f"{judged} results of {len(told['nodes'])} nodes judged again"
    _print(f"{count}, {told['changed']} would change")


def show_summary(told: Document, _given: Document) -> None:
    names = ("kind", "state", "release", "tenant", "nodes")
    _table(names, [[count[n] for n in names] for count in told["counts"]])
    _print(f"{told['nodes']} nodes")


def show_intake(told: Document, _given: Document) -> None:
    """Print the results of an intake, with the nodes that were refused and why."""
    result = told.get("result") or {}
    dry = told["state"] == "dry_run"
    if "taken_in" not in result:
        _print(f"{told['id']} {told['kind']} {told['subject']}: {told['state']} {told['note']}")
        show_blockers(told.get("blockers") or ())
        return
    verb = "would be taken in" if dry else "taken in"
    _print(f"{_count_nodes(result['taken_in'])} {verb}, {len(result['known'])} known before")
    for line in (result.get("lines") or [])[1:]:
        _print(line)
    for line in list_effects(result.get("effects") or {}):
        _print(line)
    for name in result.get("renewed") or ():
        _print(f"{name}: the list's login is stored in place of the one that it refused")
    if blockers := result["blockers"]:
        rows = [(b["subject"], f"{b['reason']}: {b['detail']}", b["unblock"]) for b in blockers]
        title = "Would not be taken in" if dry else "Not taken in"
        _table(("what", "why", "what would unblock it"), rows, title)
    if strangers := result.get("strangers"):
        _table(("what", "why"), [(b["subject"], b["detail"]) for b in strangers], "Left alone")
    if dry:
        _print("Nothing was done: --dry-run.")
    elif result["taken_in"]:
        _print("The daemon continues with them: `provisioner node list`.")


def _count_nodes(names: Sequence[str]) -> str:
    return f"{len(names)} node{'' if len(names) == 1 else 's'}"


def show_adoption(told: Document, _given: Document) -> None:
    """Print the nodes that were adopted, and why others were refused."""
    result = told.get("result") or {}
    if "adopted" not in result:
        _print(f"{told['id']} {told['kind']} {told['subject']}: {told['state']} {told['note']}")
        show_blockers(told.get("blockers") or ())
        return
    dry = told["state"] == "dry_run"
    verb = "would be adopted" if dry else "adopted"
    _print(f"{_count_nodes(result['adopted'])} {verb}, {len(result['known'])} known before")
    for line in result.get("lines") or ():
        _print(line)
    if blockers := result["blockers"]:
        rows = [(b["subject"], f"{b['reason']}: {b['detail']}", b["unblock"]) for b in blockers]
        _table(("what", "why", "what would unblock it"), rows)
    if dry:
        _print("Nothing was done: --dry-run.")


def show_certificate(told: Document, _given: Document) -> None:
    c = told["certificate"]
    table = Table(show_header=False, box=None)
    for word, value in (
        ("certificate", c["id"]),
        ("node", f"{c['node']} at {c['location']}"),
        ("proved for", f"{c['release']}, {c['profile']}"),
        (
            "issued",
            f"{format_minute(c['issued_at'])} UTC, expires {format_minute(c['expires_at'])} UTC",
        ),
        ("parts", f"{len(c['serials'])} serials, {len(c['versions'])} versions"),
        ("gates", "\n".join(_gate(g, c) for g in c["gates"]) or "none"),
        ("checks", ", ".join(c["checks"])),
        ("evidence", f"{len(c['evidence'])} raw outputs by digest"),
        ("ports", ", ".join(c["ports"])),
        ("matrix", c["matrix_digest"]),
        ("signed by", c["key_id"]),
    ):
        table.add_row(word, Text(value))
    open_console().print(table)
    if told["revoked_at"]:
        revoked = f"{format_minute(told['revoked_at'])}: {told['revoked_reason']}"
        _print(f"not valid: it was revoked {revoked}", "red")
    elif not told["in_force"]:
        _print("not valid: it expired, or no key that is believed signed it", "red")


def _gate(proof: Document, certificate: Document) -> str:
    title = f"{proof['gate']}"
    if proof["certificate"] == certificate["id"]:
        return title
    return (
        f"{title} (on {format_minute(proof['proved_at'])}, by certificate {proof['certificate']})"
    )


def show_keys(told: Document, given: Document) -> None:
    """Print public keys; with --pem those that are trusted, for publication."""
    if given.get("pem"):
        good = [k for k in told["items"] if k["standing"] != "withdrawn"]
        typer.echo("".join(k["pem"] for k in good), nl=False)
        return
    show_rows("certificate keys", told["items"], ("key_id", "standing", "created_at"), "table")


def show_authority(told: Document, given: Document) -> None:
    """Print the authority's certificate, or the kernel arguments that carry it."""
    typer.echo(told["kernel"] if given.get("kernel") else told["pem"].rstrip())


def show_cohorts(told: Document, _given: Document) -> None:
    """Print cohorts, learned floors and outliers."""
    rows = [(c["profile"], c["versions"], c["nodes"], c["sound"]) for c in told["cohorts"]]
    _table(("profile", "versions", "nodes", "sound"), rows, "Cohorts")
    floors = [
        (
            b["profile"],
            b["metric"],
            f"{b['floor']:.6g}",
            f"{b['level']:.6g}",
            f"{b['nodes']} nodes, {b['racks']} racks",
        )
        for b in told["baselines"]
    ]
    _table(("profile", "metric", "floor", "level", "learned from"), floors, "Learned floors")
    worst = [
        (o["node"], o["metric"], f"{o['value']:.6g}", f"{o['typical']:.6g}", o["among"])
        for o in told["outliers"]
    ]
    _table(("node", "metric", "measured", "typical", "among"), worst, "Outliers")


def show_recovery(told: Document, given: Document) -> None:
    """Print why nothing is written to devices, and every difference that needs a decision."""
    if not told["look_only"]:
        _print("the daemon acts: no restore waits to be settled")
        for name, vrf in sorted(told["adopted_ports"].items()):
            _print(f"{name} stays in {vrf} by a person's word, and no node owns it")
        return
    _print(f"nothing is written to any device: {told['look_only']}")
    if not told["surveyed_at"]:
        _print("rows and leaves were not compared yet: `provisioner serve` does it")
        return
    every = told["items"]
    waiting = [d for d in every if d["settled"] is None]
    shown = every if given.get("all") else waiting
    if shown:
        show_rows("recovery list", shown, (), "table")
    count = f"{len(waiting)} wait for a word, {len(every) - len(waiting)} are settled"
    _print(f"{count}; compared at {format_minute(told['surveyed_at'])} UTC")


View = Callable[[Document, Document], None]
