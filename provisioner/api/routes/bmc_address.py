"""The route of a BMC that got another address: proved there, then its row changes.

Nothing is changed on the BMC. The proof is read twice, for the dry run and for the change.
"""

from __future__ import annotations

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, build_failure, build_objection, find_node
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal
from provisioner.api.route import OPERATORS, Effect, Route, format_etag
from provisioner.api.routes import intake
from provisioner.execution.observe.discover import prove_move
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker


class BmcAddressChange(Record):
    """The body of a request to follow a BMC to another address."""

    url: str = Field(min_length=1, max_length=300, description="Its address now: https://10.0.1.7.")
    bmc: str = Field(
        "host", min_length=1, max_length=63, description="Which BMC of the node: host, DPU_0."
    )


async def ask_address(ask: Ask) -> Reply:
    """Ask to follow a BMC to another address."""
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
    judged = await _judge(parts, asked)
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
    judged = await _judge(parts, asked)
    if isinstance(judged, Outcome):
        return Forecast(blockers=judged.blockers)
    name = f"{judged.id}/{asked.arguments['bmc']}"
    proved = f"{name} is at {asked.arguments['url']}: pinned certificate, login and serial agree."
    change = f"Its row changes from {_read_url(judged, asked)}; nothing is changed on the BMC."
    return Forecast((proved, change))


def _read_url(node: Node, asked: ChangeRequest) -> str:
    return next(b.url for b in node.bmcs if b.name == asked.arguments["bmc"])


async def _judge(parts: ApiParts, asked: ChangeRequest) -> Node | Outcome:
    """Return the node if the BMC is proved to be at its new address."""
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


ROUTES = (
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
