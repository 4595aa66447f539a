"""The daemon's loop that carries approved campaigns over racks out, one after the other.

It begins nothing that no person approved, and goes on with what an earlier process began. Trays
that the daemon has as nodes are held by an operation each while their domain is out: no journey,
watch or request of the daemon touches them meanwhile. Whose they are is asked of the store.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from provisioner.adapters.redfish.eventing.events import Pushed
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.cli.options.checked_options import PASSWORD
from provisioner.integrations.racks.campaign import ActKind, CampaignFile, group_units
from provisioner.integrations.racks.campaign_run import Outcome, Step
from provisioner.integrations.racks.duty.approval import (
    LINES_MAX,
    OVER,
    TEXT_MAX,
    Approval,
    RackCampaign,
    RackCampaignState,
    build_mark,
    digest_campaign,
    keep_state,
    list_campaigns,
    read_approval,
    read_state,
)
from provisioner.integrations.racks.duty.node_holds import (
    HoldParts,
    NodeHolds,
    find_socket,
    find_tenant,
    read_marks,
)
from provisioner.integrations.racks.duty.rack_certificate import (
    RACK_PAYLOAD,
    certify_rack,
    judge_fabric,
)
from provisioner.integrations.racks.fabric.switch_looks import OURS, log_in
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.plan import RackPlan, read_plan, read_record
from provisioner.integrations.racks.rack_rounds import carry_out
from provisioner.integrations.racks.update_commands import FACTORY
from provisioner.integrations.racks.update_log import UpdateLog, hold_log
from provisioner.integrations.racks.update_start import (
    check_packages,
    find_reasons,
    find_unproved,
    limit_plan,
    prepare,
    read_rack_units,
)
from provisioner.integrations.racks.update_world import POLL_S, Update
from provisioner.integrations.racks.water_file import SharedWater
from provisioner.model.campaign import CampaignState
from provisioner.model.events.fleet_events import CampaignChanged
from provisioner.model.input_error import InputError
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.ports import (
    BmcAddress,
    BmcTransport,
    Credentials,
    EventStreams,
    Secret,
    StoreFailed,
    SwitchTransport,
)
from provisioner.runtime import permit
from provisioner.runtime.whole_files import replace_file
from provisioner.store.signing import Signer

log = logging.getLogger(__name__)
USER = "PROVISIONER_BMC_USER"  # at BMCs of racks that are no nodes, for the watch of water
RETRY_S = 3600.0  # between two turns of a campaign that is held: a person works on it
_EVENTS = {  # what is told as an event of a campaign; one that waits was not begun
    RackCampaignState.RUNNING: CampaignState.STARTED,
    RackCampaignState.HALTED: CampaignState.PAUSED,
    RackCampaignState.HELD: CampaignState.STOPPED,
    RackCampaignState.DONE: CampaignState.DONE,
    RackCampaignState.WITHDRAWN: CampaignState.ABORTED,
}


class Streaming(Protocol):
    """What the daemon's watch has of event streams, and who is told of what came by it."""

    @property
    def streams(self) -> EventStreams | None: ...
    @property
    def heard(self) -> list[Callable[[str, str, Pushed], None]]: ...


class DutyParts(HoldParts, Protocol):
    """What is needed of the daemon's parts; its ports are behind its gate."""

    @property
    def watch(self) -> Streaming | None: ...
    @property
    def shared(self) -> object: ...
    @property
    def transport(self) -> BmcTransport: ...
    @property
    def credentials(self) -> Credentials: ...
    @property
    def signer(self) -> Signer: ...


@dataclass
class RackDuty:
    """One per daemon. `tick` may be called at any time, as often as one likes."""

    parts: DutyParts
    switches: SwitchTransport | None = None  # None: opened with the first campaign
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    poll_s: float = POLL_S
    _checked: set[tuple[Path, str]] = field(default_factory=set)  # campaigns with their digests

    def __post_init__(self) -> None:
        self.holds = NodeHolds(self.parts)
        self.held = SharedWater()
        self.placed: Mapping[str, tuple[Node, BmcRef]] = {}  # units that are nodes, as last read
        self.busy: Collection[str] = ()  # units whose campaign runs: its rounds read their water
        self.on_busy: Callable[[Collection[str]], None] = lambda _: None
        self.judged = False  # whether `RackHolds` could tell of each campaign what it needs

    async def run(self) -> None:
        """Look for approved campaigns for ever."""
        try:
            while True:
                await self.tick()
                await self.parts.clock.sleep(self.poll_s)
        finally:
            if isinstance(self.switches, SwitchHttps):
                await self.switches.close()

    async def tick(self) -> None:
        """Carry on each campaign that is neither over nor held since a short time."""
        folder = Path(self.parts.settings.racks_folder)
        try:
            campaigns = await asyncio.to_thread(lambda: list(list_campaigns(folder)))
        except InputError as error:
            log.error("racks: no campaign is carried on: %s", error)
            return
        for campaign in campaigns:
            try:
                approval = read_approval(campaign)
                before = read_state(campaign)
                await self._turn(campaign, approval, before)
            except InputError as error:  # a file, or a command that holds one
                log.warning("racks, %s: %s", campaign.name, error)
            except OSError as error:  # nothing is sent that cannot be written down
                log.error("racks, %s: %s", campaign.name, error)

    async def _turn(self, campaign: Path, approval: Approval, before: RackCampaign | None) -> None:
        now = self.parts.clock.now()
        if before is not None:
            if before.state in OVER:
                return
            quiet = before.state is RackCampaignState.HELD and now - before.at < RETRY_S
            if quiet and not approval.withdrawn:
                return
        told = _Told(self, campaign, approval, before)
        try:
            try:
                await self._carry(campaign, approval, told)
            finally:
                self.busy = ()
            if approval.withdrawn and not told.is_over():  # it was held before it began
                await told.withdraw(approval, told.held)
        except InputError as error:
            if approval.withdrawn:
                await told.withdraw(approval)
            else:
                out = () if before is None else before.domains  # they tell of acts, as it does
                await told.write(RackCampaignState.WAITS, (f"{error}",), domains=out)
        except (OSError, StoreFailed):
            raise
        except Exception:  # our own bug: a person looks, and the daemon goes on with the rest
            log.exception("racks, %s: held", campaign.name)
            why = "the provisioner failed an assertion of its own; see its log, and report it"
            if approval.withdrawn:
                await told.withdraw(approval, (why,))
            else:
                await told.write(RackCampaignState.HELD, (why,))

    async def withdraw(
        self, campaign: Path, approval: Approval, before: RackCampaign | None
    ) -> None:
        """Write that a campaign is over which nobody carries on."""
        await _Told(self, campaign, approval, before).withdraw(approval)

    async def open_campaign(self, campaign: Path, approval: Approval) -> Update:
        """Return what the approved campaign needs of the world. Raises InputError."""
        digest = await asyncio.to_thread(digest_campaign, campaign)
        if digest != approval.campaign_sha256:
            problem = "campaign.yaml is another one than the approved one"
            remedy = "`rack withdraw` it, and `rack approve` it in a folder of its own."
            raise InputError(campaign.name, "", problem, remedy)
        folder = Path(self.parts.settings.racks_folder)
        asked = await asyncio.to_thread(read_record, campaign / "campaign.yaml", CampaignFile)
        plan = await asyncio.to_thread(read_plan, folder / "racks.yaml")
        for rack in approval.racks:  # one that is renamed is no rack that has nothing to do
            plan.find(rack)
        plan = limit_plan(plan, approval.racks)
        if (campaign, digest) not in self._checked:
            await asyncio.to_thread(check_packages, asked, plan, campaign)
            self._checked.add((campaign, digest))
        nodes = await self.holds.find_nodes(plan)
        addresses = await self._find_addresses(plan, nodes, approval.user)
        planned = (unit.name for rack in plan.racks for unit in rack.units if unit.bmc)
        for name in (name for name in planned if name not in addresses):
            remedy = f"Approve it with --user, and start the daemon with {PASSWORD}."
            raise InputError(name, "", "the daemon has no login of its BMC", remedy)
        update = self._build(folder, campaign, plan, asked, addresses)
        update.nvos = log_in(plan, approval.nvos_user, self.environ.get(OURS, ""))
        update.factory = log_in(plan, approval.nvos_user, self.environ.get(FACTORY, ""))
        return update

    async def _carry(self, campaign: Path, approval: Approval, told: _Told) -> None:
        update = await self.open_campaign(campaign, approval)
        self._keep_busy(update)
        update.who_uses = partial(self._ask, update.plan, update.asked, told.mark)
        update.grace_s = approval.grace_h * 3600

        out: Collection[str] | None = None

        async def tell(outcome: Outcome, domains: Collection[str], why: Mapping[str, str]) -> None:
            nonlocal out
            if out != domains:
                self._keep_busy(update, domains)
                out = domains
            await told.tell(outcome, domains, why)

        update.tell = tell
        update.halted = told.is_halted
        async with hold_log(campaign / "journal") as journal:
            empty = not any(journal.list_keys())
            acts = empty and await self.tells_of_acts(told.mark, told.before)
            if acts or is_shorter(journal, told.before):
                raise build_gone(campaign)
            with permit.name_act(touch_no_node):
                begun = await prepare(update, journal)
                told.hosts = {job.domain: job.hosts for job in begun.jobs}
                told.held = find_reasons(begun)
                told.extent = (update.plan, journal)
                if not begun.jobs:
                    await self._end_idle(update, campaign, told)
                    return
                outcome, hands = await carry_out(update, journal, begun)
            proved = outcome.finished and not begun.held
            uncertain = await self._certify(update, campaign, acted=True) if proved else ()
            await told.end(outcome, hands.why, uncertain)

    def _keep_busy(self, update: Update, domains: Collection[str] | None = None) -> None:
        """Have nobody else follow the units of domains that are out; None: of all, which are read.

        Their BMCs have a connection for a push, which takes minutes, and one for readings.
        """
        jobs = group_units(update.plan)
        units = (
            unit.name for job in jobs if domains is None or job in domains for _, unit in jobs[job]
        )
        self.busy = frozenset(units)
        self.on_busy(self.busy)

    async def _end_idle(self, update: Update, campaign: Path, told: _Told) -> None:
        """Write how a campaign stands that has no acts now."""
        if told.held:
            await told.write(RackCampaignState.HELD, told.held)
            return
        says = ("every version runs already", *await self._certify(update, campaign, acted=False))
        await told.free_but(())
        await told.write(RackCampaignState.DONE, says)

    async def _certify(self, update: Update, campaign: Path, *, acted: bool) -> Sequence[str]:
        """Read all racks once more, and sign what is proved of each; return why one is not."""
        self._keep_busy(update)
        read = await read_rack_units(update)
        why: list[str] = []
        for rack in update.plan.racks:
            fabric = await judge_fabric(update, rack, self.holds, acted=acted)
            now = self.parts.clock.now()
            made = certify_rack(
                update.plan, rack.name, update.asked, read, campaign.name, now, fabric
            )
            if isinstance(made, tuple):
                why += [f"{rack.name} gets no certificate: {each}" for each in made]
                continue
            sealed = self.parts.signer.seal(RACK_PAYLOAD, made.model_dump_json().encode())
            file = campaign / f"{rack.name}.certificate.json"
            await asyncio.to_thread(replace_file, file, sealed + "\n", mode=0o666, lasting=True)
        return why

    async def tells_of_acts(self, mark: str, state: RackCampaign | None) -> bool:
        """Return whether a hold or the state of a campaign says that it has a journal."""
        held = (await self.holds.list_active()).values()
        known = state is not None and state.tells_of_acts
        return known or any(mark in read_marks(one) for one in held)

    async def open_world(self, folder: Path, plan: RackPlan) -> Update:
        """Return racks as they are without a campaign; a unit without a login has no address."""
        nodes = self.placed = await self.holds.find_nodes(plan)
        addresses = await self._find_addresses(plan, nodes, self.environ.get(USER, ""))
        asked = CampaignFile(targets={Kind.COMPUTE_TRAY: {}})
        return self._build(folder, folder, plan, asked, addresses)

    def _build(
        self,
        folder: Path,
        files: Path,
        plan: RackPlan,
        asked: CampaignFile,
        addresses: Mapping[str, BmcAddress],
    ) -> Update:
        if self.switches is None:
            self.switches = SwitchHttps()
        building = folder / "building.json"
        return Update(
            plan=plan,
            asked=asked,
            folder=files,
            bmcs=self.parts.transport,
            switches=self.switches,
            addresses=addresses,
            nvos={},
            factory={},
            water=folder / "water.json",
            held=self.held,
            now=self.parts.clock.now,
            building=building if building.exists() else None,
            pause=self.parts.clock.sleep,
            say=partial(log.info, "racks, %s: %s", files.name),
            poll_s=self.poll_s,
        )

    # --- who is in the domain

    async def _find_aside(self, plan: RackPlan) -> Collection[str]:
        """Return the units whose nodes are, or may be, set aside for a damaged row."""
        nodes = await self.parts.store.nodes.list_set_aside()
        known = {find_socket(ref.url) for node in nodes for ref in node.bmcs}
        units = [u for r in plan.racks for u in r.units if u.bmc]
        if any(node.kind is NodeKind.HOST and not node.bmcs for node in nodes):
            return {u.name for u in units}  # its BMC is not readable, either: any may be its own
        return {u.name for u in units if find_socket(u.bmc) in known}

    async def _ask(
        self, plan: RackPlan, asked: CampaignFile, mark: str, units: Collection[str], *, hold: bool
    ) -> Mapping[str, str | None]:
        """Return who uses trays: by the store where the daemon has them, else by the campaign."""
        named = frozenset(units)
        racks = tuple(r for r in plan.racks if any(u.name in named for u in r.units))
        plan = plan.model_copy(update={"racks": racks})  # some of hundreds, each second
        nodes = await self.holds.find_nodes(plan)
        aside = await self._find_aside(plan)  # after the others: what is damaged by now is here
        told: dict[str, str | None] = {}
        for unit in units:
            state = asked.units.get(unit)
            told[unit] = None if state is None else state.tenant
            if unit in nodes:
                node = nodes[unit][0]
                told[unit] = find_tenant(node)
                if hold and not told[unit]:
                    told[unit] = await self.holds.hold(node.id, mark)
            elif unit in aside:
                told[unit] = None  # nobody can tell
        return told

    # --- logins

    async def _find_addresses(
        self, plan: RackPlan, nodes: Mapping[str, tuple[Node, BmcRef]], user: str
    ) -> Mapping[str, BmcAddress]:
        """Return the address of each BMC of which there is a login: a node's own, or the racks'."""
        addresses: dict[str, BmcAddress] = {}
        password = self.environ.get(PASSWORD, "")
        for unit in (u for rack in plan.racks for u in rack.units if u.bmc):
            if unit.name in nodes:
                node, ref = nodes[unit.name]
                login = await self.parts.credentials.current(f"{node.id}/{ref.name}")
                name, secret = login or ("", None)
                addresses[unit.name] = BmcAddress(ref.url, name, secret, pin=ref.pin)
            elif user and password:
                addresses[unit.name] = BmcAddress(unit.bmc, user, Secret(password))
        return addresses


class _Told:
    """Writes how one campaign stands, for the API, and frees what is no longer needed."""

    def __init__(
        self, duty: RackDuty, campaign: Path, approval: Approval, before: RackCampaign | None
    ) -> None:
        self._duty = duty
        self._campaign = campaign
        self._approval = approval
        self.mark = build_mark(campaign.name, approval)
        self.before = before  # as an earlier turn left it
        self._last: RackCampaign | None = None
        self._out: frozenset[str] = frozenset()
        self.hosts: Mapping[str, Sequence[str]] = {}  # trays, by domain
        self.held: Sequence[str] = ()  # why domains have no acts in this turn
        self.extent: tuple[RackPlan, UpdateLog] | None = None

    def is_halted(self) -> bool:
        """Return whether a person wants nothing new to be begun; the file is read each round."""
        try:
            approval = read_approval(self._campaign)
        except InputError:
            return True  # nobody can tell what was allowed
        return bool(approval.halted or approval.withdrawn)

    def is_over(self) -> bool:
        """Return whether it was written to be over."""
        return self._last is not None and self._last.state in OVER

    async def tell(
        self, outcome: Outcome, domains: Collection[str], why: Mapping[str, str]
    ) -> None:
        if self._out - set(domains):  # a domain is proved: its trays are the daemon's again
            await self.free_but(domains)
        self._out = frozenset(domains)
        says = [f"{key}: {why.get(key, 'begins')}" for key in outcome.running]
        says += [f"{domain} is held at {key}" for domain, key in outcome.held.items()]
        if outcome.running:  # else its end is told next
            await self.write(RackCampaignState.RUNNING, says, outcome, domains)

    async def end(
        self, outcome: Outcome, why: Mapping[str, str], uncertain: Sequence[str] = ()
    ) -> None:
        """Write how it ended. What was begun and is not proved keeps its nodes in any case."""
        if outcome.finished and not self.held:
            await self.free_but(())
            says = ("every version of every unit is proved", *uncertain)
            await self.write(RackCampaignState.DONE, says, outcome)
            return
        held = [f"{d} is held at {key}: {why.get(key, '')}" for d, key in outcome.held.items()]
        drained = {d for d, key in outcome.held.items() if key.endswith(f"/{ActKind.DRAIN}")}
        out = self._out - drained  # nothing was sent to a domain that is held at its drain
        approval = read_approval(self._campaign)
        if approval.withdrawn:
            await self.withdraw(approval, held, outcome)
        elif outcome.finished:
            await self.free_but(())
            await self.write(RackCampaignState.HELD, self.held, outcome)
        elif outcome.held:
            await self.free_but(out)
            held += self.held
            await self.write(RackCampaignState.HELD, held, outcome, sorted(out | set(outcome.held)))
        else:
            halted = approval.halted or "it goes on with the next turn"
            await self.write(RackCampaignState.HALTED, (halted,), outcome, sorted(out))

    async def free_but(self, domains: Collection[str]) -> None:
        """Free all nodes, but those of domains that are out, or were begun and are not proved.

        None is while nobody can tell what each campaign needs; `RackHolds` does it once it is over.
        """
        assert self.extent is not None
        if not self._duty.judged:
            return
        plan, journal = self.extent
        kept = {host for domain in domains for host in self.hosts[domain]}
        unproved = await asyncio.to_thread(find_unproved, plan, journal)
        kept |= {tray for trays in unproved.values() for tray in trays}
        await self._duty.holds.free(self.mark, plan, kept)

    async def withdraw(
        self, approval: Approval, says: Sequence[str] = (), outcome: Outcome | None = None
    ) -> None:
        """End it for good. `RackHolds` frees its nodes, where and when that is safe."""
        await self.write(RackCampaignState.WITHDRAWN, (approval.withdrawn, *says), outcome)

    async def write(
        self,
        state: RackCampaignState,
        says: Sequence[str],
        outcome: Outcome | None = None,
        domains: Collection[str] = (),
    ) -> None:
        before = self._last or self.before
        acts = (0, 0) if before is None else (before.done, before.left)
        if outcome is not None:
            acts = (outcome.done, outcome.waiting + len(outcome.running))
        begun = 0 if self.extent is None else self.extent[1].count_begun()
        standing = RackCampaign(
            name=self._campaign.name,
            state=state,
            racks=self._approval.racks,
            domains=tuple(domains),
            done=acts[0],
            left=acts[1],
            begun=max(0 if before is None else before.begun, begun),
            says=tuple(each[:TEXT_MAX] for each in says[:LINES_MAX]),
            approved_by=self._approval.who,
            because=self._approval.why,
            at=self._duty.parts.clock.now(),
        )
        if self._last is not None and self._last.model_copy(update={"at": standing.at}) == standing:
            return
        if before is None or before.state is not state:
            await self._notify(standing)
        await asyncio.to_thread(keep_state, self._campaign, standing)
        self._last = standing

    async def _notify(self, standing: RackCampaign) -> None:
        """Write the event that webhooks and the console get: before the state, so that none is
        lost.
        """
        if standing.state in _EVENTS:
            event = CampaignChanged(
                campaign=f"racks/{standing.name}",
                state=_EVENTS[standing.state],
                reason="; ".join(standing.says)[:TEXT_MAX],
                by=standing.approved_by,
            )
            await self._duty.parts.store.journal.append(event, standing.at)


def build_gone(campaign: Path) -> InputError:
    """Return why nothing is done with a campaign whose journal was lost, or its end."""
    problem = "its journal is gone, empty or cut short: what was written nobody can tell"
    remedy = "Bring it back; or `rack withdraw` it, and `rack vouch`."
    return InputError(campaign.name, str(campaign / "journal"), problem, remedy)


def is_shorter(journal: UpdateLog, state: RackCampaign | None) -> bool:
    """Return whether a journal knows of fewer acts that were done, or of fewer writes that were
    begun, than its campaign's state.
    """
    done = sum(step == Step.DONE for step in dict(journal.steps()).values())
    return state is not None and (done < state.done or journal.count_begun() < state.begun)


def touch_no_node() -> str:
    """Judge an act on what is no node; those on nodes pass the gate of their own ports."""
    return ""
