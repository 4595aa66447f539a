"""Asks the devices of certified hosts again: after each reset, and once in a while.

Roots of trust are asked over the BMC, GPUs and NVSwitches in hosts that wait for a tenant only.

A timer loop, no operations. An alert carries the result; the reconciler revokes the certificate,
with the alert's message as its reason. The time of the last proof is stored, so that a restart of
the daemon neither asks the whole fleet at once nor forgets a turn.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from zlib import crc32

from provisioner.checks import attested_firmware, collected_reports
from provisioner.checks.check import Check, CheckContext
from provisioner.checks.collected_reports import ReportKind
from provisioner.checks.context import build_context
from provisioner.control.context import Context
from provisioner.control.watch.alert_keeper import CERTIFIED, AlertKeeper
from provisioner.control.watch.watched_nodes import ReadQueue
from provisioner.execution.actions.reach import HOST
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.inband import ask_host, attach_answers
from provisioner.execution.observe.watch import OutOfBand
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import Evidence
from provisioner.model.events.node_events import NodeAttested
from provisioner.model.matrix import AttestationRule, Matrix
from provisioner.model.node import Boots, Node, Placement, State
from provisioner.model.outcome import Blocker
from provisioner.planning.certification import attested_state
from provisioner.planning.certification.attested_state import (
    find_certified_rule,
    find_rule,
    read_roots,
)
from provisioner.planning.watch import leaks
from provisioner.planning.watch.leaks import Renewal
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# GPUs and NVSwitches of hosts that wait for a tenant are asked again, inside the host.
#
# A host that serves is its tenant's: nothing is asked of it.


_LOG = logging.getLogger(__name__)
REPORT_BEFORE_S = 48 * 3600.0  # a certificate's report began no earlier than this before it
_CHECKS: Sequence[tuple[ReportKind, Check]] = (
    (collected_reports.GPUS, collected_reports.CHECK_GPUS),
    (collected_reports.NVSWITCHES, collected_reports.CHECK_NVSWITCHES),
)
Question = tuple[bool, Callable[[], Awaitable[Renewal]]]  # whether it is required, and how to ask


def may_ask(node: Node) -> bool:
    """Return whether a host runs a system of ours and no tenant has it, or will have it soon."""
    return (
        node.state is State.CERTIFIED
        and not node.tenant
        and node.placement is Placement.MAINTENANCE
        and node.boots is Boots.SYSTEM
    )


def asks_hosts(rule: AttestationRule) -> bool:
    """Return whether a profile asks for reports that are collected inside the host."""
    return rule.gpu_reports.is_asked or rule.nvswitch_reports.is_asked


async def read_certified(
    store: SqlStore, certificate: Certificate, check: str
) -> Mapping[str, Evidence] | None:
    """Return the outputs of one check that a certificate rests on; None if it had none."""
    since = certificate.issued_at - REPORT_BEFORE_S
    reports = await store.evidence.list_reports(certificate.node, since)
    for report in reports:
        if report.digest() != certificate.report_digest:
            continue
        for result in report.results:
            if result.check == check:
                text = await store.evidence.get_output(result.evidence)
                return attested_state.parse_evidence(text)
    return None


class ReportQuestions:
    """The questions to the devices of one host at a time."""

    def __init__(self, context: Context, site: Site, matrix: Matrix) -> None:
        self._store = context.store
        self._site = site
        self._matrix = matrix

    async def list_questions(self, node: Node, certificate: Certificate) -> list[Question]:
        """Return a question for each kind of device that the profile asks of a waiting host."""
        inventory = await self._store.evidence.get_inventory(node.id)
        if inventory is None or not may_ask(node):
            return []
        certified = node.model_copy(update={"release": certificate.release})
        context = build_context(certified, inventory, self._matrix)
        questions: list[Question] = []
        for kind, check in _CHECKS:
            rule = kind.find_rule(context)
            if rule.is_asked:
                ask = partial(self._ask, kind, check, node, certificate, context)
                questions.append((rule.policy == "require", ask))
        return questions

    async def _ask(
        self,
        kind: ReportKind,
        check: Check,
        node: Node,
        certificate: Certificate,
        context: CheckContext,
    ) -> Renewal:
        """Ask once; evidence that proves nothing is stored for auditors."""
        outputs = await ask_host(self._site, node, check.commands_of(context), context)
        if isinstance(outputs, Blocker):
            message = f"the host gave no answer: {outputs.detail}"[:300]
            return Renewal(unproved=((kind.name, message),))
        judged = check.judge(outputs, context)
        findings = [
            f.model_copy(update={"part": kind.name}) if f.part == "host" else f
            for f in judged.findings
        ]
        before = await read_certified(self._store, certificate, check.name)
        then = attested_state.read_devices(kind, before, context) if before else None
        now = attested_state.read_devices(kind, outputs, context)
        result = leaks.judge_renewal(findings, then, now)
        if not result.proved:
            raw = {name: output.model_dump(mode="json") for name, output in outputs.items()}
            digest = await self._store.evidence.put_output(json.dumps(raw, sort_keys=True))
            _LOG.warning(
                "%s: %s did not prove the certified firmware; evidence %s",
                *(node.id, kind.name, digest),
            )
        return result


ROUND_S = 60.0
LOOKS_MAX = 16  # a host with nine roots of trust takes some minutes
RETRY_S = 3600.0  # after a proof that could not be had
# A tenant may restart its host all day: its roots are asked this often at most.
RESET_AGAIN_S = 3600.0
# An overloaded daemon puts questions off, and none for longer than this: a changed measurement is
# found within a bound whatever else goes on. So many at a time then; they cost next to nothing.
OVERLOADED_WAIT_S = 3600.0
OVERLOADED_MAX = 2


@dataclass
class _Turns:
    """When a host's resets are read next, and when its roots are asked next."""

    certificate: str
    issued_at: float
    look_at: float
    ask_at: float
    proved_at: float
    asked_at: float = float("-inf")
    resets: Mapping[str, str] | None = None


class AttestationWatch:
    """`run` asks for ever. Hosts with a certificate only, whose profile asks for attestation."""

    def __init__(
        self,
        context: Context,
        matrix: Matrix,
        eyes: OutOfBand,
        hosts: ReportQuestions,
        keeper: AlertKeeper,
        may_watch: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._matrix = matrix
        self._eyes = eyes
        self._hosts = hosts
        self._keeper = keeper
        self._may_watch = may_watch
        self._nodes: dict[str, Node] = {}
        self._turns: dict[str, _Turns] = {}
        self._lane = ReadQueue(LOOKS_MAX, self._begin)

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            while True:
                await self.run_round()
                await self._clock.sleep(ROUND_S)
        finally:
            await self._lane.close()

    async def run_round(self) -> None:
        """Begin the looks that are due, the longest overdue first."""
        self._nodes = {
            node.id: node
            for node in await self._store.nodes.list()
            if node.state in CERTIFIED
            and node.certificate
            and _is_watched(node, find_rule(node, self._matrix))
        }
        for name in [n for n in self._turns if n not in self._nodes]:
            del self._turns[name]
        now = self._clock.now()
        due = sorted(
            (at, name)
            for name, node in self._nodes.items()
            if (at := self._find_due(node)) <= now and name not in self._lane.running
        )
        self._lane.due([name for _, name in (due if self._may_watch() else self._late(due, now))])

    def _late(self, due: Sequence[tuple[float, str]], now: float) -> Sequence[tuple[float, str]]:
        """Return what an overloaded daemon asks all the same: the longest overdue."""
        room = max(OVERLOADED_MAX - len(self._lane.running), 0)
        return [(at, name) for at, name in due if at <= now - OVERLOADED_WAIT_S][:room]

    def _find_due(self, node: Node) -> float:
        turns = self._turns.get(node.id)
        if turns is None or turns.certificate != node.certificate:
            return 0.0
        return min(turns.look_at, turns.ask_at)

    def _begin(self, name: str) -> Coroutine[None, None, None] | None:
        node = self._nodes.get(name)
        return None if node is None else self._look(node)

    async def _look(self, node: Node) -> None:
        """Read a host's resets, and ask its roots of trust if a proof is due."""
        certificate = await self._store.evidence.get_certificate(node.certificate)
        if certificate is None:
            return
        turns = self._turns.get(node.id)
        if turns is None or turns.certificate != certificate.id:
            turns = self._turns[node.id] = await self._take(node, certificate)
        now = self._clock.now()
        if turns.look_at <= now:
            turns.look_at = now + self._settings.watch_s
            await self._read_resets(node, turns)
        if turns.ask_at <= now:
            await self._renew(node, certificate, turns)

    async def _take(self, node: Node, certificate: Certificate) -> _Turns:
        """Return the turns of a host under a certificate that this daemon has not watched yet."""
        now = self._clock.now()
        stored = await self._store.clock_marks.get(_mark(node.id))
        proved_at = max(certificate.issued_at, stored or 0.0)
        alerts = await self._keeper.book.list(node.id)
        if leaks.list_outdated(alerts, certificate.issued_at):
            await self._keeper.level(node.id, {leaks.SOURCE: ()})
        share = crc32(node.id.encode()) / 2**32
        pending = any(a.active and a.id == leaks.UNPROVED for a in alerts)
        return _Turns(
            certificate=certificate.id,
            issued_at=certificate.issued_at,
            look_at=now + share * self._settings.watch_s,
            ask_at=now + RETRY_S if pending else proved_at + self._settings.attestation_again_s,
            proved_at=proved_at,
        )

    async def _read_resets(self, node: Node, turns: _Turns) -> None:
        shown = await self._eyes.read_resets(node)
        if not shown:
            return
        if leaks.was_reset(turns.resets, shown, turns.proved_at):
            turns.ask_at = min(turns.ask_at, max(self._clock.now(), turns.asked_at + RESET_AGAIN_S))
        turns.resets = {**(turns.resets or {}), **shown}

    async def _renew(self, node: Node, certificate: Certificate, turns: _Turns) -> None:
        """Ask every device that may be asked; report what differs from the certified state."""
        rule = find_certified_rule(node, certificate, self._matrix)
        turns.asked_at = self._clock.now()
        questions = await self._hosts.list_questions(node, certificate)
        if rule.is_asked:
            questions.insert(0, (rule.is_required, partial(self._ask, node, certificate, rule)))
        if not questions:  # the release that it waits for asks, the one that it runs does not
            turns.ask_at = turns.asked_at + self._settings.attestation_again_s
            return
        turns.ask_at = turns.asked_at + RETRY_S
        results = [(required, await _ask_twice(ask)) for required, ask in questions]
        current = await self._store.nodes.get(node.id)
        if current is None or current.certificate != certificate.id:
            return  # it was validated anew while it was asked
        now = self._clock.now()
        unproved = any(result.unproved for _, result in results)
        turns.ask_at = now + (RETRY_S if unproved else self._settings.attestation_again_s)
        if all(result.proved for _, result in results):
            await self._store.journal.append(_describe_proof(node.id, certificate, results), now)
            turns.proved_at = now
            await self._store.clock_marks.put(_mark(node.id), now)
        standing = await self._keeper.book.list(node.id)
        grace_s = self._settings.attestation_grace_s
        conditions = [
            condition
            for required, result in results
            for condition in leaks.list_conditions(
                result, standing, required=required, now=now, grace_s=grace_s
            )
        ]
        if await self._keeper.level(node.id, {leaks.SOURCE: conditions}):
            await self._keeper.consider(current)

    async def _ask(self, node: Node, certificate: Certificate, rule: AttestationRule) -> Renewal:
        """Ask once; return the result. Evidence that proves nothing is stored for auditors."""
        evidence = await self._eyes.ask_roots(node, sorted(rule.components))
        if isinstance(evidence, Blocker):
            return Renewal(unproved=((HOST, f"its BMC gave no answer: {evidence.detail}"[:300]),))
        evidence = attach_answers(evidence, self._settings.attestation_references)
        outputs = {attested_firmware.CHECK.commands[0].name: evidence}
        judged = attested_firmware.CHECK.judge(outputs, CheckContext(attestation=rule))
        certified = await read_certified(self._store, certificate, attested_firmware.NAME)
        before = read_roots(certified, rule) if certified else None
        result = leaks.judge_renewal(judged.findings, before, read_roots(outputs, rule))
        if not result.proved:
            raw = {name: output.model_dump(mode="json") for name, output in outputs.items()}
            digest = await self._store.evidence.put_output(json.dumps(raw, sort_keys=True))
            _LOG.warning("%s did not prove its certified firmware; evidence %s", node.id, digest)
        return result


def _describe_proof(
    node: str, certificate: Certificate, results: Sequence[tuple[bool, Renewal]]
) -> NodeAttested:
    """Return the event of a proof: its state is comparable with the one in the certificate."""
    required = [renewal for is_required, renewal in results if is_required]
    shown = required or [renewal for _, renewal in results]
    roots = [root for renewal in shown for root in renewal.roots]
    return NodeAttested(
        about=node, certificate=certificate.id, state=attested_state.digest_roots(roots)
    )


async def _ask_twice(ask: Callable[[], Awaitable[Renewal]]) -> Renewal:
    """Ask, and ask again where something differs."""
    result = await ask()
    return leaks.confirm_renewal(result, await ask()) if result.differs else result


def _is_watched(node: Node, rule: AttestationRule) -> bool:
    return rule.is_asked or (asks_hosts(rule) and may_ask(node))


def _mark(node: str) -> str:
    return f"attested {node}"
