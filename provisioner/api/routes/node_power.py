"""Routes of a host's power: its state now, and a person's request to switch it.

A request opens an operation of the node, which the daemon carries out like any other: the intent is
in the ledger before the BMC gets it, and the next daemon goes on with it. The request's own
operation shows the progress.

A tenant reads the power of the nodes that are released to it, and asks for the acts of
`api_tenant_power`. The name of the tenant is in the request, since the node may have another one
when the request is carried out.
"""

from __future__ import annotations

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, build_failure, find_node, open_operation
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply, read_bmc
from provisioner.api.problem import build_refusal
from provisioner.api.route import ANYBODY, OPERATORS_AND_TENANTS, Effect, Route, format_etag
from provisioner.model.access import ChangeKind, ChangeRequest
from provisioner.model.base import Record
from provisioner.model.inventory import Power
from provisioner.model.node import Node
from provisioner.model.times.instant import Instant
from provisioner.planning.lifecycle.power_requests import (
    HOST,
    PowerAct,
    describe_effect,
    find_objection,
    find_tenant_objection,
    serves_tenant,
    write_want,
)

TAG = "power"


class PowerView(Record):
    """The power state of a host, as its BMC reports it now."""

    node: str = Field(description="Name of the node.")
    power: Power = Field(description="State that the BMC reports; Unknown: it reports none.")
    read_at: Instant = Field(description="Time of the reading.")


class PowerChange(Record):
    """The body of a power request."""

    action: PowerAct = Field(description="on, off (at once, without a shutdown), or cycle.")
    tenant: bool = Field(
        default=False,
        description="Its tenant asks for it: a node that serves is switched only then. "
        "Implied for a tenant's token.",
    )


async def show_power(ask: Ask) -> Reply:
    """Return the power state that the host's BMC reports; it is only read."""
    node = await ask.read_node()
    if not (ask.caller.staff or serves_tenant(node)):
        unblock = "Wait until its state is released: GET /v1/nodes/NODE."
        raise build_refusal(409, "power", "It is not released to you now", unblock)
    state = await read_bmc(ask, node, HOST, lambda client: client.power())
    return Reply(PowerView(node=node.id, power=state, read_at=ask.now))


async def ask_power(ask: Ask) -> Reply:
    """Ask to switch a host on or off, or off and on; a tenant, one that is released to it."""
    node = await ask.read_node()
    ask.check_match(format_etag(node.generation))
    arguments = ask.body.model_dump(mode="json")
    owner = "" if ask.caller.staff else ask.caller.tenant
    if owner:
        _check_policy(ask)
        arguments |= {"tenant": True, "owner": owner}
    kind = ChangeKind.NODE_POWER
    return await ask.parts.works.submit_change(ask, kind, node.id, owner, arguments)


def _check_policy(ask: Ask) -> None:
    """Refuse an act that the site does not leave to its tenants."""
    allowed = ask.parts.settings.api_tenant_power
    if ask.body.action not in allowed:
        title = f"This site does not let tenants switch power: {ask.body.action}"
        rest = f" It lets them ask for: {', '.join(allowed)}." if allowed else ""
        unblock = "Ask the operators of the site, who can do it (api_tenant_power)."
        raise build_refusal(403, "policy", title, unblock + rest)


async def change_power(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Open the operation that carries a power request out."""
    judged = await _judge(parts, asked)
    if isinstance(judged, Outcome):
        return judged
    act = PowerAct(asked.arguments["action"])
    want = write_want(act, for_tenant=_is_for_tenant(asked))
    return await open_operation(parts, asked, judged.id, want)


async def foresee_power(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the effect of a power request."""
    judged = await _judge(parts, asked)
    if isinstance(judged, Outcome):
        return Forecast(blockers=judged.blockers)
    return Forecast(describe_effect(judged, PowerAct(asked.arguments["action"])))


async def _judge(parts: ApiParts, asked: ChangeRequest) -> Node | Outcome:
    node = await find_node(parts, asked)
    if isinstance(node, Outcome):
        return node
    owner = str(asked.arguments.get("owner", ""))
    if owner:
        case = await parts.store.cases.get_open(node.id)
        objection = find_tenant_objection(node, owner, case, parts.clock.now())
    else:
        objection = find_objection(node, for_tenant=_is_for_tenant(asked))
    return node if objection is None else build_failure(objection)


def _is_for_tenant(asked: ChangeRequest) -> bool:
    return bool(asked.arguments.get("tenant"))


ROUTES = (
    Route(
        "GET",
        "/nodes/{node}/power",
        "show_node_power",
        TAG,
        "Show the power state that a host's BMC reports now.",
        ANYBODY,
        show_power,
        {200: PowerView},
        heavy=True,
        refusals={
            409: "This process reaches no BMC, or it is not released to the tenant that asks.",
            503: "The BMC does not answer.",
        },
    ),
    Route(
        "POST",
        "/nodes/{node}/power",
        "switch_node_power",
        TAG,
        "Switch a host on or off, or off and on again; one that serves at its tenant's wish only.",
        OPERATORS_AND_TENANTS,
        ask_power,
        {200: OperationView, 202: OperationView},
        effect=Effect.MOMENTARY,
        body=PowerChange,
        entity=True,
        refusals={
            403: "The site does not leave this act to its tenants.",
            409: "It serves a tenant that did not ask, or work on it is under way.",
        },
        example={"action": "cycle"},
    ),
)
