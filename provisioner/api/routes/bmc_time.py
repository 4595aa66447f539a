"""The route of a person's request to set the time of a node's BMCs.

A request opens an operation of the node, which the daemon carries out like any other: the intent is
in the ledger before a BMC gets it, and the next daemon goes on with it.
"""

from __future__ import annotations

from provisioner.api.changes import Forecast, Outcome, build_failure, build_objection
from provisioner.api.operations import OperationView, encode_id
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.route import OPERATORS, Route, format_etag
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.node import Node
from provisioner.planning.lifecycle.time_requests import WANT, describe_effect, find_objection


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
    now = parts.clock.now()
    operation = await parts.store.operations.open(judged.id, WANT, now)
    if operation is None:
        return build_objection(judged.id, "an operation of it is under way", "Wait for its end.")
    event = RequestCarriedOut(
        about=judged.id,
        request=WANT,
        by=asked.asked_by,
        id=asked.id,
        approved=asked.decided_by,
    )
    await parts.store.journal.append(event, now)
    return Outcome(RequestState.UNDER_WAY, {"operation": encode_id(operation.id)})


async def foresee_time(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the effect of the request."""
    judged = await _judge(parts, asked)
    if isinstance(judged, Outcome):
        return Forecast(blockers=judged.blockers)
    return Forecast(describe_effect(judged, parts.settings.bmc_ntp_servers))


async def _judge(parts: ApiParts, asked: ChangeRequest) -> Node | Outcome:
    node = await parts.store.nodes.get(asked.subject)
    if node is None:
        detail = "there is no such node any more"
        return build_objection(asked.subject, detail, "Look at the list.")
    objection = find_objection(node)
    return node if objection is None else build_failure(objection)


ROUTES = (
    Route(
        "POST",
        "/nodes/{node}/bmc-time",
        "set_bmc_time",
        "nodes",
        "Set the time of a node's BMCs: the site's NTP servers, else the daemon's time once.",
        OPERATORS,
        ask_time,
        {200: OperationView, 202: OperationView},
        entity=True,
        refusals={409: "It has no BMC in use, or work on it is under way."},
    ),
)
