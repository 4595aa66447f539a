"""Roots of trust of a serving host are asked again, and its certificate ends when they differ.

Devices and keys are the simulator's. A root with hostile firmware shows the version of before.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import virtual_time
from serving import HOST, Serving, world

from provisioner.checks.attestation.trust_anchors import digest_spki
from provisioner.checks.attested_firmware import CHECK, NAME
from provisioner.checks.check import CheckContext
from provisioner.control.watch.attestation_watch import (
    OVERLOADED_WAIT_S,
    ROUND_S,
    AttestationWatch,
)
from provisioner.control.watch.watched_nodes import ReadQueue
from provisioner.execution.observe.watch import OutOfBand
from provisioner.integrations.sim.hardware.device_authority import find_authority
from provisioner.integrations.sim.hardware.simulated_tpm import make_values
from provisioner.integrations.sim.redfish.redfish_integrity import (
    IMPLANTED,
    list_measurements,
)
from provisioner.model.cohort import Evidence, HealthReport, Verdict
from provisioner.model.matrix import (
    AttestationRule,
    AttestedComponents,
    Match,
    Profile,
    Release,
    TrustedMaker,
)
from provisioner.planning.certification import attested_state, certification
from provisioner.planning.certification.evidence_log import EntryKind, LogEntry
from provisioner.planning.lifecycle.admission import Level, Strain
from provisioner.planning.watch.leaks import DIFFERS, UNPROVED
from provisioner.store.repositories.signing_keys import open_signer

Result = TypeVar("Result")
DAY_S = 86400.0
HOUR_S = 3600.0
PERIOD_S = HOUR_S  # a week, but for the time that a test takes
GRACE_S = HOUR_S
ROOT = "HGX_ERoT_GPU_SXM_5"
MARK = f"attested {HOST}"


def make_rule(serving: Serving, policy: str, *, admit_both: bool) -> AttestationRule:
    """Admit what two roots of trust of this host measure now; `admit_both`: hostile values too."""
    machine = serving.world.site.machines[HOST]
    names = ("HGX_ERoT_BMC_0", ROOT)
    values = {name: list_measurements(machine, name) for name in names}
    other = make_values("implant", IMPLANTED)[IMPLANTED].hex()
    more = (other,) if admit_both else ()
    root = find_authority().root
    return AttestationRule.model_validate(
        {
            "policy": policy,
            "makers": [
                TrustedMaker(
                    name=find_authority().root_name,
                    spki_sha256=digest_spki(root.certificate),
                    source="the simulator",
                )
            ],
            "components": {
                name: AttestedComponents(
                    digests={
                        i: (values[name][i].hex(), *(more if i == IMPLANTED else ()))
                        for i in (1, IMPLANTED)
                    }
                )
                for name in names
            },
        }
    )


async def certify(serving: Serving, rule: AttestationRule) -> None:
    """Give the served node the certificate of a validation that asked its roots of trust."""
    world = serving.world
    assert world.daemon is not None
    profile = Profile(match=Match(), pins={}, attestation=rule)
    parts = world.daemon.parts
    releases = {**parts.matrix.releases, "r": Release(profiles={"p": profile})}
    matrix = parts.matrix.model_copy(update={"releases": releases})
    world.daemon.parts = dataclasses.replace(parts, matrix=matrix)
    eyes = OutOfBand(world.daemon.site.reach, world.clock, 200.0)
    evidence = await eyes.ask_roots(await serving.node(), sorted(rule.components))
    assert isinstance(evidence, Evidence)
    outputs = {"measurements": evidence}
    text = json.dumps({n: e.model_dump(mode="json") for n, e in outputs.items()})
    digest = await world.store.evidence.put_output(text)
    result = CHECK.judge(outputs, CheckContext(attestation=rule))
    assert (result.check, result.verdict) == (NAME, Verdict.PASS)
    result = result.model_copy(update={"evidence": digest})
    node = await serving.node()
    inventory = await world.store.evidence.get_inventory(HOST)
    assert inventory is not None
    now = world.clock.now()
    report = HealthReport(
        node=HOST, inventory_digest="", started_at=now, ended_at=now, results=(result,)
    )
    certificate = certification.issue_certificate(
        certificate_id="c2",
        node=node,
        inventory=inventory,
        report=report,
        matrix_digest="m",
        now=now,
        valid_s=300 * DAY_S,
        attestation=attested_state.describe_attestation(
            [result], {digest: text}, CheckContext(attestation=rule)
        ),
    )
    operation = await world.store.operations.open(HOST, "test", now)
    assert operation is not None
    taken, _ = await world.store.operations.record(
        await world.store.operations.take(operation.id),
        node=node.model_copy(update={"certificate": "c2"}),
        report=report,
        certificate=(await open_signer(world.store, world.key, now)).sign(certificate),
        now=now,
    )
    await world.store.operations.end(taken, "done", "")  # type: ignore[arg-type]


def lived(
    folder: Path,
    story: Callable[[Serving], Awaitable[Result]],
    policy: str = "require",
    *,
    admit_both: bool = False,
) -> Result:
    """Return what a story about a released and attested host came to."""

    async def main() -> Result:
        calm = {"watch_parts_s": 1e9, "watch_node_s": 6 * HOUR_S, "watch_silent_s": 1e9}
        calm |= {"attestation_again_s": PERIOD_S, "attestation_grace_s": GRACE_S}
        serving = Serving(world(folder, watch_s=900.0, **calm))
        await serving.release(300 * 86400)
        await certify(serving, make_rule(serving, policy, admit_both=admit_both))
        try:
            await serving.start(streams=False)
            return await story(serving)
        finally:
            await serving.stop()
            await serving.world.store.close()

    return virtual_time.run(main())


async def revocation(serving: Serving) -> str:
    """Return why the certificate was revoked; "" if it was not."""
    revoked = await serving.world.store.evidence.list_revocations()
    return next((r.reason for r in revoked if r.certificate == "c2"), "")


async def proved_at(serving: Serving) -> float | None:
    return await serving.world.store.clock_marks.get(MARK)


def test_a_certified_host_proves_its_firmware_again_and_again(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[float, list[float | None], str, object]:
        began = serving.world.clock.now()
        proofs = []
        for hours in (0.9, 0.6, 1.1):
            await serving.world.clock.sleep(hours * HOUR_S)
            proofs.append(await proved_at(serving))
        return began, proofs, await revocation(serving), await serving.standing()

    began, proofs, reason, standing = lived(tmp_path, story)

    early, first, second = proofs
    assert early is None
    assert first is not None
    assert second is not None
    assert PERIOD_S <= first - began < PERIOD_S + HOUR_S / 2
    assert PERIOD_S <= second - first < PERIOD_S + HOUR_S / 2
    assert (reason, standing) == ("", {})


def test_each_proof_is_an_entry_of_the_evidence_log_with_the_certified_state(
    tmp_path: Path,
) -> None:
    async def story(serving: Serving) -> tuple[str, list[LogEntry]]:
        await serving.world.clock.sleep(2.6 * HOUR_S)
        store = serving.world.store
        certificate = await store.evidence.get_certificate("c2")
        assert certificate is not None
        while await store.evidence_log.advance():
            pass
        size = (await store.evidence_log.read_state()).size
        entries = [entry for _, entry in await store.evidence_log.list_entries(HOST, size)]
        return certificate.attestation, entries

    certified, entries = lived(tmp_path, story)

    proofs = [entry for entry in entries if entry.kind is EntryKind.ATTESTED]
    assert [f"{attested_state.STATE}{entry.evidence}" for entry in proofs] == [certified] * 2


def test_firmware_that_changed_under_its_version_ends_the_certificate(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[bool, str]:
        serving.world.site.machines[HOST].implants.add(ROOT)
        came = await serving.until(lambda s: (DIFFERS, ROOT) in s, 2 * HOUR_S)
        await serving.world.clock.sleep(60)
        return came, await revocation(serving)

    came, reason = lived(tmp_path, story)

    assert came
    assert ROOT in reason
    assert "measurement 3 is not the one" in reason
    assert make_values("implant", IMPLANTED)[IMPLANTED].hex() in reason


def test_another_admitted_firmware_is_not_the_certified_one(tmp_path: Path) -> None:
    async def story(serving: Serving) -> str:
        serving.world.site.machines[HOST].implants.add(ROOT)
        await serving.until(lambda s: (DIFFERS, ROOT) in s, 2 * HOUR_S)
        await serving.world.clock.sleep(60)
        return await revocation(serving)

    assert "was certified, now it is" in lived(tmp_path, story, admit_both=True)


def test_a_reset_of_the_bmc_brings_the_question_at_once(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[float, float | None]:
        await serving.world.clock.sleep(1800)
        serving.world.site.machines[HOST].implants.add(ROOT)
        machine = serving.world.site.machines[HOST]
        machine.bmc_reset("host", serving.world.clock.now())
        reset_at = serving.world.clock.now()
        assert await serving.until(lambda s: (DIFFERS, ROOT) in s, 2 * HOUR_S)
        return reset_at, serving.world.clock.now()

    reset_at, differs_at = lived(tmp_path, story)

    assert differs_at is not None
    assert differs_at - reset_at < 1750


def test_a_root_that_is_silent_ends_the_certificate_after_the_grace_only(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[str, str, object]:
        serving.world.site.machines[HOST].silent_roots.add(ROOT)
        assert await serving.until(lambda s: any(i == UNPROVED for i, _ in s), 2 * HOUR_S)
        await serving.world.clock.sleep(HOUR_S / 2)
        early = await revocation(serving)
        await serving.stop()  # the grace does not begin again with the daemon
        await serving.start(streams=False)
        await serving.world.clock.sleep(1.2 * HOUR_S)
        return early, await revocation(serving), await proved_at(serving)

    early, late, proof = lived(tmp_path, story)

    assert early == ""
    assert "attester missing" in late
    assert proof is None


def test_a_root_that_answers_again_clears_its_alert(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[bool, str, float | None]:
        silent = serving.world.site.machines[HOST].silent_roots
        silent.add(ROOT)
        assert await serving.until(lambda s: any(i == UNPROVED for i, _ in s), 2 * HOUR_S)
        silent.clear()
        cleared = await serving.until(lambda s: not s, 2 * HOUR_S)
        return cleared, await revocation(serving), await proved_at(serving)

    cleared, reason, proof = lived(tmp_path, story)

    assert (cleared, reason) == (True, "")
    assert proof is not None


def test_a_recorded_difference_is_an_alert_and_ends_nothing(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[bool, str]:
        serving.world.site.machines[HOST].implants.add(ROOT)
        came = await serving.until(lambda s: (DIFFERS, ROOT) in s, 2 * HOUR_S)
        await serving.world.clock.sleep(HOUR_S)
        return came, await revocation(serving)

    assert lived(tmp_path, story, "record") == (True, "")


# of virtual time: the resets are read, the question of before is an hour old, a round, an overload
# that puts it off, and two questions
BOUND_S = 900.0 + HOUR_S + ROUND_S + OVERLOADED_WAIT_S + 600.0


@pytest.mark.parametrize(
    "level", [pytest.param(Level.STRAINED, marks=pytest.mark.long), Level.SEVERE]
)
def test_a_changed_measurement_is_found_within_a_bound_while_the_daemon_is_overloaded(
    tmp_path: Path, level: Level
) -> None:
    """`make acceptance` beside other work: the question was put off for as long as that went on."""

    async def story(serving: Serving) -> tuple[float, str]:
        assert serving.daemon is not None
        busy = Strain(by="event_loop", level=level, detail="it runs late")
        serving.daemon.overload.found = (busy,)
        assert not serving.watcher.may_watch()
        await serving.world.clock.sleep(1800)
        machine = serving.world.site.machines[HOST]
        machine.implants.add(ROOT)
        machine.bmc_reset("host", serving.world.clock.now())
        began = serving.world.clock.now()
        assert await serving.until(lambda s: (DIFFERS, ROOT) in s, 2 * BOUND_S)
        took = serving.world.clock.now() - began
        await serving.world.clock.sleep(60)
        assert serving.daemon.overload.found == (busy,)
        return took, await revocation(serving)

    took, reason = lived(tmp_path, story)

    assert took <= BOUND_S
    assert ROOT in reason


def test_an_overloaded_daemon_asks_the_longest_overdue_and_few_at_a_time() -> None:
    asked: list[str] = []
    keeper = AttestationWatch.__new__(AttestationWatch)
    keeper._lane = ReadQueue(16, asked.append)  # type: ignore[arg-type]
    due = [(float(at), f"n{at}") for at in (0, 10, 20, 5000)]

    late = keeper._late(due, 20.0 + OVERLOADED_WAIT_S)

    assert [name for _, name in late] == ["n0", "n10"]
    assert keeper._late(due, OVERLOADED_WAIT_S - 1.0) == []
