"""Sessions of tests among nodes (gate C): open them, drive each, and leave every node a result.

A session belongs to no node's driver: nodes wait for their stored outcome. It receives no messages;
it reads rows, as the scheduler does, and a session that a daemon left is taken up from its runs.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence

from provisioner.checks.fabric.rail_port import Member
from provisioner.control.context import Context
from provisioner.execution.tenancy.release_sequence import HostsApart
from provisioner.execution.validate.fabric_tests import FabricTests
from provisioner.model.cohort import CheckResult, HealthReport
from provisioner.model.events.fleet_events import FabricSessionOpened
from provisioner.model.fabric_session import FabricMember, FabricOutcome, FabricRun, FabricSession
from provisioner.model.node import Node, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.fault_location import fabric_rounds, fabric_session, fabric_verdicts
from provisioner.planning.fault_location.isolation import find_culprits
from provisioner.planning.fault_location.isolation_words import (
    FabricTest,
    FabricTestKind,
    Round,
    Verdicts,
)
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.place_ports import name_groups_above
from provisioner.ports import DamagedRow, Fenced, PortError, StoreFailed
from provisioner.runtime.event_loop import end_tasks
from provisioner.settings import Settings

log = logging.getLogger(__name__)


class FabricSessions:
    """Ticks until cancelled; every session that is under way has one task.

    `submit` hands an operation to the engine: for a proved culprit that waits for nothing, a leaf
    or a lent node, so that it is driven at once.
    """

    def __init__(
        self,
        context: Context,
        tests: FabricTests,
        submit: Callable[[str], Awaitable[None]] | None = None,
        apart: HostsApart | None = None,
        plan: AddressPlan | None = None,
    ) -> None:
        """`apart` opens the doors of tests where leaves keep hosts apart; None: there are none.
        `plan` says which pods and planes there are; without it leaves are all that is known.
        """
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._tests = tests
        self._policy = policy_of(context.settings)
        self._wake = submit
        self._apart = apart
        self._plan = plan
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lost: StoreFailed | None = None

    @property
    def running(self) -> int:
        """Return how many sessions are under way."""
        return len(self._tasks)

    async def run(self) -> None:
        """Tick for ever, at the pace of `poll_s`."""
        while True:
            try:
                await self.tick()
            except PortError as error:  # of the store; the scheduler reports it as well
                log.warning("no look at sessions of tests among nodes: %s", error)
            await self._clock.sleep(self._settings.poll_s)

    async def tick(self) -> None:
        """Take up a predecessor's sessions, and open those that can begin."""
        if self._lost is not None:
            raise self._lost  # ends the daemon
        sessions = await self._store.fabric.list_sessions()
        for session in sessions:  # also if gate C is not demanded any more: lent nodes wait for it
            self._submit(session)
        if "c" not in self._settings.certify_gates:
            return
        nodes = await self._store.nodes.list()
        taken = {m.node for s in sessions for m in s.present}
        seekers = await self._seekers(nodes, taken)
        for members in fabric_session.form_sessions(
            seekers, nodes, taken, self._policy, self._clock.now()
        ):
            await self._open(members, {n.id: n for n in nodes}[members[0].node])

    async def stop(self) -> None:
        """Stop driving; the next daemon takes up the stored state."""
        await end_tasks(*self._tasks.values())

    async def _seekers(self, nodes: Sequence[Node], taken: set[str]) -> list[fabric_session.Seeker]:
        seekers = []
        for node in nodes:
            if node.state is not State.VALIDATING or node.id in taken:
                continue
            report = await self._store.evidence.get_report(node.id)
            if fabric_session.needs_session(
                node, report, await self._store.fabric.get_outcome(node.id)
            ):
                assert report is not None
                seekers.append((node, report))
        return seekers

    async def _open(self, members: tuple[FabricMember, ...], first: Node) -> None:
        session = FabricSession(
            id=uuid.uuid4().hex,
            vrf=first.vrf,
            release=first.release,
            profile=first.profile,
            opened_at=self._clock.now(),
            members=members,
        )
        session = await self._store.fabric.put_session(session)
        event = FabricSessionOpened(
            session=session.id,
            seeking=tuple(m.node for m in members if m.seeks),
            lent=tuple(m.node for m in members if not m.seeks),
        )
        await self._store.journal.append(event, self._clock.now())
        self._submit(session)

    def _submit(self, session: FabricSession) -> None:
        if session.id in self._tasks:
            return
        task = asyncio.create_task(self._guarded(session), name=f"fabric {session.id}")
        self._tasks[session.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(session.id, None))

    async def _guarded(self, session: FabricSession) -> None:
        try:
            await self._drive(session)
        except Fenced:
            log.info("fabric session %s: another daemon drives it", session.id)
        except PortError as error:
            log.warning("fabric session %s: taken up again: %s", session.id, error)
        except DamagedRow as error:  # its node is set aside; the session is taken up without it
            log.warning("fabric session %s: taken up again: %s", session.id, error)
        except StoreFailed as error:  # taken up again by the next daemon
            self._lost = error
        except Exception:  # our own bug: reported with every node, never retried
            log.exception("fabric session %s: parked", session.id)
            await self._park(session.id)

    async def _drive(self, session: FabricSession) -> None:
        """Drive a session from its stored state to its end, beginning with the removal of
        leftovers.
        """
        nodes = await self._nodes(session)
        await self._tests.clean_hosts(nodes[m.node] for m in session.present if m.node in nodes)
        session = await self._set_doors(session, ())
        until = session.opened_at + self._settings.fabric_session_limit_s
        looked: dict[str, Member | Blocker] = {}
        while True:
            session = await self._without_left(session)
            seeking = [m for m in session.present if m.seeks]
            if not seeking or len(session.present) <= self._policy.partners_min:
                # who still waits finds others: this says nothing of it
                await self._end(session, (), "too few nodes are left")
                return
            above = self._list_above(session)
            step = fabric_rounds.decide_next(session, self._policy, above)
            if isinstance(step, Round) and self._clock.now() >= until:
                step = find_culprits(
                    fabric_rounds.fabric_of(session, above),
                    fabric_rounds.list_observations(session),
                    self._policy.isolation,
                )
            if isinstance(step, Verdicts):
                await self._conclude(session, step)
                return
            session = await self._set_doors(session, self._doors_for(step))
            runs = await self._round(session, step, looked)
            session = session.model_copy(update={"runs": (*session.runs, *runs)})
            if not session.doors:
                session = await self._store.fabric.put_session(session)
            else:
                session = await self._set_doors(session, ())

    def _list_above(self, session: FabricSession) -> fabric_rounds.Above:
        leaves = {port.switch for member in session.present for port in member.ports}
        return {leaf: name_groups_above(leaf, self._plan) for leaf in sorted(leaves)}

    def _doors_for(self, step: Round) -> tuple[tuple[str, ...], ...]:
        """Return the groups of nodes among which `mpirun` connects in this round."""
        if self._apart is None or not self._apart.enabled:
            return ()
        nccl = self._settings.fabric_nccl
        return tuple(t.nodes for t in step.tests if nccl or t.kind is FabricTestKind.GROUP)

    async def _set_doors(
        self, session: FabricSession, doors: tuple[tuple[str, ...], ...]
    ) -> FabricSession:
        """Store the pairs of nodes that connect to each other now, then have their leaves follow.

        The row is written first: after a crash it names the doors to be closed. A leaf that does
        not follow is no obstacle: `mpirun` does not start then, and the test reports it; the watch
        of leaves closes doors that were left open.
        """
        if session.doors == doors:
            return session
        names = {name for group in (*session.doors, *doors) for name in group}
        session = await self._store.fabric.put_session(session.model_copy(update={"doors": doors}))
        if self._apart is not None:
            nodes = await self._store.nodes.list_named(names)
            for blocker in await self._apart.bring(tuple(nodes.values())):
                log.warning("fabric session %s: doors: %s", session.id, blocker)
        return session

    async def _round(
        self, session: FabricSession, step: Round, looked: dict[str, Member | Blocker]
    ) -> list[FabricRun]:
        """Return all tests of a round at the same time: no two of them share a node."""
        nodes = await self._nodes(session)

        async def one(test: FabricTest) -> FabricRun:
            among = tuple(nodes[name] for name in test.nodes)
            for node in among:
                if not isinstance(looked.get(node.id), Member):
                    looked[node.id] = await self._tests.read_member(node)
            members = tuple(m for n in among if isinstance(m := looked[n.id], Member))
            if len(members) != len(among):
                return fabric_rounds.record_not_run(test, step.number)
            if test.kind is FabricTestKind.GROUP:
                return await self._tests.run_collective(
                    session.id, test, step.number, among, members
                )
            pair = (among[0], among[1])
            ends = (members[0], members[1])
            suspects = step.number >= self._policy.isolation.screenings
            return await self._tests.run(
                session.id, test, step.number, pair, ends, counting=suspects
            )

        return list(await asyncio.gather(*(one(test) for test in step.tests)))

    async def _conclude(self, session: FabricSession, verdicts: Verdicts) -> None:
        """Store the verdicts' consequences for each node, with the session's end."""
        now = self._clock.now()
        nodes = await self._nodes(session)
        above = self._list_above(session)
        blockers = fabric_rounds.find_outcome_blockers(session, verdicts, self._policy, above)
        members = {m.node: m for m in session.present}
        outcomes = []
        for name, against in blockers.items():
            member = members.get(name)
            results: tuple[CheckResult, ...] = ()
            if member is not None and not against:
                mine = [r for r in session.runs if name in r.nodes]
                results = await self._tests.judge_runs(nodes[name], mine)
                against = fabric_verdicts.find_failed_results(name, results)
            if against and member is not None:
                results = (fabric_verdicts.report_failure(against),)
            if member is None and name not in nodes:
                nodes = {n.id: n for n in await self._store.nodes.list()}
                if name not in nodes:
                    continue  # an unmanaged leaf: the nodes' blockers name it
            outcomes.append(
                FabricOutcome(
                    node=name,
                    session=session.id,
                    bound=member.bound if member is not None else "",
                    began_at=session.opened_at,
                    ended_at=now,
                    blockers=against,
                    results=results,
                    partners=fabric_verdicts.list_partners(session, name),
                )
            )
        await self._end(session, outcomes, fabric_verdicts.summarize_verdicts(verdicts))

    async def _end(
        self, session: FabricSession, outcomes: Sequence[FabricOutcome], note: str
    ) -> None:
        now = self._clock.now()
        session = await self._set_doors(session, ())
        ended = session.model_copy(update={"ended_at": now, "note": note})
        await self._store.fabric.put_session(ended, outcomes)
        event = fabric_verdicts.describe_end(session.id, note, outcomes)
        await self._store.journal.append(event, now)
        seeks = {m.node for m in session.members if m.seeks}
        for outcome in outcomes:
            node = await self._store.nodes.get(outcome.node)
            if self._wake is None or node is None or node.id in seeks or not outcome.blockers:
                continue
            operation = await self._store.operations.open(node.id, node.state.value, now)
            if operation is not None:
                await self._wake(operation.id)

    async def _without_left(self, session: FabricSession) -> FabricSession:
        """Return the session without members that have changed; stored if this is new."""
        nodes = await self._nodes(session)
        reports: dict[str, HealthReport] = {}
        for member in session.present:
            report = await self._store.evidence.get_report(member.node) if member.seeks else None
            if report is not None:
                reports[member.node] = report
        departed = fabric_session.find_departed(session, nodes, reports)
        if not departed:
            return session
        changed = session.model_copy(update={"gone": (*session.gone, *departed)})
        return await self._store.fabric.put_session(changed)

    async def _nodes(self, session: FabricSession) -> Mapping[str, Node]:
        return await self._store.nodes.list_named({m.node for m in session.members})

    async def _park(self, session_id: str) -> None:
        """Record on its nodes that the fault was the daemon's; a person retries them."""
        for session in await self._store.fabric.list_sessions():
            if session.id != session_id:
                continue
            bug = Blocker(
                reason=Reason.OUR_BUG,
                subject="gate C",
                detail="the provisioner failed an assertion of its own; see its log",
                unblock="Report it with the log; then retry the node.",
            )
            now = self._clock.now()
            outcomes = [
                FabricOutcome(
                    node=m.node,
                    session=session.id,
                    bound=m.bound,
                    began_at=session.opened_at,
                    ended_at=now,
                    blockers=(bug,),
                    results=(fabric_verdicts.report_failure((bug,)),),
                )
                for m in session.present
                if m.seeks
            ]
            await self._end(session, outcomes, str(bug))


def policy_of(settings: Settings) -> fabric_session.SessionPolicy:
    return fabric_session.SessionPolicy(
        partners_min=settings.fabric_partners_min,
        gather_s=settings.fabric_gather_s,
        wait_s=settings.fabric_wait_s,
        collectives=settings.fabric_collectives,
        isolation=fabric_session.look_for_rate(settings.fabric_rate_min),
    )
