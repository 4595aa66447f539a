"""The columns of the tables that show lists.

A column is `title=field`, or `field` alone. A field may have a dot for a field in it, and after a
colon the form of display: `at` (a time), `n` (a count), `all` (joined by commas). Lists without
columns of their own show the fields of their rows.
"""

from __future__ import annotations

COLUMNS: dict[str, str] = {
    "node list": "node=id kind state VRF=vrf tenant note=waits_for",
    "switch list": "switch=id state release note=waits_for",
    "tenant list": (
        "tenant=name VRF=vrf VNI=l3vni P_Key=pkey:hex phase nodes wanted=nodes_wanted units:units"
    ),
    "certificate list": (
        "certificate=id node release issued=issued_at:at expires=expires_at:at "
        "revoked=revoked_at:at why=revoked_reason"
    ),
    "certificate keys": "key=key_id standing made=created_at:at",
    "campaign list": "campaign=id state release select by=created_by started=started_at:at reason",
    "policy list": "policy=name changed=at:at by generation note",
    "hardware list": "node=name kind origin release rack=location.rack os_disk ports:n outlets:n",
    "image list": "image=name present format size_bytes sha256 pinned_by:n nodes:n note",
    "overlay list": "file name sha256 characters",
    "pin list": "of=scope name release until=expires_at:at expired by reason",
    "case list": (
        "case=id stage=stage_now service tenant suspect sure=confidence:part note=note_now"
    ),
    "notice list": "at=at:at tenant node kind from=effective_at:at delivery=delivery_now text",
    "alert list": (
        "node alert=id target classifications:all since=since:at count standing says=message"
    ),
    "drift": "node state release target why behind=behind:behind",
    "debt": "node component=kind version slots:all waits_for source",
    "observation list": (
        "node read=at:at would:n plan=plan_blockers:n ports:n cables=cabling:n health:n "
        "refused=certificate:n unread:n"
    ),
    "credential list": (
        "login=name changed=changed_at:at due=due_at:at cause shown_to:all failures why=problem"
    ),
    "token list": (
        "token=id subject role tenant scope=scope:scope made=made_at:at expires=expires_at:at good"
    ),
    "session list": "session=id subject roles:all tenant used=used_at:at expires=expires_at:at",
    "webhook list": (
        "webhook=name url kinds:all nodes:all waiting=pending dead sent=delivered "
        "last=delivered_at:at paused=paused_why"
    ),
    "webhook dead": "row=seq event time=at:at kind node tries why=error",
    "audit list": "row=seq when=at:at kind about=node what=detail:json",
    "audit exports": (
        "receiver row=position waiting refused=rejected taken=taken_at:at "
        "failing=failing_since:at error"
    ),
    "event list": "row=seq when=at:at node kind what=detail:json",
    "agents list": "node state heartbeat=seen_at:at version listens_at=url command",
    "operation list": "operation=id kind subject state phase note since=opened_at:at",
    "request list": "request=id kind subject state by=asked_by asked=opened_at:at note",
    "release list": "release=name supersedes ready profiles:all",
    "artifact list": "artifact=name present size sha256 pinned_by:n",
    "node actions": (
        "action operation attempt status began=intended_at:at ended=settled_at:at outcome"
    ),
    "recovery list": (
        "what=subject difference=kind row_says=row leaves_say=world tenant_there=tenant "
        "word=settled"
    ),
    "cohort compare": "metric nodes change:percent p:short says=effect",
}

# The sentence for an empty list, with the command that makes the first row.
EMPTY: dict[str, str] = {
    "node list": "There is no such node: `provisioner intake --file LIST` takes nodes in.",
    "tenant list": "There is no tenant yet: `provisioner tenant apply NAME` makes one.",
    "campaign list": "There is no campaign yet: `provisioner campaign create` drafts one.",
    "pin list": "Nothing is pinned: each node has the release of its campaign, or of intake.",
    "credential list": "No password is kept or due: intake sets the first.",
    "token list": "There is no token yet: `provisioner token create` makes one.",
    "webhook list": "There is no webhook yet: `provisioner webhook add NAME` adds one.",
    "audit exports": "The journal is exported to no receiver: settings audit_syslog, audit_otlp.",
    "webhook dead": "Nothing waits that could not be sent.",
    "drift": "Every node runs what it is to run.",
    "debt": "Nothing waits for a reset.",
    "observation list": "No node was read: `provisioner mode` says whether this daemon observes.",
    "observation ports": "Each port in a tenant's network is a node's, as far as leaves were read.",
    "agents list": "No maintenance agent has called yet.",
    "cohort compare": "No node was measured with both.",
}
