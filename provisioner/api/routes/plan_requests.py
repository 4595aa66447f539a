"""The route of the requests that a node's plan would send to its BMCs. Nothing is sent but reads.

It logs in to the node's BMCs with the stored credentials; no answer of theirs but the requests that
follow from them is shown.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic import Field

from provisioner.adapters.redfish.dry_run import StandingClock, Write
from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import build_refusal
from provisioner.api.route import VIEWERS, Route
from provisioner.api.routes.node_parts import plan_node
from provisioner.execution.plan_requests import NodeBmcs, Rehearsal, StepRequests
from provisioner.model.base import Record
from provisioner.model.matrix import MAINTENANCE
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Step

_SERVED_AT = "http://provisioner.invalid"  # the daemon's address and the boot's token are not shown


class PlanRequestsView(Record):
    """The requests of a node's plan, in the order of sending, up to its end or a refusal."""

    writes: tuple[Write, ...] = Field(description="All requests that change something.")
    refused: Blocker | None = Field(description="Why the plan goes no further; null: it does.")
    steps: tuple[StepRequests, ...] = Field(description="The steps, with the requests of each.")


async def show_plan_requests(ask: Ask) -> Reply:
    """Return the requests of the node's plan; its BMCs are read now."""
    parts = ask.parts
    node = await ask.read_node()
    if parts.vault is None or parts.transport is None:
        raise build_refusal(409, "requests", "This process reaches no BMC", "Ask the daemon.")
    plan, inventory = await plan_node(ask, node)
    clock = StandingClock()
    image = parts.matrix.images.get(MAINTENANCE)
    with tempfile.TemporaryDirectory() as folder:

        def find_file(step: Step) -> tuple[Path, bool]:
            file = parts.artifacts / step.artifact
            if file.is_file():
                return file, True
            stand_in = Path(folder) / Path(step.artifact).name
            stand_in.touch()
            return stand_in, False

        rehearsal = Rehearsal(
            reach=NodeBmcs(node, parts.transport, parts.vault, clock).open_bmc,
            find_file=find_file,
            url=_SERVED_AT,
            clock=clock,
            image=image.artifact if image is not None else "",
            way=parts.settings.maintenance_boot,
        )
        recorded = await rehearsal.record(plan, inventory)
    return Reply(
        PlanRequestsView(writes=recorded.writes, refused=recorded.refused, steps=recorded.steps)
    )


ROUTES = (
    Route(
        "GET",
        "/nodes/{node}/plan/requests",
        "show_plan_requests",
        "plans",
        "List every request that its plan would send to its BMCs; they are only read.",
        VIEWERS,
        show_plan_requests,
        {200: PlanRequestsView},
        heavy=True,
        refusals={409: "This process reaches no BMC."},
    ),
)
