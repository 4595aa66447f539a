"""Runs the health checks of a node, gate by gate, and keeps every raw output as evidence.

Rule: a gate that failed ends it; the checks behind it are recorded as skipped, which is no pass.
After each load test the checks for faults that load brings are judged again on new outputs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from provisioner import checks as declared
from provisioner import components
from provisioner.checks import roce_runtime
from provisioner.checks.check import BEFORE, Check, CheckContext, Command
from provisioner.checks.context import build_context
from provisioner.checks.threshold_data import Limits
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.collector import read_port_names
from provisioner.execution.observe.inband import TEXT_MAX, ask_bmc, ask_host, until_quiet
from provisioner.execution.observe.rotation import open_switch
from provisioner.execution.steps.methods_inband import make_play_blocker, run_play
from provisioner.model.cohort import Baseline, CheckResult, Evidence, Gate, HealthReport, Verdict
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.attested_state import list_asked
from provisioner.planning.certification.certification import identify_installation
from provisioner.planning.certification.host_settings import select_settings
from provisioner.planning.certification.regression import RepeatPolicy, should_repeat, verdict_of
from provisioner.ports import PortError
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Applies the SuperNICs' run-time settings before the checks of a validation.
#
# They are lost at every boot and a report is bound to its boot, so that whatever is certified, and
# hence released, has them. Setting them again changes nothing.


PLAY = "bluefield_runtime"


async def apply(
    site: Site, node: Node, inventory: Inventory, profile: Mapping[str, str]
) -> Blocker | None:
    """Set the profile on the cards that carry rails. A Blocker: it is not in force."""
    rails = {p.nic_slot for p in node.ports if p.rail >= 0}
    cards = {d.slot: d.pci for d in inventory.devices if d.slot in rails}
    unknown = sorted(slot for slot in rails if not cards.get(slot))
    if unknown:
        return Blocker(
            reason=Reason.PAIRING_FAILED,
            subject=f"{node.id}/{unknown[0]}",
            detail="its PCI address is not known",
            unblock="Take the node in again, with the host's operating system up.",
        )
    if not profile or not rails:
        return None
    if (busy := await until_quiet(site, node, site.settings.playbook_limit_s)) is not None:
        return busy
    chosen = select_settings(profile, site.settings.fabric_overlay)
    variables = {
        "devices": sorted(str(pci) for pci in cards.values()),
        "routing": [s.model_dump() for s in chosen.routing],
        "congestion": [s.model_dump() for s in chosen.congestion],
    }
    result = await run_play(site, node, PLAY, variables)
    if (failed := make_play_blocker(node, PLAY, result)) is not None:
        return failed
    interfaces = result.facts.get("interfaces")
    if isinstance(interfaces, Mapping) and len(interfaces) >= len(cards):
        return None
    return Blocker(
        reason=Reason.UPDATE_FAILED,
        subject=f"{node.id}/{PLAY}",
        detail=f"the play ended well, but the host shows {interfaces!r:.200}",
        unblock="Look at the host: its network cards lack interfaces.",
    )


# ------------------------------------------------------------------------------
# The limits and facts that a node's outputs are judged by: the one place where they are put
# together.
#
# Checks on the node, tests among nodes and `node rejudge` ask here. One of them with another
# context would judge the same outputs in another way.


GRAMMARS: Mapping[str, str] = {kind.name: kind.grammar for kind in components.ALL.values()}


def list_floors(baselines: Iterable[Baseline]) -> dict[str, tuple[float, str]]:
    """Return threshold -> (floor, how it was learned)."""
    return {b.metric: (b.floor, str(b)) for b in baselines}


async def judging_context(
    store: SqlStore,
    matrix: Matrix,
    settings: Settings,
    thresholds: Mapping[str, Limits] | None,
    node: Node,
    inventory: Inventory,
) -> CheckContext:
    """Return the context. `thresholds`: the site's own, if any. The profile's learned limits are
    read from the store.
    """
    leaves = {p.switch for p in node.ports}
    nodes = [n for n in await store.nodes.list() if n.id != node.id] if leaves else []
    taught = await store.cohorts.list_baselines(node.profile) if node.kind is NodeKind.HOST else ()
    return build_context(
        node,
        inventory,
        matrix,
        overrides=thresholds,
        learned=list_floors(taught),
        grammars=GRAMMARS,
        to_other_leaf=settings.rail_proof == "other_leaf",
        harmless_lines=settings.kernel_lines_harmless,
        port_owners={
            f"{p.switch}/{p.interface}": f"{owner.id}/{p.nic_slot}"
            for owner in nodes
            for p in owner.ports
            if p.switch in leaves
        },
        port_names=await read_port_names(store, leaves),
    )


Outputs = Mapping[str, Evidence]
_REPEATS = RepeatPolicy()


class Validator:
    """The validator of nodes. `checks` is the table of contents in `checks/`; the matrix has the
    pins.

    `thresholds`: the site's own, which beat the published ones.
    """

    def __init__(
        self,
        site: Site,
        store: SqlStore,
        checks: Sequence[Check],
        matrix: Matrix,
        thresholds: Mapping[str, Limits] | None = None,
    ) -> None:
        self._site = site
        self._store = store
        self._checks = checks
        self._matrix = matrix
        self._thresholds = thresholds or {}

    def slots(self, node: Node, inventory: Inventory) -> Mapping[str, str]:
        """Return the PCI address of a GPU or NVSwitch -> its slot."""
        return self.context_of(node, inventory).slot_of_pci

    def context_of(self, node: Node, inventory: Inventory) -> CheckContext:
        """Return what the matrix and the inventory alone say of a node's context."""
        return build_context(node, inventory, self._matrix)

    async def validate(
        self, node: Node, inventory: Inventory, selected: Collection[str] | None = None
    ) -> HealthReport | Blocker:
        """Return a report bound to this inventory. A Blocker: the node could not be asked at all.

        `selected`: names of the checks to run; None: those of every validation.
        """
        started_at = self._site.clock.now()
        context = await self._context(node, inventory)
        names = set(declared.list_standard_checks(node.kind) if selected is None else selected)
        if node.kind is NodeKind.HOST:
            names |= list_asked(context.attestation)
        mine = [c for c in self._checks if c.kind is node.kind and c.name in names]
        if any(c is roce_runtime.CHECK for c in mine):
            unset = await apply(self._site, node, inventory, context.nic_runtime)
            if unset is not None:
                return unset
        results: list[CheckResult] = []
        last: dict[str, Evidence] = {}  # the last look at every command, for what grew since
        for gate in Gate:
            here = [c for c in mine if c.gate is gate]
            if any(r.verdict is not Verdict.PASS for r in results):
                why = "not run: an earlier gate did not pass"
                results += [c.report_skipped(why) for c in here]
                continue
            for stage in _stages(here):
                judged = await self._stage(node, stage, mine, context, last)
                if isinstance(judged, Blocker):
                    return judged
                results += judged
        return HealthReport(
            node=node.id,
            inventory_digest=identify_installation(inventory),
            started_at=started_at,
            ended_at=self._site.clock.now(),
            results=tuple(results),
            selected=tuple(c.name for c in mine) if selected is not None else (),
        )

    async def after_fabric(
        self, node: Node, inventory: Inventory, report: HealthReport, load: CheckResult
    ) -> list[CheckResult] | Blocker:
        """Judge `load`, which ran among nodes, and the error growth here since the report's last
        reading.
        """
        context = await self._context(node, inventory)
        mine = [c for c in self._checks if c.kind is node.kind and c.name in report.selected]
        names = {c.name for c in mine if c.after_load}
        last: dict[str, Evidence] = {}
        for result in report.results:
            if result.check.partition(" after ")[0] not in names:
                continue
            raw = json.loads(await self._store.evidence.get_output(result.evidence) or "{}")
            outputs = {n: Evidence.model_validate(e) for n, e in raw.items()}
            last.update({n: e for n, e in outputs.items() if not n.endswith(BEFORE)})
        return await self._after_load(node, load, mine, context, last)

    async def _context(self, node: Node, inventory: Inventory) -> CheckContext:
        site = self._site
        return await judging_context(
            self._store, self._matrix, site.settings, self._thresholds, node, inventory
        )

    async def _stage(
        self,
        node: Node,
        stage: Sequence[Check],
        mine: Sequence[Check],
        context: CheckContext,
        last: dict[str, Evidence],
    ) -> list[CheckResult] | Blocker:
        """Run checks that go together in one call; after a load test, the error checks again."""
        outputs = await self._ask(node, stage, context)
        if isinstance(outputs, Blocker):
            return outputs
        results = [await self._judge(check, outputs, context) for check in stage]
        last.update(outputs)
        if not stage[0].load:
            return results
        while should_repeat(results, _REPEATS):
            outputs = await self._ask(node, stage, context)
            if isinstance(outputs, Blocker):
                return outputs
            results.append(await self._judge(stage[0], outputs, context))
        return await self._after_load(node, verdict_of(results, _REPEATS), mine, context, last)

    async def _after_load(
        self,
        node: Node,
        load: CheckResult,
        mine: Sequence[Check],
        context: CheckContext,
        last: dict[str, Evidence],
    ) -> list[CheckResult] | Blocker:
        """Judge the error growth during a load test, from before it to after its last run."""
        results = [load]
        looks = [c for c in mine if c.after_load]
        outputs = await self._ask(node, looks, context) if looks else {}
        if isinstance(outputs, Blocker):
            return outputs
        both = {**outputs, **{n + BEFORE: last[n] for n in outputs if n in last}}
        last.update(outputs)
        for check in looks:
            result = await self._judge(check, both, context)
            name = declared.name_result_after_load(check.name, load.check)
            results.append(result.model_copy(update={"check": name, "gate": load.gate}))
        return results

    async def _judge(self, check: Check, outputs: Outputs, context: CheckContext) -> CheckResult:
        """Return the verdict, after its evidence was stored."""
        mine = [c.name for c in check.commands]
        names = [n for n in (*mine, *(n + BEFORE for n in mine)) if n in outputs]
        raw = {name: outputs[name].model_dump(mode="json") for name in names}
        digest = await self._store.evidence.put_output(json.dumps(raw, sort_keys=True))
        return check.judge(outputs, context).model_copy(update={"evidence": digest})

    async def _ask(
        self, node: Node, checks: Iterable[Check], context: CheckContext
    ) -> Outputs | Blocker:
        commands = {c.name: c for check in checks for c in check.commands_of(context)}
        if node.kind is NodeKind.SWITCH:
            return await self._ask_switch(node, list(commands.values()))
        from_bmcs = await ask_bmc(self._site, node, [c for c in commands.values() if c.bmc])
        if isinstance(from_bmcs, Blocker):
            return from_bmcs
        listed = [c for c in commands.values() if not c.bmc]
        ran = await ask_host(self._site, node, listed, context)
        return ran if isinstance(ran, Blocker) else {**from_bmcs, **ran}

    async def _ask_switch(self, node: Node, commands: Sequence[Command]) -> Outputs | Blocker:
        switch = await open_switch(self._site, node)
        if isinstance(switch, Blocker):
            return switch
        outputs = {}
        for command in commands:
            try:
                source, code, text = await switch.read_health_report(command.limit_s, TEXT_MAX)
            except PortError as error:
                return blocked(error, f"{node.id}/{command.name}")
            outputs[command.name] = Evidence(source=source, exit_code=code, text=text)
        return outputs


def _stages(checks: Sequence[Check]) -> Sequence[Sequence[Check]]:
    """Return the checks without load together, then each load test alone."""
    quiet = [c for c in checks if not c.load]
    return ([quiet] if quiet else []) + [[c] for c in checks if c.load]
