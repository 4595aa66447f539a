"""Ask a moved host once more about its NICs: settings, errors, and the LLDP neighbour of each.

Nothing is set or repaired here. Settings that a validation would set again (those that a boot
loses) are only read, so that a node which lost them since its certificate is not handed over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from provisioner.checks import lldp, nic_config, rdma_counters, roce_runtime
from provisioner.checks.cabling import End, Miscabling
from provisioner.checks.check import BEFORE, Check, CheckContext
from provisioner.checks.readers.sysfs import FIND_GID
from provisioner.checks.threshold_data import Limits
from provisioner.execution.actions.reach import Reach, SwitchSource
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.collector import read_port_names
from provisioner.execution.observe.inband import run_commands
from provisioner.execution.validate.validator import judging_context
from provisioner.model import cohort
from provisioner.model.cohort import Evidence
from provisioner.model.inventory import Inventory
from provisioner.model.location import TenantPlace
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck, GateRow, LeafState, RowVerdict
from provisioner.model.tenant import Tenant
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.release import release_cables
from provisioner.planning.release.release_cables import Heard, Learned
from provisioner.planning.release.release_probes import ASTRAY, Ping, ProbeSet, judge
from provisioner.planning.tenancy import vrf_plan
from provisioner.planning.tenancy.vrf_plan import FabricPlan
from provisioner.ports import Clock, PortError, ShellCommand, SwitchAddress
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Send the probes of a release from hosts: one line for each source address, all at once.
#
# An answer in any other format than this file's counts as not sent, never as silence.


# Two packets a second apart at most: the first may be lost to the neighbour being resolved.
_PING = "ping -n -q -c 3 -i 0.3 -W 1 -M do"
COMMAND_S = 20.0  # some twenty pings side by side, of two seconds each
# RDMA in messages of 64 KiB, some milliseconds at 400 Gbit/s. A canary serves one client at a time,
# so that it is tried again a few times; a client that waits for a missing answer is ended.
_RDMA = "-s 65536 -n 1000 -F --report_gbits"
RDMA_TRIES = 5
RDMA_S = 15
RDMA_LIMIT_S = RDMA_TRIES * (RDMA_S + RDMA_TRIES) + COMMAND_S

Answers = dict[tuple[str, Ping], int | None]


async def run_probes(site: Site, probe_sets: Sequence[ProbeSet]) -> tuple[GateRow, ...]:
    """Carry out every probe and return the gate's rows. RDMA comes last: alone on the wire.

    An address that must answer is probed again for as long as routes may take to follow: the way
    back, from a storage VRF to the tenant's, is often complete after the tenant's own routes. A
    packet that arrives where it must not ends the probes at once.
    """
    clock = site.clock
    settings = site.settings
    until = clock.now() + settings.release_settle_s
    while True:
        rows = judge(probe_sets, await answers_of(site, probe_sets), settings.release_rdma)
        if not _may_still_answer(rows) or clock.now() >= until:
            return rows
        await clock.sleep(settings.switch_poll_s)


def _may_still_answer(rows: Sequence[GateRow]) -> bool:
    failed = {r.check for r in rows if r.verdict is RowVerdict.FAIL}
    return GateCheck.REACHES in failed and failed <= {GateCheck.REACHES, GateCheck.RDMA}


async def answers_of(site: Site, probe_sets: Sequence[ProbeSet]) -> Answers:
    """Return the exit code of each probe; one that was not sent is not in it."""
    answers: Answers = {}
    for part in await asyncio.gather(*(_sent(site, probe_set) for probe_set in probe_sets)):
        answers |= part
    return answers


async def _sent(site: Site, probe_set: ProbeSet) -> Answers:
    lines = list(_lines(probe_set))
    commands = [
        ShellCommand(
            f"{check} from {source}", line, RDMA_LIMIT_S if check is GateCheck.RDMA else COMMAND_S
        )
        for check, source, line in lines
    ]
    if not commands:
        return {}
    try:
        outputs = await site.shell.run(probe_set.host, probe_set.address, commands)
    except PortError:
        return {}
    answers: Answers = {}
    for (check, source, _), output in zip(lines, outputs, strict=False):
        codes = read_codes(output.stdout) if output.exit_code == 0 and not output.truncated else {}
        mine = [p for p in probe_set.pings if p.source == source and _tool(p) is check]
        answers |= {(probe_set.host, p): codes.get(f"{p.target},{p.size}") for p in mine}
    return answers


def _tool(ping: Ping) -> GateCheck:
    """Return the tool that sends a probe: all but two kinds are an echo."""
    own = (GateCheck.HOST_ROUTE, GateCheck.RDMA)
    return ping.check if ping.check in own else GateCheck.REACHES


def _lines(probe_set: ProbeSet) -> Iterator[tuple[GateCheck, str, str]]:
    """Yield for each source one line of each tool.

    Addresses were parsed before, so that none can be an option or a shell word.
    """
    for check, line in _TOOLS.items():
        mine = [p for p in probe_set.pings if _tool(p) is check]
        for source in dict.fromkeys(p.source for p in mine):
            targets = dict.fromkeys(f"{p.target},{p.size}" for p in mine if p.source == source)
            text = line.replace("SOURCE", source).replace("TARGETS", " ".join(targets))
            yield check, source, text


_OWN = "set -- $(ip -o -4 addr show to SOURCE/32); i=$2; for t in TARGETS; do"
_ROUTED = 'ip route get "${t%,*}" from SOURCE | grep -q " dev $i "'
_TOOLS = {
    GateCheck.REACHES: (
        f'for t in TARGETS; do ( {_PING} -s "${{t#*,}}" -I SOURCE "${{t%,*}}" >/dev/null 2>&1;'
        " c=$?; [ $c -ne 1 ] || { set -- $(ip -o -4 addr show to SOURCE/32); i=$2;"
        f' {_ROUTED}; }} || c={ASTRAY}; echo "$t $c" ) & done; wait'
    ),
    GateCheck.HOST_ROUTE: f'{_OWN} {_ROUTED}; echo "$t $?"; done',
    GateCheck.RDMA: (
        f"{_OWN} n=0; while :; do for p in /sys/class/net/$i/device/infiniband/*; do {FIND_GID}"
        f' timeout {RDMA_S} ib_write_bw -d "${{p##*/}}" -x $g {_RDMA} -p "${{t#*,}}" "${{t%,*}}"'
        " >/dev/null 2>&1; c=$?; done; n=$((n+1));"
        f" [ $c -eq 0 ] || [ $c -eq 127 ] || [ $n -ge {RDMA_TRIES} ] && break; sleep $n; done;"
        ' echo "$t $c"; done'
    ),
}


def read_codes(output: str) -> dict[str, int]:
    """Return the exit codes of lines "ADDRESS,SIZE CODE"; other lines are ignored."""
    codes = {}
    for line in output[:65_536].splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[1].isascii() and fields[1].isdigit() and len(fields[1]) < 4:
            codes[fields[0]] = int(fields[1])
    return codes


# ------------------------------------------------------------------------------
# Read the state of BGP and EVPN for a tenant on its leaves: the last part of "made".
#
# A network that was configured and saved may still carry nothing, or another tenant's routes: only
# the leaf's present imports and exports, and established sessions, count.


LEAVES_AT_ONCE = 16


class TenantSessions:
    """Looks at leaves; changes nothing."""

    def __init__(self, store: SqlStore, reach: Reach, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._reach = reach
        self._clock = clock
        self._settings = settings

    async def missing(self, tenant: Tenant, fabric: FabricPlan) -> tuple[Blocker, ...]:
        """Return the parts that are missing on the tenant's leaves within `switch_apply_limit_s`;
        () if none.

        Routes and sessions take seconds after a revision: they are given the revision's limit.
        """
        assert tenant.number is not None
        target = Addressing(fabric.plan).get_route_target(TenantPlace(tenant.number))
        unproved: Sequence[str] = [leaf.switch for leaf in fabric.select_leaves(tenant)]
        until = self._clock.now() + self._settings.switch_apply_limit_s
        slots = asyncio.Semaphore(LEAVES_AT_ONCE)

        async def looked(switch: str) -> tuple[Blocker, ...]:
            async with slots:
                return await self._leaf(tenant, switch, target)

        while True:
            outcomes = await asyncio.gather(*map(looked, unproved))
            unproved = [
                switch for switch, blockers in zip(unproved, outcomes, strict=True) if blockers
            ]
            if not unproved or self._clock.now() >= until:
                return tuple(blocker for blockers in outcomes for blocker in blockers)
            await self._clock.sleep(self._settings.switch_poll_s)

    async def _leaf(self, tenant: Tenant, switch: str, target: str) -> tuple[Blocker, ...]:
        async def lookup() -> SwitchAddress | Blocker:
            node = await self._store.nodes.get(switch)
            return _gone(switch) if node is None else await self._reach.switch(node)

        source = SwitchSource(switch, lookup, self._reach.switches, self._clock, self._settings)
        try:
            opened = await source.open()
            routing = await opened.read_tenant_routing(tenant.vrf, str(tenant.l3vni))
        except PortError as problem:
            return (source.describe(problem),)
        return vrf_plan.find_leaf_differences(
            tenant, switch, target, routing.targets, routing.sessions
        )


def _gone(switch: str) -> Blocker:
    return Blocker(
        reason=Reason.NOT_EXPECTED,
        subject=switch,
        detail=f"no switch {switch} is known",
        unblock="Take it in.",
    )


Outputs = Mapping[str, Evidence]
# run-time settings of NICs are lost at each boot (docs/sources/host.md#nic-runtime), so they are
# read again; counters of errors have not grown
_SETTINGS = (nic_config.CHECK, roce_runtime.CHECK)
_ERRORS = rdma_counters.CHECK
_COUNTERS = _ERRORS.commands[0]


class Rechecks:
    """Looks into hosts. `thresholds`: the site's own."""

    def __init__(
        self,
        site: Site,
        store: SqlStore,
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
        return lldp.read_ends(outputs, names, {p.plug for p in ports})

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
            cards += release_cables.list_card_macs(node, inventory)
        return release_cables.find_far_ends(learned, cards)


ROWS = (GateCheck.NIC_SETTINGS, GateCheck.NIC_ERRORS, GateCheck.CABLES)


def _row(
    row: GateCheck, node: str, check: Check, told: Outputs, context: CheckContext, kept: str
) -> GateRow:
    """Return a check's result as a row; one that could not be judged is unknown."""
    result = check.judge(told, context)
    findings = "; ".join(f"{f.part}: {f.detail} {f.measured}".strip() for f in result.findings[:3])
    verdict = {cohort.Verdict.PASS: RowVerdict.PASS, cohort.Verdict.FAIL: RowVerdict.FAIL}.get(
        result.verdict, RowVerdict.UNKNOWN
    )
    reading = findings[:300] or f"evidence {kept[:16]}"
    return GateRow(check=row, subject=f"{node} {check.name}", verdict=verdict, seen=reading)


def _unknown(check: GateCheck, node: str, words: str) -> GateRow:
    return GateRow(check=check, subject=node, verdict=RowVerdict.UNKNOWN, seen=words[:300])
