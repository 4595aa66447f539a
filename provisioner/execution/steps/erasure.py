"""Erase every part that may hold a tenant's data, device by device, and report the observations.

A device's row in the ledger holds its record, so that a restarted daemon continues with the next
device. The agent carries out a `job` once in a boot, so that a repeated request erases nothing
twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from glob import escape
from typing import Protocol

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked, pass_gate
from provisioner.execution.actions.work import Site, credential_of
from provisioner.execution.steps import bios_defaults
from provisioner.execution.steps.agent_steps import ask_step, find_open
from provisioner.execution.steps.bios_defaults import check_keys
from provisioner.execution.steps.bmc_defaults import finish_resets, restore_bmcs
from provisioner.execution.steps.maintenance_boot import Stay
from provisioner.model.erasure import (
    Disk,
    ErasurePolicy,
    ErasureRecord,
    ErasureReport,
    Holder,
    Method,
    Result,
)
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.node import Boots, Node
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.erasure import bmc_defaults, disk_answers, erasure
from provisioner.planning.erasure.bmc_defaults import judge_owner_keys, record_keys
from provisioner.planning.lifecycle.destruction import Destruction
from provisioner.ports import AgentAddress, PortError

# what ends an erasure's turn without a verdict on the device: it is asked again
_UNANSWERED = frozenset(
    {
        Reason.UNREACHABLE,
        Reason.BUSY,
        Reason.CERTIFICATE_CHANGED,
        Reason.CERTIFICATE_UNTRUSTED,
        Reason.HOST_KEY_UNKNOWN,
    }
)
# steps of the maintenance image for parts of the whole machine
_MACHINE_STEPS = (
    (Holder.TPM, "provisioner_clear_tpm", Method.TPM_CLEAR, Destruction.TPM),
    (
        Holder.BOOT_ENTRIES,
        "provisioner_clear_boot_entries",
        Method.ENTRIES_REMOVED,
        Destruction.BOOT_ENTRIES,
    ),
)


class FirmwareWriter(Protocol):
    """Writes firmware once more; it goes through the executor, which is above the steps."""

    async def recover_power(self, stay: Stay) -> Blocker | None:
        """Give a host its power back that an interrupted reset took."""

    async def rewrite(self, stay: Stay) -> Sequence[ErasureRecord] | Blocker:
        """Return a record for each component; the image runs again."""


class Eraser:
    """Erases one node at a time; `writer` comes when nothing is left on the drives."""

    def __init__(self, site: Site, policy: ErasurePolicy, writer: FirmwareWriter) -> None:
        self._site = site
        self.policy = policy
        self._writer = writer

    @property
    def site(self) -> Site:
        return self._site

    async def forget_host_key(self, node: Node) -> None:
        """Remove the host's SSH key: root of the former tenant could read its private half. The
        next system of the node gets another one.
        """
        await self._site.reach.credentials.remove(credential_of(node))

    async def erase(
        self,
        hold: Hold,
        node: Node,
        inventory: Inventory,
        disks_of: int,
        destinations: Sequence[str] = (),
    ) -> tuple[Node, ErasureReport] | Blocker:
        """Return the node as it is stored now, and its report; a Blocker: there is no report
        yet. `destinations`: where this daemon has the node's BMCs send their events.
        """
        started_at = self._site.clock.now()
        stay = Stay(self._site, hold, node, inventory)
        unready = await finish_resets(stay) or await self._writer.recover_power(stay)
        if unready is not None:
            return unready
        agent = await stay.enter_image()
        if isinstance(agent, Blocker):
            return agent
        expected = await self._drives(stay.node)
        if isinstance(expected, Blocker):
            return expected
        before = await self._disks(stay.node, agent)
        if isinstance(before, Blocker):
            return before
        await stay.mark_boots(Boots.NOTHING)
        records: list[ErasureRecord] = []
        for disk in before:
            record = await self._disk(stay, agent, disk)
            if isinstance(record, Blocker):
                return record
            records.append(record)
        remaining = await self._rest(stay, agent)
        if isinstance(remaining, Blocker):
            return remaining
        renewed = await self._renew(stay)
        if isinstance(renewed, Blocker):
            return renewed
        agent = await stay.enter_image()  # of the last boot
        if isinstance(agent, Blocker):
            return agent
        compared = await self._compare_bmcs(stay.node, destinations)
        if isinstance(compared, Blocker):
            return compared
        after = await self._disks(stay.node, agent)
        if isinstance(after, Blocker):
            return after
        return stay.node, ErasureReport(
            node=node.id,
            system_serial=inventory.system_serial or "",
            tenant=node.served,
            fenced_at=node.fenced_at,
            started_at=started_at,
            ended_at=self._site.clock.now(),
            agent_version=disk_answers.strip_control_characters(agent.version, 40),
            policy=self.policy,
            expected=expected,
            expected_count=disks_of,
            before=before,
            after=after,
            records=(*records, *remaining, *renewed, *compared),
        )

    async def _drives(self, node: Node) -> tuple[str, ...] | Blocker:
        """Return the serials of the drives that the BMC expects: a witness other than the agent."""
        try:
            host = await self._site.reach.redfish(node, "host")
            return host if isinstance(host, Blocker) else await host.drive_serials()
        except PortError as error:
            return blocked(error, f"{node.id}/drives")

    async def _disks(self, node: Node, agent: AgentAddress) -> tuple[Disk, ...] | Blocker:
        limit_s = self._site.settings.agent_step_limit_s
        answer = await ask_step(self._site, node, agent, "provisioner_disks", {}, limit_s)
        return answer if isinstance(answer, Blocker) else disk_answers.parse_disks(answer, node.id)

    # --- disks

    async def _disk(self, stay: Stay, agent: AgentAddress, disk: Disk) -> ErasureRecord | Blocker:
        """Try the disk's methods, best first, until one succeeds."""
        tries: list[ErasureRecord] = []
        for method in erasure.list_methods(disk, self.policy):
            record = await self._try(stay, agent, disk, method)
            if isinstance(record, Blocker):
                return record
            tries.append(record)
            if record.result is Result.DONE:
                break
        return erasure.merge_tries(tries) if tries else erasure.record_unsupported(disk)

    async def _try(
        self, stay: Stay, agent: AgentAddress, disk: Disk, method: Method
    ) -> ErasureRecord | Blocker:
        """Try one method on one disk: the intent is stored, the agent is asked, the outcome is
        stored.
        """
        node = stay.node
        clock = self._site.clock
        action = f"erase {disk.serial} {method.value}"
        rows = await stay.hold.list_entries()
        if (earlier := _known(rows, action, node, disk)) is not None:
            return earlier
        entry = find_open(rows, action)
        if entry is None or entry.before.get("visit") != node.fenced_at:
            before = {"visit": node.fenced_at, "device": disk.name, "serial": disk.serial}
            entry = await stay.hold.record_intent(action, before)
        started_at = clock.now()
        arguments = {
            "device": disk.name,
            "serial": disk.serial,
            "by": method.value,  # the agent's dispatcher has a parameter `method` of its own
            "job": _job(node, disk, method),
        }
        limit_s = self._site.settings.erase_limit_s
        step = "provisioner_erase_device"
        keeps = self.policy.same_tenant_may_skip
        if (blocker := await pass_gate(stay.hold, Destruction.DISKS, keeps=keeps)) is not None:
            await stay.hold.settle_entry(entry, ActionStatus.ABSENT, outcome=f"not sent: {blocker}")
            return blocker
        answer = await ask_step(self._site, node, agent, step, arguments, limit_s)
        if isinstance(answer, Blocker):
            if answer.reason in _UNANSWERED:
                return answer  # the row stays open: the same job is asked again
            identity = {k: arguments[k] for k in ("device", "serial")} | {"method": method.value}
            answer = {**identity, "result": Result.NOT_DONE.value, "detail": answer.detail}
        record = disk_answers.record_erasure(answer, disk, method, started_at, clock.now())
        is_done = record.result is Result.DONE
        status = ActionStatus.CONFIRMED if is_done else ActionStatus.FAILED
        await stay.hold.settle_entry(entry, status, outcome=record.model_dump_json())
        return record

    # --- everything else

    async def _rest(self, stay: Stay, agent: AgentAddress) -> list[ErasureRecord] | Blocker:
        """Erase the rest: memory by the removed power, the TPM by its step, other holders by
        name.
        """
        node = stay.node
        now = self._site.clock.now()
        row = stay.off_row(await stay.hold.list_entries())
        off_s = float(row.before.get("off_s", 0.0)) if row is not None else 0.0
        on_at = row.settled_at if row is not None else 0.0
        off_at = on_at - off_s if row is not None else 0.0
        wanted_s = self._site.settings.memory_off_s
        gpus = stay.inventory.devices_of(DeviceKind.GPU)
        records = [erasure.record_memory(Holder.HOST_MEMORY, "host", off_at, on_at, wanted_s)]
        records += [
            erasure.record_memory(Holder.GPU_MEMORY, g.slot, off_at, on_at, wanted_s).model_copy(
                update={"serial": g.serial or "", "model": g.model or ""}
            )
            for g in gpus
        ]
        for holder, step, method, act in _MACHINE_STEPS:
            if (blocker := await pass_gate(stay.hold, act)) is not None:
                return blocker
            record = await self._machine(node, agent, now, holder, step, method)
            if isinstance(record, Blocker):
                return record
            records.append(record)
        owners = await self._owner_keys(node, agent)
        if isinstance(owners, Blocker):
            return owners
        records.append(owners)
        cards = [b for b in node.bmcs if b.kind in ("dpu", "supernic")]
        for bmc in cards if not self.policy.card_storage else ():  # else their writer wipes them
            why = erasure.NOT_OFFERED[Holder.BLUEFIELD_STORAGE]
            record = erasure.not_done(Holder.BLUEFIELD_STORAGE, bmc.name, why, now)
            records.append(record.model_copy(update={"serial": bmc.serial}))
        return records + erasure.list_unreached([bmc.name for bmc in node.bmcs], now, self.policy)

    async def _owner_keys(self, node: Node, agent: AgentAddress) -> ErasureRecord | Blocker:
        """Compare the machine owner keys, which only a person at the console can remove."""
        settings = self._site.settings
        step = "provisioner_read_owner_keys"
        answer = await ask_step(self._site, node, agent, step, {}, settings.agent_step_limit_s)
        if isinstance(answer, Blocker):
            if answer.reason in _UNANSWERED:
                return answer
            answer = {"result": Result.NOT_DONE.value, "detail": answer.detail[:400]}
        result, detail = judge_owner_keys(answer, settings.secure_boot_keys_expected)
        verdict = ("host machine owner keys", result, detail)
        return record_keys(verdict, Method.COMPARED, self._site.clock.now())

    async def _renew(self, stay: Stay) -> list[ErasureRecord] | Blocker:
        """Write firmware once more, then give BMCs, BIOS and Secure Boot what the factory gave."""
        firmware = await self._writer.rewrite(stay)
        if isinstance(firmware, Blocker):
            return firmware
        resets = await restore_bmcs(stay) if self.policy.bmc_defaults != "off" else []
        if isinstance(resets, Blocker):
            return resets
        bios = await self._bios(stay)
        if isinstance(bios, Blocker):
            return bios
        keys = await check_keys(stay, required=Holder.SECURE_BOOT in self.policy.required)
        return keys if isinstance(keys, Blocker) else [*firmware, *resets, bios, *keys]

    async def _bios(self, stay: Stay) -> ErasureRecord | Blocker:
        """Reset the BIOS where the site requires it: two boots more, and nothing is on a drive."""
        if Holder.BIOS in self.policy.required:
            return await bios_defaults.restore_defaults(stay)
        why = erasure.NOT_OFFERED[Holder.BIOS]
        return erasure.not_done(Holder.BIOS, "host", why, self._site.clock.now())

    async def _compare_bmcs(
        self, node: Node, destinations: Sequence[str]
    ) -> list[ErasureRecord] | Blocker:
        """Compare what is in each BMC with what belongs there. Silence ends the turn only where the
        site requires the comparison.
        """
        settings = self._site.settings
        records: list[ErasureRecord] = []
        for bmc in node.bmcs:
            now = self._site.clock.now()
            name = f"{node.id}/{bmc.name}"
            try:
                client = await self._site.reach.redfish(node, bmc.name)
                reading = client if isinstance(client, Blocker) else await client.read_remainders()
            except PortError as error:
                reading = blocked(error, name)
                if Holder.BMC in self.policy.required:
                    return reading
            if isinstance(reading, Blocker):
                detail = f"not read: {reading.detail}"
                records.append(
                    bmc_defaults.record_part(bmc.name, Result.NOT_DONE, detail[:400], now)
                )
                continue
            own = await self._list_own_accounts(name)
            accounts = [*own, *settings.bmc_accounts_expected]
            ends = [*destinations, *settings.bmc_destinations_expected]
            records += [
                bmc_defaults.record_part(part, result, detail, now)
                for part, result, detail in bmc_defaults.judge_remainders(
                    bmc.name, reading, accounts, ends, settings.bmc_ssh_keys_expected
                )
            ]
        return records

    async def _list_own_accounts(self, login: str) -> list[str]:
        vault = self._site.reach.credentials
        stored = (await vault.current(login), await vault.pending(login))
        return [escape(one[0]) for one in stored if one is not None]

    async def _machine(
        self, node: Node, agent: AgentAddress, now: float, holder: Holder, step: str, method: Method
    ) -> ErasureRecord | Blocker:
        """Erase a part of the whole machine by its step, which has no argument."""
        limit_s = self._site.settings.agent_step_limit_s
        answer = await ask_step(self._site, node, agent, step, {}, limit_s)
        if isinstance(answer, Blocker):
            if answer.reason in _UNANSWERED:
                return answer
            return erasure.not_done(holder, "host", answer.detail[:400], now)
        result, detail = disk_answers.step_result(answer)
        record = erasure.not_done(holder, "host", detail, now)
        if result is Result.DONE:
            changed = {"result": result, "method": method}
            return record.model_copy(update={**changed, "ended_at": self._site.clock.now()})
        return record.model_copy(update={"result": result})


def _known(
    rows: Sequence[LedgerEntry], action: str, node: Node, disk: Disk
) -> ErasureRecord | None:
    """Return the record of this disk and method, if it was done in this stay already."""
    for row in rows:
        of_stay = row.action == action and row.before.get("visit") == node.fenced_at
        if of_stay and row.status is ActionStatus.CONFIRMED:
            record = ErasureRecord.model_validate_json(row.outcome)
            return record.model_copy(update={"device": disk.name})
    return None


def _job(node: Node, disk: Disk, method: Method) -> str:
    """Return an id of the work, which is unique to the same work in the same stay."""
    text = f"{node.id} {node.fenced_at!r} {disk.serial} {method.value}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
