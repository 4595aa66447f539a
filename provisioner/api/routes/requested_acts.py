"""The routes of people's requests for one act at a node: the time of its BMCs, a reset of its GPUs.

A request opens an operation of the node, which the daemon carries out like any other: the intent is
in the ledger before a device gets it, and the next daemon goes on with it.
"""

from __future__ import annotations

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, build_failure, find_node, open_operation
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.route import OPERATORS, Effect, Route, format_etag
from provisioner.model.access import ChangeKind, ChangeRequest
from provisioner.model.base import Record
from provisioner.model.node import Node
from provisioner.planning.lifecycle import gpu_requests
from provisioner.planning.lifecycle.operator_requests import WANT, describe_effect, find_objection


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
    """Return the effect of the request."""
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
    """Ask to reset all GPUs of a host."""
    node = await ask.read_node()
    ask.check_match(format_etag(node.generation))
    arguments = ask.body.model_dump(mode="json")
    kind = ChangeKind.NODE_GPU_RESET
    return await ask.parts.works.submit_change(ask, kind, node.id, "", arguments)


async def reset_gpus(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Open the operation that resets the GPUs."""
    judged = await _judge_gpus(parts, asked)
    if isinstance(judged, Outcome):
        return judged
    for_tenant = bool(asked.arguments.get("tenant"))
    want = gpu_requests.WANT_FOR_TENANT if for_tenant else gpu_requests.WANT
    return await open_operation(parts, asked, judged.id, want)


async def foresee_gpu_reset(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the effect of a reset of GPUs."""
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
        effect=Effect.MOMENTARY,
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
