"""Routes of policies: the precautions of campaigns, kept under names that clients choose.

A campaign copies the policy that it names, so that a change here never reaches one under way. A
merge is resolved when it is asked for: what another person approves is the whole policy.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationError

from provisioner.api.changes import Forecast, Outcome, build_objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Counted, Effect, Route, format_etag
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.campaign import NAME_PATTERN, NamedPolicy, Policy

TAG = "campaigns"
POLICIES_MAX = 200
MATCH = "generation"  # argument: the generation that was read; 0: there was none


class PolicyList(Counted):
    """All policies, by name."""

    items: tuple[NamedPolicy, ...]


class PolicyFields(Record):
    """The body of a policy; fields that it leaves out get their defaults."""

    policy: Policy = Field(Policy(), description="The precautions of a campaign that names it.")
    note: str = Field("", max_length=300, description="What it is for, in a sentence.")


class PolicyPatch(Record):
    """A merge patch of a policy (RFC 7396): lists and limits by their whole."""

    policy: dict[str, Any] | None = Field(
        None, description="Fields of the policy that change; null sets one to its default."
    )
    note: str | None = Field(None, max_length=300, description="What it is for, in a sentence.")


class _Name(Record):
    name: str = Field(pattern=NAME_PATTERN)


def merge_document(document: Any, patch: Any) -> Any:
    """Return a JSON value with a merge patch laid over it (RFC 7396 section 2)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_document(merged.get(name), value)
    return merged


async def list_policies(ask: Ask) -> Reply:
    items = tuple(await ask.parts.store.policies.list())
    return Reply(PolicyList(items=items, total=len(items)))


async def show_policy(ask: Ask) -> Reply:
    policy = await _read(ask)
    return Reply(policy, etag=format_etag(policy.generation))


async def _read(ask: Ask) -> NamedPolicy:
    policy = await ask.parts.store.policies.get(ask.read_word("policy_name"))
    if policy is None:
        raise refuse_missing("policy")
    return policy


async def put_policy(ask: Ask) -> Reply:
    """Ask for a policy, new or instead of the present one."""
    name = ask.read_word("policy_name")
    try:
        _Name(name=name)
    except ValidationError:
        unblock = "Use small letters, digits, '.', '_' and '-', at most 63."
        raise build_refusal(400, "name", "This is no name of a policy", unblock, name) from None
    present = await ask.parts.store.policies.get(name)
    ask.check_match("" if present is None else format_etag(present.generation))
    if present is None and len(await ask.parts.store.policies.list()) >= POLICIES_MAX:
        unblock = "Remove those that no person uses any more."
        raise build_refusal(409, "many", f"There are {POLICIES_MAX} policies", unblock)
    return await _ask_put(ask, name, present, ask.body)


async def merge_policy(ask: Ask) -> Reply:
    """Ask for some fields of a policy otherwise."""
    present = await _read(ask)
    ask.check_match(format_etag(present.generation))
    patch: PolicyPatch = ask.body
    try:
        merged = merge_document(present.policy.model_dump(mode="json"), patch.policy or {})
        policy = Policy.model_validate(merged, strict=False)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        detail = f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"[:300]
        unblock = "See docs/campaigns.md for what a policy holds."
        raise build_refusal(400, "policy", "The merge makes no policy", unblock, detail) from None
    note = present.note if patch.note is None else patch.note
    return await _ask_put(ask, present.name, present, PolicyFields(policy=policy, note=note))


async def _ask_put(ask: Ask, name: str, present: NamedPolicy | None, fields: PolicyFields) -> Reply:
    arguments = fields.model_dump(mode="json")
    arguments[MATCH] = 0 if present is None else present.generation
    return await ask.parts.works.submit_change(ask, ChangeKind.POLICY_PUT, name, "", arguments)


async def delete_policy(ask: Ask) -> Reply:
    present = await _read(ask)
    ask.check_match(format_etag(present.generation))
    arguments = {MATCH: present.generation}
    kind = ChangeKind.POLICY_DELETE
    return await ask.parts.works.submit_change(ask, kind, present.name, "", arguments)


async def change_policy(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a change of a policy, unless another one came first."""
    now = parts.clock.now()
    read = int(asked.arguments[MATCH])
    if asked.kind is ChangeKind.POLICY_DELETE:
        present = await parts.store.policies.get(asked.subject)
        if present is None or present.generation != read:
            return _object_to_stale(asked.subject)
        await parts.store.policies.drop(present, asked.asked_by, now)
        return Outcome(RequestState.DONE, {"policy": asked.subject})
    fields = {name: asked.arguments[name] for name in PolicyFields.model_fields}
    body = PolicyFields.model_validate(fields, strict=False)
    present = await parts.store.policies.get(asked.subject)
    if present is not None and (present.policy, present.note) == (body.policy, body.note):
        return Outcome(RequestState.DONE, _name(present), note="it was so before")
    if (0 if present is None else present.generation) != read:
        return _object_to_stale(asked.subject)
    changed = NamedPolicy(
        name=asked.subject,
        policy=body.policy,
        note=body.note,
        by=asked.asked_by,
        at=now,
        generation=read + 1,
    )
    return Outcome(RequestState.DONE, _name(await parts.store.policies.put(changed, now)))


def _name(policy: NamedPolicy) -> dict[str, Any]:
    return {"policy": policy.name, "generation": policy.generation}


def _object_to_stale(name: str) -> Outcome:
    return build_objection(name, "it was changed meanwhile", "Read it again, then decide anew.")


async def foresee_policy(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    present = await parts.store.policies.get(asked.subject)
    if asked.kind is ChangeKind.POLICY_DELETE:
        return Forecast((f"{asked.subject} is removed. Campaigns keep their copies of it.",))
    fields = {name: asked.arguments[name] for name in PolicyFields.model_fields}
    after = PolicyFields.model_validate(fields, strict=False)
    base = Policy() if present is None else present.policy
    before = base.model_dump(mode="json")
    now = after.policy.model_dump(mode="json")
    against = "the defaults" if present is None else "the present one"
    lines = tuple(
        f"{name}: {before[name]} -> {now[name]}" for name in now if before[name] != now[name]
    )
    first = f"{asked.subject}, compared with {against}: {len(lines)} fields differ."
    return Forecast((first, *lines, "No campaign is changed by it."))


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        "/policies",
        "list_policies",
        TAG,
        "List the policies that campaigns can name.",
        VIEWERS,
        list_policies,
        {200: PolicyList},
    ),
    Route(
        "GET",
        "/policies/{policy_name}",
        "show_policy",
        TAG,
        "Show one policy.",
        VIEWERS,
        show_policy,
        {200: NamedPolicy},
        entity=True,
    ),
    Route(
        "PUT",
        "/policies/{policy_name}",
        "put_policy",
        TAG,
        "Create or replace a policy. No campaign is changed by it.",
        OPERATORS,
        put_policy,
        _ASKED,
        effect=Effect.LASTING,
        body=PolicyFields,
        example={"policy": {"canary": {"size": 8}}, "note": "for BMC firmware"},
        entity=True,
    ),
    Route(
        "PATCH",
        "/policies/{policy_name}",
        "merge_policy",
        TAG,
        "Change some fields of a policy (a merge patch, RFC 7396).",
        OPERATORS,
        merge_policy,
        _ASKED,
        effect=Effect.LASTING,
        body=PolicyPatch,
        example={"policy": {"budget_strict": True}},
        entity=True,
    ),
    Route(
        "DELETE",
        "/policies/{policy_name}",
        "delete_policy",
        TAG,
        "Remove a policy. Campaigns keep their copies of it.",
        OPERATORS,
        delete_policy,
        _ASKED,
        effect=Effect.LASTING,
        entity=True,
    ),
)
