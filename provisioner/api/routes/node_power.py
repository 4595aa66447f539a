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

from provisioner.api.changes import (
    Forecast,
    Outcome,
    build_failure,
    build_objection,
    find_node,
    open_operation,
)
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply, read_bmc
from provisioner.api.problem import build_refusal
from provisioner.api.route import (
    ANYBODY,
    OPERATORS,
    OPERATORS_AND_TENANTS,
    Effect,
    Route,
    format_etag,
)
from provisioner.api.routes import intake
from provisioner.execution.observe.discover import prove_move
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Power
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.model.times.instant import Instant
from provisioner.planning.lifecycle import gpu_requests
from provisioner.planning.lifecycle.operator_requests import WANT, describe_effect, find_objection
from provisioner.planning.lifecycle.power_requests import (
    HOST,
    PowerAct,
    find_tenant_objection,
    serves_tenant,
    write_want,
)
from provisioner.planning.lifecycle.power_requests import (
    describe_effect as power_requests_describe_effect,
)
from provisioner.planning.lifecycle.power_requests import (
    find_objection as power_requests_find_objection,
)

# ------------------------------------------------------------------------------
# The routes of people's requests for one act at a node: the time of its BMCs, a reset of its GPUs.
#
# A request opens an operation of the node, which the daemon carries out like any other: the intent
# is in the ledger before a device gets it, and the next daemon goes on with it.


class GpuReset(Record):
    """The body of a request to reset GPUs."""

    tenant: bool = Field(
        default=False,
        description="Its tenant asks for it: the GPUs of a node that serves are reset only then.",
    )


async def ask_time(ask: Ask) -> Reply:
    """Ask to set the time of a node's BMCs."""
    node = await ask.read_node()
    ask.check_match(format_etag(node.generation))
    return await ask.parts.works.submit_change(ask, ChangeKind.NODE_BMC_TIME, node.id, "", {})


async def change_time(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Open the operation that carries the request out."""
    judged = await _judge(parts, asked)
    if isinstance(judged, Outcome):
        return judged
    return await open_operation(parts, asked, judged.id, WANT)


async def foresee_time(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    judged = await _judge(parts, asked)
    if isinstance(judged, Outcome):
        return Forecast(blockers=judged.blockers)
    return Forecast(describe_effect(judged, parts.settings.bmc_ntp_servers))


async def _judge(parts: ApiParts, asked: ChangeRequest) -> Node | Outcome:
    node = await find_node(parts, asked)
    if isinstance(node, Outcome):
        return node
    objection = find_objection(node)
    return node if objection is None else build_failure(objection)


async def ask_gpu_reset(ask: Ask) -> Reply:
    node = await ask.read_node()
    ask.check_match(format_etag(node.generation))
    arguments = ask.body.model_dump(mode="json")
    kind = ChangeKind.NODE_GPU_RESET
    return await ask.parts.works.submit_change(ask, kind, node.id, "", arguments)


async def reset_gpus(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    judged = await _judge_gpus(parts, asked)
    if isinstance(judged, Outcome):
        return judged
    for_tenant = bool(asked.arguments.get("tenant"))
    want = gpu_requests.WANT_FOR_TENANT if for_tenant else gpu_requests.WANT
    return await open_operation(parts, asked, judged.id, want)


async def foresee_gpu_reset(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    judged = await _judge_gpus(parts, asked)
    if isinstance(judged, Outcome):
        return Forecast(blockers=judged.blockers)
    return Forecast(gpu_requests.describe_effect(judged))


async def _judge_gpus(parts: ApiParts, asked: ChangeRequest) -> Node | Outcome:
    node = await find_node(parts, asked)
    if isinstance(node, Outcome):
        return node
    for_tenant = bool(asked.arguments.get("tenant"))
    objection = gpu_requests.find_objection(node, for_tenant=for_tenant)
    return node if objection is None else build_failure(objection)


REQUESTED_ACTS_ROUTES = (
    Route(
        "POST",
        "/nodes/{node}/bmc-time",
        "set_bmc_time",
        "nodes",
        "Set the time of a node's BMCs: the site's NTP servers, else the daemon's time once.",
        OPERATORS,
        ask_time,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        entity=True,
        refusals={409: "It has no BMC in use, or work on it is under way."},
    ),
    Route(
        "POST",
        "/nodes/{node}/gpu-reset",
        "reset_node_gpus",
        "nodes",
        "Reset all GPUs of a host together; of one that serves at its tenant's wish only.",
        OPERATORS,
        ask_gpu_reset,
        {200: OperationView, 202: OperationView},
        effect=Effect.MOMENTARY,
        body=GpuReset,
        entity=True,
        refusals={409: "It serves a tenant that did not ask, or work on it is under way."},
        example={"tenant": False},
    ),
)


# ------------------------------------------------------------------------------
# The route of a BMC that got another address: proved there, then its row changes.
#
# Nothing is changed on the BMC. The proof is read twice, for the dry run and for the change.


class BmcAddressChange(Record):
    """The body of a request to follow a BMC to another address."""

    url: str = Field(min_length=1, max_length=300, description="Its address now: https://10.0.1.7.")
    bmc: str = Field(
        "host", min_length=1, max_length=63, description="Which BMC of the node: host, DPU_0."
    )


async def ask_address(ask: Ask) -> Reply:
    node = await ask.read_node()
    ask.check_match(format_etag(node.generation))
    try:
        intake.check_url(ask.body.url)
    except InputError as error:
        raise build_refusal(400, "url", "The address cannot be used", error.remedy) from None
    arguments = ask.body.model_dump(mode="json")
    kind = ChangeKind.NODE_BMC_ADDRESS
    return await ask.parts.works.submit_change(ask, kind, node.id, "", arguments)


async def change_address(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Prove the BMC at its new address, and store it."""
    judged = await _judge_bmc_address(parts, asked)
    if isinstance(judged, Outcome):
        return judged
    url = str(asked.arguments["url"]).rstrip("/")
    bmcs = tuple(
        b.model_copy(update={"url": url}) if b.name == asked.arguments["bmc"] else b
        for b in judged.bmcs
    )
    event = RequestCarriedOut(
        request="bmc_address",
        by=asked.asked_by,
        id=asked.id,
        approved=asked.decided_by,
        why=f"{asked.arguments['bmc']}: {_read_url(judged, asked)} -> {url}",
    )
    row = judged.model_copy(update={"bmcs": bmcs})
    await parts.store.nodes.save_requested([row], event, parts.clock.now())
    return Outcome(RequestState.DONE, {"bmc": asked.arguments["bmc"], "url": url})


async def foresee_address(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the effect of the request, after the same proof."""
    judged = await _judge_bmc_address(parts, asked)
    if isinstance(judged, Outcome):
        return Forecast(blockers=judged.blockers)
    name = f"{judged.id}/{asked.arguments['bmc']}"
    proved = f"{name} is at {asked.arguments['url']}: pinned certificate, login and serial agree."
    change = f"Its row changes from {_read_url(judged, asked)}; nothing is changed on the BMC."
    return Forecast((proved, change))


def _read_url(node: Node, asked: ChangeRequest) -> str:
    return next(b.url for b in node.bmcs if b.name == asked.arguments["bmc"])


async def _judge_bmc_address(parts: ApiParts, asked: ChangeRequest) -> Node | Outcome:
    node = await find_node(parts, asked)
    if isinstance(node, Outcome):
        return node
    name = str(asked.arguments["bmc"])
    url = str(asked.arguments["url"]).rstrip("/")
    bmc = next((b for b in node.bmcs if b.name == name), None)
    if bmc is None or node.kind is NodeKind.SWITCH:
        detail = f"it has no BMC {name[:63]}"
        return build_objection(node.id, detail, "`provisioner node show` names its BMCs.")
    if bmc.url == url:
        return build_objection(node.id, "its row has this address already", "Nothing is to do.")
    owner = next((n.id for n in await parts.store.nodes.list() for b in n.bmcs if b.url == url), "")
    if owner:
        detail = f"{url} is the address of {owner}"
        return build_objection(node.id, detail, f"Follow the BMC of {owner} to its address first.")
    if works := [o.want for o in await parts.store.operations.list_active() if o.node == node.id]:
        detail = f"an operation of it is under way: {works[0]}"
        return build_objection(node.id, detail, "Wait for its end.")
    if parts.transport is None or parts.vault is None:
        return build_objection(node.id, "this daemon reaches no BMC", "Ask one that drives nodes.")
    refusal: Blocker | None = await prove_move(parts.transport, parts.vault, node.id, bmc, url)
    return node if refusal is None else build_failure(refusal)


BMC_ADDRESS_ROUTES = (
    Route(
        "POST",
        "/nodes/{node}/bmc-address",
        "follow_bmc",
        "nodes",
        "Follow a BMC to another address: its pinned certificate, login and serial prove it there.",
        OPERATORS,
        ask_address,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=BmcAddressChange,
        entity=True,
        refusals={409: "It is not proved to be this BMC, or work on the node is under way."},
        example={"url": "https://10.0.1.77", "bmc": "host"},
    ),
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
    judged = await _judge_node_power(parts, asked)
    if isinstance(judged, Outcome):
        return judged
    act = PowerAct(asked.arguments["action"])
    want = write_want(act, for_tenant=_is_for_tenant(asked))
    return await open_operation(parts, asked, judged.id, want)


async def foresee_power(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    judged = await _judge_node_power(parts, asked)
    if isinstance(judged, Outcome):
        return Forecast(blockers=judged.blockers)
    return Forecast(power_requests_describe_effect(judged, PowerAct(asked.arguments["action"])))


async def _judge_node_power(parts: ApiParts, asked: ChangeRequest) -> Node | Outcome:
    node = await find_node(parts, asked)
    if isinstance(node, Outcome):
        return node
    owner = str(asked.arguments.get("owner", ""))
    if owner:
        case = await parts.store.cases.get_open(node.id)
        objection = find_tenant_objection(node, owner, case, parts.clock.now())
    else:
        objection = power_requests_find_objection(node, for_tenant=_is_for_tenant(asked))
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
