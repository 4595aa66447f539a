"""Carry out one step for every slot through the ledger: precheck, apply, wait, verify.

The executor decides nothing: the step names the action, the version it starts from, the method and
the conditions that must still hold. It may be entered again at any point; an open ledger row is
taken up first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from provisioner.components.kind import DEPLOY
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.work import Site, Work, do_work
from provisioner.execution.steps import (
    activations,
    methods_inband,
    methods_redfish,
    methods_switch,
    requested_acts,
)
from provisioner.execution.steps.deployment import deploy_image
from provisioner.execution.steps.methods_redfish import (
    BFB,
    PULLED,
    SETTINGS_METHODS,
    prepare_file,
    require_offer,
    write_settings,
)
from provisioner.execution.steps.methods_switch import install_sonic_image
from provisioner.model import host_packages
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step, StepKind
from provisioner.planning.certification.host_settings import NO_SETS, HostSets
from provisioner.planning.path.history import read_slots, read_step
from provisioner.planning.path.hops import NO_FILE
from provisioner.ports.telemetry import SILENCE, Telemetry
from provisioner.runtime.log_context import set_log_context


class Executor:
    """`nic_profiles` and `host_sets` are the matrix's, by the names that profiles pin."""

    def __init__(
        self,
        site: Site,
        nic_profiles: Mapping[str, Mapping[str, str]],
        telemetry: Telemetry = SILENCE,
        host_sets: HostSets = NO_SETS,
    ) -> None:
        self._site = site
        self._host_sets = host_sets
        self._nic_profiles = nic_profiles
        self._telemetry = telemetry

    async def execute(
        self, hold: Hold, node: Node, step: Step, inventory: Inventory
    ) -> tuple[Blocker, ...]:
        """Do the step on all its slots, side by side; what went wrong, or nothing."""
        with (
            set_log_context(step=step.title),
            self._telemetry.step(hold.operation.id, node.id, step) as problems,
        ):
            problems += await self._execute(hold, node, step, inventory)
        return tuple(problems)

    async def _execute(
        self, hold: Hold, node: Node, step: Step, inventory: Inventory
    ) -> tuple[Blocker, ...]:
        if (moved := check_expected(step, inventory)) is not None:
            return (moved,)
        if step.method == DEPLOY:  # a stay in the maintenance image, of several acts
            return _problems([await deploy_image(self._site, hold, node, step, inventory)])
        if step.kind is StepKind.ACTIVATE:
            return _problems([await self._do(hold, node, step, (), inventory, None)])
        groups = slot_groups(step, inventory)
        results = await asyncio.gather(
            *(self._do(hold, node, step, slots, inventory, None) for slots in groups)
        )
        return _problems(list(results))

    def describe_play(self, node_id: str) -> str:
        """Return the playbook's present task in the node's host; "": none, or it is unknown."""
        return self._site.runner.progress().get(node_id, "")

    async def resume(
        self, hold: Hold, node: Node, entry: LedgerEntry, inventory: Inventory
    ) -> Blocker | None:
        """Find out what became of an open ledger row, and see it to its end."""
        step = read_step(entry)
        slots = read_slots(entry)
        if not activations.find_cut_outlets(entry):
            return await self._do(hold, node, step, slots, inventory, entry)
        if (off := await activations.restore_power(self._site, node, entry)) is not None:
            return off
        interrupted = "interrupted while its outlets were switched; they are on again"
        await hold.settle_entry(entry, ActionStatus.ABSENT, outcome=interrupted)
        return await self._do(hold, node, step, slots, inventory, None)

    async def _do(
        self,
        hold: Hold,
        node: Node,
        step: Step,
        slots: tuple[str, ...],
        inventory: Inventory,
        entry: LedgerEntry | None,
    ) -> Blocker | None:
        begins = entry is None and node.kind is NodeKind.HOST
        if begins and (wet := await self._site.reach.refuse_wet(node)) is not None:
            return wet
        chosen = step.model_copy(update={"slots": slots})
        work = await self._work(node, chosen, inventory, entry)
        if isinstance(work, Blocker):
            return work
        if step.kind is not StepKind.ACTIVATE and step.method in PULLED:
            card = step.method == BFB
            work = require_offer(self._site, work, step.artifact, step.sha256, doubled=card)
        return await do_work(self._site, hold, work, entry)

    async def _work(
        self, node: Node, step: Step, inventory: Inventory, entry: LedgerEntry | None
    ) -> Work | Blocker:
        site = self._site
        if step.method == requested_acts.METHOD:
            return requested_acts.build_work(site, node, step)
        if step.kind is StepKind.ACTIVATE:
            return await activations.build_work(site, node, step, inventory)
        if (
            step.method not in NO_FILE
            and (blocker := await prepare_file(site, step, entry)) is not None
        ):
            return blocker
        match step.method:
            case "redfish_push":
                return await methods_redfish.push(site, node, step, inventory)
            case "bluefield_bfb":
                return await methods_redfish.bluefield_bfb(site, node, step, inventory)
            case "playbook_host_software" | host_packages.OFED_MIGRATION:
                return methods_inband.install_software(site, node, step)
            case "playbook_nic_firmware" | methods_inband.DRIVE_FIRMWARE:
                return methods_inband.burn_firmware(site, node, step, inventory)
            case "playbook_nic_config":
                parameters = self._nic_profiles.get(step.to_version, {})
                return methods_inband.nic_config(site, node, step, inventory, parameters)
            case "playbook_host_baseline" | "playbook_check_tools":
                return self._set_host(node, step, inventory)
            case method if method in SETTINGS_METHODS:
                return await write_settings(site, node, step)
            case "nvue_image":
                return await methods_switch.install_image(site, node, step)
            case "sonic_installer":
                return await install_sonic_image(site, node, step)
            case "nvue_packages" | "onie":
                return methods_switch.by_hand(node, step)
        return Blocker(
            reason=Reason.NOT_OFFERED,
            subject=step.component,
            detail=f"there is no update method {step.method!r}",
            unblock="Correct the method of this edge in the matrix.",
        )

    def _set_host(self, node: Node, step: Step, inventory: Inventory) -> Work | Blocker:
        settings = self._host_sets.get(step.component, {}).get(step.to_version, {})
        if step.method == "playbook_check_tools":
            return methods_inband.install_check_tools(self._site, node, step, settings)
        return methods_inband.set_baseline(self._site, node, step, inventory, settings)


def check_expected(step: Step, inventory: Inventory) -> Blocker | None:
    """The blocker if a condition of the step no longer holds: then the node is planned again."""
    for expected in step.expected:
        component = inventory.find_component(expected.kind, expected.slot)
        if component is None:
            continue  # derived components (bundles) are not in the inventory
        if component.version != expected.version:
            return Blocker(
                reason=Reason.PRECONDITION,
                subject=f"{expected.kind}/{expected.slot}",
                detail=f"runs {component.version}, the plan expected {expected.version}",
                unblock="Nothing to do: it is planned again from the present versions.",
            )
    return None


def slot_groups(step: Step, inventory: Inventory) -> list[tuple[str, ...]]:
    """The slots that each request covers: those behind one BMC, or all that one play handles."""
    if not step.method.startswith(("redfish_", "bluefield_")):
        return [step.slots]
    by_bmc: dict[str, list[str]] = {}
    for slot in step.slots:
        component = inventory.find_component(step.component, slot)
        by_bmc.setdefault(component.bmc if component else "host", []).append(slot)
    return [tuple(slots) for _, slots in sorted(by_bmc.items())]


def _problems(results: list[Blocker | None]) -> tuple[Blocker, ...]:
    return tuple(r for r in results if r is not None)
