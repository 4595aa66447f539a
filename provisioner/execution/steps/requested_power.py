"""A person's power request as physical work: intent, act, observation. It may be repeated."""

from __future__ import annotations

from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.steps.activations import power_off, power_on
from provisioner.execution.steps.quiet import check_quiet
from provisioner.model.inventory import Power
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.power_requests import PowerAct, judge_effect, write_want


def build_power_work(site: Site, node: Node, host: Redfish, act: PowerAct) -> Work:
    """Return the work of one request; nothing is switched off while firmware is written."""

    async def look() -> Snapshot | Blocker:
        if act is not PowerAct.ON and (written := await check_quiet(site, node)) is not None:
            return written
        return {"power": (await host.power()).value}

    async def send() -> Sent | Blocker:
        if act is not PowerAct.OFF and (wet := await host.admit_act()) is not None:
            return wet
        if act is not PowerAct.ON and (stuck := await power_off(site, node, host)) is not None:
            return stuck
        if act is PowerAct.OFF:
            return Sent()
        refused = await power_on(site, node, host)
        return Sent() if refused is None else refused

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        state = await host.power()
        if state is act.end:
            return None
        return Blocker(
            reason=Reason.POWER,
            subject=node.id,
            detail=f"the power state is {state}, {act.end} was asked for",
            unblock="Look at the power supplies and the BMC's event log.",
        )

    return Work(
        act=Act(
            name=f"{write_want(act)} {node.id}",
            before={"power": act.value},
            look=look,
            send=send,
            happened=lambda before, now: judge_effect(act, _state(before), _state(now)),
            request_max_s=4 * site.settings.power_limit_s,
        ),
        finish=finish,
    )


def _state(seen: Snapshot) -> Power:
    return Power(seen.get("power", Power.UNKNOWN.value))
