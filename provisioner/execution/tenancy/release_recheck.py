"""Ask a moved host once more about its NICs: settings, errors, and the LLDP neighbour of each.

Nothing is set or repaired here. Settings that a validation would set again (those that a boot
loses) are only read, so that a node which lost them since its certificate is not handed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from provisioner.checks import lldp, nic_config, rdma_counters, roce_runtime
from provisioner.checks.cabling import End, Miscabling
from provisioner.checks.check import BEFORE, Check, CheckContext
from provisioner.checks.threshold_data import Limits
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.inband import run_commands
from provisioner.execution.validate.judging import judging_context, read_port_names
from provisioner.model import health
from provisioner.model.health import Evidence
from provisioner.model.inventory import Inventory
from provisioner.model.leaf_state import LeafState
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.model.release import GateCheck, GateRow, RowVerdict
from provisioner.planning.release import mac_cables, release_cables
from provisioner.planning.release.mac_cables import Learned
from provisioner.planning.release.release_cables import Heard
from provisioner.ports import Store

Outputs = Mapping[str, Evidence]
# facts of releases (health 5.2): run-time settings are read again, counters have not grown
_SETTINGS = (nic_config.CHECK, roce_runtime.CHECK)
_ERRORS = rdma_counters.CHECK
_COUNTERS = _ERRORS.commands[0]


class Rechecks:
    """Looks into hosts. `thresholds`: the site's own."""

    def __init__(
        self,
        site: Site,
        store: Store,
        matrix: Matrix,
        thresholds: Mapping[str, Limits] | None = None,
    ) -> None:
        self._site = site
        self._store = store
        self._matrix = matrix
        self._thresholds = thresholds

    async def read_counters(self, node: Node) -> Outputs:
        """Return the counters of the RDMA ports now; {} if the host does not report them."""
        command = _COUNTERS
        outputs = await run_commands(
            self._site, node, [(command.name, command.line, command.limit_s)]
        )
        return {} if isinstance(outputs, Blocker) else outputs

    async def judge_host(
        self, node: Node, before: Outputs, leaves: Mapping[str, LeafState]
    ) -> tuple[GateRow, ...]:
        """Return the rows of its NICs and cables. `before`: what `counted` said before packets were
        sent; `leaves`: whom the other ends hear.
        """
        checks = (*_SETTINGS, _ERRORS, lldp.CHECK)
        commands = {c.name: (c.name, c.line, c.limit_s) for k in checks for c in k.commands}
        outputs = await run_commands(self._site, node, list(commands.values()))
        inventory = await self._store.evidence.get_inventory(node.id)
        if isinstance(outputs, Blocker) or inventory is None:
            why = (
                outputs.detail if isinstance(outputs, Blocker) else "nothing is known of its parts"
            )
            return tuple(_unknown(check, node.id, why) for check in ROWS)
        site = self._site
        store = self._store
        context = await judging_context(
            store, self._matrix, site.settings, self._thresholds, node, inventory
        )
        raw = {name: evidence.model_dump() for name, evidence in outputs.items()}
        digest = await store.evidence.put_output(json.dumps(raw, sort_keys=True))
        rows = [
            _row(GateCheck.NIC_SETTINGS, node.id, c, outputs, context, digest) for c in _SETTINGS
        ]
        if _COUNTERS.name in before:
            both = {**outputs, _COUNTERS.name + BEFORE: before[_COUNTERS.name]}
            rows.append(_row(GateCheck.NIC_ERRORS, node.id, _ERRORS, both, context, digest))
        else:
            rows.append(_unknown(GateCheck.NIC_ERRORS, node.id, "its counters were not read"))
        heard = release_cables.heard_by(leaves)
        near = await store.nodes.list_cabled({p.switch for p in node.ports})
        ends = await self._read_ends(node, near, outputs)
        return (*rows, *release_cables.judge_cables(node, near, inventory, ends, heard))

    async def _read_ends(
        self, node: Node, near: Iterable[Node], outputs: Mapping[str, Evidence]
    ) -> lldp.Ends | None:
        """Return the host's ends, with the ports of its leaves by their own names."""
        leaves = {p.switch for p in node.ports}
        ports = [p for n in (node, *near) for p in n.ports if p.switch in leaves and not p.guid]
        names = await read_port_names(self._store, leaves)
        return lldp.read_ends(outputs, names, {(p.switch, p.interface) for p in ports})

    async def find_miscablings(
        self, node: Node, heard: Heard, learned: Learned | None = None
    ) -> tuple[Miscabling, ...]:
        """Return the differences from the plan that both ends confirm; a silent end contradicts
        nothing.

        `heard`: the neighbours of the leaves' ports; `learned`: their MACs, for ports that hear
        none. The host is asked, if it runs.
        """
        commands = [(c.name, c.line, c.limit_s) for c in lldp.CHECK.commands]
        outputs = await run_commands(self._site, node, commands)
        inventory = await self._store.evidence.get_inventory(node.id) or Inventory(
            node=node.id, vendor=""
        )
        nodes = self._store.nodes
        near = await nodes.list_cabled({p.switch for p in node.ports})
        ends = None
        if not isinstance(outputs, Blocker):
            ends = await self._read_ends(node, near, outputs)
        by_mac = await self._find_far_ends(learned) if learned else {}
        faults = release_cables.find_cable_faults(node, near, inventory, ends, heard, by_mac)
        if not faults:
            return ()
        return release_cables.select_observed_faults(faults, [o.id for o in await nodes.list()])

    async def _find_far_ends(self, learned: Learned) -> dict[End, End]:
        """Return the cards behind the leaves' ports, by the MACs of all parts that were read."""
        cards: list[tuple[str, End]] = []
        for node in await self._store.nodes.list_cabled({switch for switch, _ in learned}):
            inventory = await self._store.evidence.get_inventory(node.id)
            cards += mac_cables.list_card_macs(node, inventory)
        return mac_cables.find_far_ends(learned, cards)


ROWS = (GateCheck.NIC_SETTINGS, GateCheck.NIC_ERRORS, GateCheck.CABLES)


def _row(
    row: GateCheck, node: str, check: Check, told: Outputs, context: CheckContext, kept: str
) -> GateRow:
    """Return a check's result as a row; one that could not be judged is unknown."""
    result = check.judge(told, context)
    findings = "; ".join(f"{f.part}: {f.detail} {f.measured}".strip() for f in result.findings[:3])
    verdict = {
        health.Verdict.PASS: RowVerdict.PASS,
        health.Verdict.FAIL: RowVerdict.FAIL,
    }.get(result.verdict, RowVerdict.UNKNOWN)
    reading = findings[:300] or f"evidence {kept[:16]}"
    return GateRow(check=row, subject=f"{node} {check.name}", verdict=verdict, seen=reading)


def _unknown(check: GateCheck, node: str, words: str) -> GateRow:
    return GateRow(check=check, subject=node, verdict=RowVerdict.UNKNOWN, seen=words[:300])
