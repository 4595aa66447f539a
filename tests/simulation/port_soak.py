"""A random life of ports: releases and reclaims by the real reconciler while everything fails.

Real here: reconciler, `lifecycle.decide`, performer, store, tenancy, leaf, the words of Cumulus.
Simulated: the switches' NVUE (`provisioner.integrations.sim`), behind a wire that delays and loses.
Given, not simulated: what a host's BMCs and checks would say (`Hosts`), because no port depends on
how it is read. Time is virtual and all chance comes from one seed: a seed replays a run exactly.

A step is one act of chance on the world: a release, reclaim or retry begun, a certificate
withdrawn, a crash of the daemon, a leaf that reboots or is cut off, a leak that appears or ends,
a revision that somebody else left or applies, a request or an answer that is lost. Requests that
arrive, turns and polls are counted apart, and are no steps.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import Any

from port_given import TENANTS
from port_members import DRIVERLESS_S, LOOK_S, NEAR_MS, Member
from port_truth import FENCE_S, MAINTENANCE, Violated
from port_world import WATCH_S, Lie, PortWorld

from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, State, TenantData
from provisioner.model.operation import OperationStatus
from provisioner.model.tenant import Tenant
from provisioner.planning.lifecycle import operator_requests as requests
from provisioner.ports import StaleWrite
from provisioner.store.repositories.signing_keys import MasterKey, open_signer

LIES_MAX = 4  # answers of a leaf that a misreading lasts
RESTS_WITHIN_S = 6 * 3600.0  # of virtual time, once nothing fails any more
ACTS = {  # what chance does, and how often against the others
    "release": 30,
    "reclaim": 20,
    "retry": 10,
    "withdraw": 4,
    "hot swap": 2,
    "crash": 4,
    "reboot": 1,
    "cut off": 2,
    "leak": 3,
    "leak ends": 4,
    "left revision": 4,
    "stale revision": 4,
    "foreign hand": 5,
    "keep configuration": 3,
    "restore configuration": 2,
    "misreading": 4,
    "replay": 4,
    "half answers": 4,
    "slow member": 1,
    "half reach": 1,
}


class Soak(PortWorld):
    """One life of that world: daemons come and go, and everything fails now and then."""

    looked_at = 0.0  # when members last looked at each other

    # --- a life

    async def live(self, steps: int) -> None:
        """At least so many steps, then rest. Raises `Violated`."""
        await self.open()
        acts, weights = list(ACTS), list(ACTS.values())
        while self.steps.total() < steps:
            await self._let_pass(self.rng.expovariate(1 / self.pace_s))
            act = self.rng.choices(acts, weights)[0]
            if await getattr(self, "_" + act.replace(" ", "_"))():
                self.last = act
                self.count(act)
            await self._reap()
            await self._schedule()
            self.truth.look()
            self.truth.judge()
        await self._rest()
        await self.close()
        unheard = [s.name for s in self.switches.values() if not s.heard]
        assert not unheard, f"nothing was heard of {unheard}: its moves were not judged"

    async def open(self) -> None:
        """Everything is stored, and a daemon takes the hosts in."""
        for switch in self.switches:
            url = f"https://{switch}"
            await self.store.nodes.add(Node(id=switch, kind=NodeKind.SWITCH, address=url))
        for node in self.hosts:
            self.saw(await self.store.nodes.add(node))
        for name, vrf in TENANTS.items():
            await self.store.tenants.put(Tenant(name=name, vrf=vrf, nodes_wanted=9))
        self.signer = await open_signer(self.store, MasterKey.generate(), self.clock.now())
        self._start()
        for node in self.hosts:
            await self._operation(node.id)

    async def close(self) -> None:
        """Stop writing."""
        await self._stop_watching()
        await self.tenancy.close()
        await self.store.close()

    async def _rest(self) -> None:
        """Nothing fails any more: everything comes to its rest, and is known there."""
        self.wire.lost = 0.0
        self.wire.lies.clear()
        self.wire.halves.clear()
        for member in self.members.all:
            member.cut_until = member.slow_until = 0.0
        self.cut.clear()
        for switch in self.switches.values():
            switch.leaks.clear()
        until = self.clock.now() + RESTS_WITHIN_S
        quiet_at = self.clock.now() + 4 * WATCH_S  # what nobody drives, the watch must find
        while self.driving or self.clock.now() < quiet_at:
            if self.clock.now() > until:
                raise Violated(f"no rest within {RESTS_WITHIN_S} s: {sorted(self.driving)}")
            await self.clock.sleep(5.0)
            await self._members_look()
            await self._reap()
            await self._schedule()
            await self._answer_questions()
            if self.driving:
                quiet_at = self.clock.now() + 4 * WATCH_S
        self.advance()
        self.truth.hands.clear()  # nothing of a foreign hand's is left anywhere
        for node in self.hosts:
            self.truth.at_rest(node.id)
        self.truth.judge()
        assert not await self.store.operations.list_active()

    async def _answer_questions(self) -> None:
        """People decide about each tenant's data that they were asked about: others wait for it."""
        for node in self.hosts:
            row = await self.store.nodes.get(node.id)
            asks = row.tenant_data is TenantData.ASKED and row.state is State.QUARANTINED
            if asks and node.id not in self.driving:
                await self._decide(row)

    # --- the daemon

    async def _operation(self, node: str) -> bool:
        operation = await self.store.operations.open(node, "journey", self.clock.now())
        if operation is None:
            return False
        self._drive(operation)
        return True

    def _drive(self, operation: Any) -> None:
        task = asyncio.create_task(self.reconciler.drive(operation.id), name=operation.id)
        self.driving[operation.node] = task

    async def submit(self, operation: str) -> None:
        """As the engine does."""
        self._drive(await self.store.operations.get(operation))

    async def _schedule(self) -> None:
        """As the scheduler does: a node that was taken back by a daemon which died is driven."""
        for node in self.hosts:
            if node.id not in self.driving and self.truth.rows[node.id].state == "draining":
                await self._operation(node.id)

    async def _stop_watching(self) -> None:
        for task in self.watching:
            task.cancel()
        ended = await asyncio.gather(*self.watching, return_exceptions=True)
        self.watching.clear()
        for problem in ended:
            if isinstance(problem, Exception):
                raise problem

    async def _reap(self) -> None:
        """Operations that have ended: whoever rests is known."""
        for node, task in list(self.driving.items()):
            if task.done():
                del self.driving[node]
                task.result()
                ended = await self.store.operations.get(task.get_name())
                if ended.status is not OperationStatus.DONE:
                    raise Violated(f"{node} is parked: a fault of ours")
                if self.truth.rows[node].placement != "mixed":  # else the watch is fencing it
                    self.truth.at_rest(node)

    async def _idle(self, *states: State) -> Node | None:
        """A node on which nobody works, in one of these states."""
        for node in self.rng.sample(self.hosts, len(self.hosts)):
            if node.id not in self.driving and self.truth.rows[node.id].state in states:
                found: Node | None = await self.store.nodes.get(node.id)
                return found
        return None

    # --- what chance does; False: there was nothing to do it to

    async def _release(self) -> bool:
        node = await self._idle(State.CERTIFIED)
        if node is None:
            return False
        tenant = self.rng.choice(list(TENANTS))
        return await self._asked(node.model_copy(update={"tenant": tenant}))

    async def _reclaim(self) -> bool:
        node = await self._idle(State.RELEASED)
        if node is None:
            return False
        asked = requests.reclaim_node(node, self.clock.now())
        assert isinstance(asked, Node)
        self.truth.words.add(node.id)
        return await self._asked(asked)

    async def _retry(self) -> bool:
        node = await self._idle(State.QUARANTINED)
        if node is None:
            return False
        return await self._decide(node)

    async def _decide(self, node: Node) -> bool:
        """A person has a node tried again, and gives up a tenant's data with its word."""
        data = TenantData.SETTLED
        if node.tenant_data in (TenantData.ASKED, TenantData.KEEP):
            data = TenantData.ERASE  # with the tenant's word
            self.truth.words.add(node.id)
        asked = requests.retry_node(node, self.clock.now(), tenant_data=data)
        assert isinstance(asked, Node), asked
        return await self._asked(asked)

    async def _asked(self, node: Node) -> bool:
        """A row as a person wants it; the watch may have been faster."""
        try:
            await self.store.nodes.save(node)
        except StaleWrite:
            return False
        return await self._operation(node.id)

    async def _withdraw(self) -> bool:
        """A certificate is withdrawn, of whatever node; a tenant's is taken back for it."""
        node = self.rng.choice(self.hosts)
        row = self.truth.rows[node.id]
        if self.truth.lapsed_at(row.certificate) is not None:
            return False
        await self.store.evidence.revoke(row.certificate, "withdrawn by chance", self.clock.now())
        stored = await self.store.nodes.get(node.id)
        if row.state == "released" and node.id not in self.driving:
            asked = requests.reclaim_node(stored, self.clock.now())
            if isinstance(asked, Node):
                self.truth.words.add(node.id)
                await self._asked(asked)
        return True

    async def _misreading(self) -> bool:
        """A leaf shows a node that serves in another network, for some answers: late, or of old."""
        node = await self._idle(State.RELEASED)
        if node is None:
            return False
        port = self.rng.choice(node.ports)
        others = ["default", *(v for v in TENANTS.values() if v != node.vrf)]
        self._lie(port, self.rng.choice(others), "misread answer")
        return True

    async def _replay(self) -> bool:
        """A leaf shows where a port of a node that serves was at some time before."""
        node = await self._idle(State.RELEASED)
        if node is None:
            return False
        port = self.rng.choice(node.ports)
        before = self.truth.had.get((port.switch, port.interface), set()) - {node.vrf}
        if not before:
            return False
        self._lie(port, self.rng.choice(sorted(before)), "replayed answer")
        return True

    def _lie(self, port: Port, vrf: str, counted: str) -> None:
        lie = Lie(vrf, self.rng.randint(1, LIES_MAX), counted)
        self.wire.lies[port.switch, port.interface] = lie

    async def _half_answers(self) -> bool:
        """The next answers of a leaf lack a part, whatever is asked."""
        self.wire.halves[self._leaf()] += self.rng.randint(1, LIES_MAX)
        return True

    # --- several daemons on one database

    async def _slow_member(self) -> bool:
        self.members.strike("slow member", self.rng.choice(self.members.all), self.clock.now())
        return True

    async def _half_reach(self) -> bool:
        self.members.strike("half reach", self.rng.choice(self.members.all), self.clock.now())
        return True

    async def _let_pass(self, seconds: float) -> None:
        """Time, in which members look at each other every few seconds."""
        until = self.clock.now() + seconds
        while True:
            left_s = until - self.clock.now()
            if left_s > 0.0:
                await self.clock.sleep(min(left_s, LOOK_S))
            self.advance()
            await self._members_look()
            if left_s <= LOOK_S:
                return

    async def _members_look(self) -> None:
        """Every member states what it reaches; one that gives up leaves all to another."""
        now = self.clock.now()
        given_up = self.members.look(now)
        passed_s, self.looked_at = now - self.looked_at, now
        for leaf in self.switches:
            if not self.member.reaches((leaf,)) or self.member.round_trip_ms > NEAR_MS:
                self.truth.hindered(passed_s, leaf, unseen=True)
        better = self.members.find_better(self.member, self.switches, slow=True)
        if better is None or not self.driving:
            self.worse_at = None
        elif self.worse_at is None:
            self.worse_at = now
        if self.worse_at is not None:
            self.driverless_s = max(self.driverless_s, now - self.worse_at)
            if now - self.worse_at > DRIVERLESS_S:
                raise Violated(f"{self.member.name} kept its work for {now - self.worse_at:.0f} s")
        hindered = bool(self.member.cut) or self.member.round_trip_ms > NEAR_MS
        hindered = hindered or any(now < until + WATCH_S for until in self.cut.values())
        await self._judge_drivers(passed_s, hindered=hindered)
        if self.member in given_up:
            self.count("handed over")
            self.worse_at = None
            await self._die(self.rng.choice((0.0, 0.5, 3.0)), self.members.takes_over(self.member))

    async def _judge_drivers(self, passed_s: float, *, hindered: bool) -> None:
        """Every operation that is active is driven, or was begun a moment ago; nobody leaves a
        node whose ports are not proved to be in one place.
        """
        active = {o.id for o in await self.store.operations.list_active()}
        active |= {n for n, row in self.truth.rows.items() if row.placement == "mixed"}
        driven = {*self.driving} | {task.get_name() for task in self.driving.values()}
        for gone in self.idle_at.keys() - (active - driven):
            del self.idle_at[gone]
        for idle in active - driven:
            since = self.idle_at.setdefault(idle, self.clock.now())
            if hindered:
                self.idle_at[idle] = since + passed_s
            elif self.clock.now() - since > (FENCE_S if idle in self.truth.rows else DRIVERLESS_S):
                raise Violated(f"{idle} has no driver since {since}")

    async def _hot_swap(self) -> bool:
        """People exchange the drive of a host that runs, and tell nobody."""
        node = self.rng.choice(self.hosts).id
        self.swaps += 1
        self.truth.swap(node, f"{node}-drive-{self.swaps}")
        return True

    async def _crash(self) -> bool:
        """The daemon is gone between two awaits; its successor finds what is still open."""
        fit = [m for m in self.members.all if m.fitness.fit] or self.members.all
        await self._die(self.rng.choice((0.0, 0.5, 3.0, 60.0)), self.rng.choice(fit))
        return True

    async def _die(self, away_s: float, successor: Member) -> None:
        for task in self.driving.values():
            task.cancel()
        await asyncio.gather(*self.driving.values(), return_exceptions=True)
        self.driving.clear()
        await self._stop_watching()
        await self.tenancy.close()
        self.truth.hindered(away_s + WATCH_S)  # the successor's first looks are spread
        until = self.clock.now() + away_s
        while (left_s := until - self.clock.now()) > 0.0:
            await self.clock.sleep(min(left_s, 1.0))
            self.advance()  # what leaves do meanwhile has its own time
            self.members.look(self.clock.now())
        # who gave up meanwhile takes nothing over
        fit = successor.fitness.fit
        self.member = successor if fit else self.members.takes_over(successor)
        self._start()
        for operation in await self.store.operations.list_active():
            assert operation.status is OperationStatus.ACTIVE
            self._drive(operation)

    async def _reboot(self) -> bool:
        await self._restart(self._leaf())
        return True

    async def _restart(self, leaf: str) -> None:
        switch = self.switches[leaf]
        for port in [p for p in self.unsaved if p[0] == leaf]:
            # somebody else took it out of a customer's network and never saved that: it comes back
            self.unsaved.discard(port)
            back = switch.startup["interface"][port[1]].get("ip", {}).get("vrf", "default")
            if back in TENANTS.values() and switch.get_vrf(port[1]) != back:
                self.truth.hand(leaf, port[1], back)
        switch.reboot(self.clock.now())
        self.truth.hindered(switch.down_until - self.clock.now() + WATCH_S, leaf)

    async def _cut_off(self) -> bool:
        leaf, seconds = self._leaf(), self.rng.expovariate(1 / 20.0)
        self.cut[leaf] = self.clock.now() + seconds
        self.truth.hindered(seconds + WATCH_S, leaf)
        return True

    async def _foreign_hand(self) -> bool:
        """A person puts a port into a customer's network, and saves it or not."""
        leaf, interface = self._leaf(), f"swp{self.rng.randrange(len(self.hosts)) + 1}"
        vrf, switch = self.rng.choice(list(TENANTS.values())), self.switches[leaf]
        if not switch.is_up(self.clock.now()) or not self._all_fenced_once():
            return False
        self.truth.hand(leaf, interface, vrf)
        self.truth.disturbed[f"node-{int(interface.removeprefix('swp')) - 1}"] = self.clock.now()
        revision = switch.new_revision()
        revision.changes.append(((), {"interface": {interface: {"ip": {"vrf": vrf}}}}))
        switch.apply(revision, self.clock.now())
        return True

    async def _keep_configuration(self) -> bool:
        """Somebody keeps a copy of what a leaf starts with."""
        if not self._all_fenced_once():
            return False
        leaf = self._leaf()
        self.kept[leaf] = copy.deepcopy(self.switches[leaf].startup)
        return True

    async def _restore_configuration(self) -> bool:
        """... and the leaf comes back with it: after an RMA, or by a person who rolls back."""
        leaf = self._leaf()
        if leaf not in self.kept:
            return False
        old = self.kept.pop(leaf)
        for number, node in enumerate(self.hosts):
            vrf = old["interface"][f"swp{number + 1}"].get("ip", {}).get("vrf", "default")
            if vrf in TENANTS.values():
                self.truth.hand(leaf, f"swp{number + 1}", vrf)
            self.truth.disturbed[node.id] = self.clock.now()
        self.switches[leaf].startup = old
        await self._restart(leaf)
        return True

    def _all_fenced_once(self) -> bool:
        """Whether every host is ours: a stranger's ports are nobody's to fence."""
        return all(self.truth.rows[n.id].placement != "none" for n in self.hosts)

    async def _leak(self) -> bool:
        leaf, _, prefix = self.rng.choice(self.truth.ports[self.rng.choice(self.hosts).id])
        vrf = self.rng.choice((MAINTENANCE, *TENANTS.values()))
        self.switches[leaf].leaks[prefix] = vrf
        self.truth.leaked_at[leaf, prefix] = self.clock.now()
        return True

    async def _leak_ends(self) -> bool:
        leaks = self.switches[self._leaf()].leaks
        if not leaks:
            return False
        del leaks[self.rng.choice(sorted(leaks))]
        return True

    async def _left_revision(self) -> bool:
        """Somebody else prepares to fence a port, and leaves it at that."""
        leaf = self._leaf()
        interface = f"swp{self.rng.randrange(len(self.hosts)) + 1}"
        revision = self.switches[leaf].new_revision()
        change: Mapping[str, Any] = {"interface": {interface: {"ip": {"vrf": MAINTENANCE}}}}
        revision.changes.append(((), change))
        self.left.append((leaf, revision.id))
        return True

    async def _stale_revision(self) -> bool:
        """... and applies it when the world has moved on."""
        if not self.left:
            return False
        leaf, name = self.left.pop(self.rng.randrange(len(self.left)))
        revision = self.switches[leaf].revisions.get(name)
        if revision is None or not self.switches[leaf].is_up(self.clock.now()):
            return False
        for _, change in revision.changes:
            for interface in change["interface"]:
                node = f"node-{int(interface.removeprefix('swp')) - 1}"
                self.truth.disturbed[node] = self.clock.now()
                self.unsaved.add((leaf, interface))
        self.switches[leaf].apply(revision, self.clock.now())
        return True

    def _leaf(self) -> str:
        return self.rng.choice(list(self.switches))
