"""The acts that people request at one host: power, the time of its BMCs, a reset of its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.upkeep.bmc_time import read_clock, set_clock
from provisioner.checks.check import Unreadable
from provisioner.checks.gpu_processes import list_processes
from provisioner.checks.readers.smi_query import NOT_THERE, SMI_QUERY, GpuFacts, read
from provisioner.checks.readers.tool_output import read_output
from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe.inband import run_commands, until_quiet
from provisioner.execution.steps.activations import power_off, power_on
from provisioner.execution.steps.quiet import check_quiet
from provisioner.model.inventory import BmcClock, Power
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.planning.lifecycle.gpu_requests import WANT
from provisioner.planning.lifecycle.operator_requests import WANT as TIME_REQUESTS_WANT
from provisioner.planning.lifecycle.operator_requests import is_set
from provisioner.planning.lifecycle.power_requests import PowerAct, judge_effect, write_want
from provisioner.planning.repair.remedies import plan_gpu_reset
from provisioner.ports import ShellCommand

# ------------------------------------------------------------------------------
# Resets GPUs from their host: `nvidia-smi --gpu-reset` on every GPU of the node at once.
#
# GPUs that are linked by NVLink must be reset in one command, with nothing running on them
# (nvidia-smi manual, "--gpu-reset", without "-i"); the services that hold them open are stopped
# first and started again, also when the reset failed.
#
# The GPUs do not show that they were reset, so the command leaves a mark in the host: a new
# identifier before it stops anything, and the exit code of the reset at its end. The mark lies in
# /run, where a restart of the host removes it; a restart resets the GPUs as well. A daemon that
# finds an open intent compares the mark and the boot id with those of before, and never resets
# blindly.


METHOD = "gpu_reset"
# who holds GPUs goes first, and comes back last
SERVICES = "nvidia-dcgm nvidia-fabricmanager nvidia-persistenced"
STARTED = "nvidia-persistenced nvidia-fabricmanager nvidia-dcgm"
MARK = "/run/provisioner-gpu-reset"
LOCK_HELD = 75  # exit code: another tool works in the host, so nothing was begun
COMMAND = (
    f"exec 9>>/run/lock/provisioner-tools; flock -n 9 || exit {LOCK_HELD}; "
    f"cat /proc/sys/kernel/random/uuid > {MARK}; "
    f"for s in {SERVICES}; do systemctl stop $s 2>/dev/null; done; "
    "nvidia-smi --gpu-reset; r=$?; "
    f"for s in {STARTED}; do systemctl start $s 2>/dev/null; done; "
    f"echo $r >> {MARK}; exit $r"
)
LOOK = f"cat /proc/sys/kernel/random/boot_id {MARK} 2>/dev/null; echo looked"
LIMIT_S = 300.0  # eight GPUs take about a minute; a GPU that hangs must not hold us
LOOK_S = 20.0


def build_work(site: Site, node: Node, step: Step) -> Work:
    async def look() -> Snapshot | Blocker:
        busy = await until_quiet(site, node, LIMIT_S)
        return await _read_mark(site, node) if busy is None else busy

    async def send() -> Sent | Blocker:
        command = ShellCommand(METHOD, COMMAND, LIMIT_S)
        (output,) = await site.shell.run(node.id, node.address, [command])
        if output.exit_code == 0:
            return Sent()
        return _refused(node, output.exit_code, output.stdout or output.stderr)

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        """Check the exit code in the mark; the checks that follow measure the GPUs themselves."""
        mark = await _read_mark(site, node)
        if isinstance(mark, Blocker):
            return mark
        _, *codes = mark["mark"] or ["", "0"]  # no mark: the host was restarted since
        return None if codes == ["0"] else _refused(node, " ".join(codes) or None, "")

    return Work(
        act=Act(
            name=f"{METHOD} {node.id}",
            before={"step": step.model_dump(mode="json")},
            look=look,
            send=send,
            happened=_happened,
            request_max_s=LIMIT_S + 30.0,
            destroys=None,
        ),
        finish=finish,
    )


async def _read_mark(site: Site, node: Node) -> Snapshot | Blocker:
    """Return the host's boot id and the lines of the mark, or why they cannot be read."""
    outputs = await run_commands(site, node, [("gpu_reset_mark", LOOK, LOOK_S)])
    if isinstance(outputs, Blocker):
        return outputs
    boot, *mark, last = outputs["gpu_reset_mark"].text.split() or ["", ""]
    if boot and last == "looked":
        return {"boot_id": boot, "mark": mark}
    return Blocker(
        reason=Reason.UNREACHABLE,
        subject=f"{node.id}/ssh",
        detail=f"its boot id cannot be read: {outputs['gpu_reset_mark'].text!r:.100}",
        unblock="It is tried again by itself; check that the host's system is up.",
    )


def _happened(before: Snapshot, now: Snapshot) -> bool | None:
    """Return whether the GPUs were reset since; None for a snapshot that has no mark to compare."""
    if "mark" not in before:  # written by a version that left no mark
        return None
    return bool(before["boot_id"] != now["boot_id"] or list(before["mark"]) != list(now["mark"]))


def _refused(node: Node, exit_code: object, text: str) -> Blocker:
    if exit_code == LOCK_HELD:
        return Blocker(
            reason=Reason.BUSY,
            subject=f"{node.id}/gpus",
            detail="another tool works in the host",
            unblock="It is tried again by itself when that has ended.",
        )
    ended = "did not end" if exit_code is None else f"ended with {exit_code}"
    return Blocker(
        reason=Reason.REFUSED,
        subject=f"{node.id}/gpus",
        detail=f"nvidia-smi --gpu-reset {ended}: {text!r:.200}",
        unblock="A cold boot resets them too; it is next on the ladder.",
    )


# ------------------------------------------------------------------------------
# A person's GPU reset as physical work: who uses the GPUs, the reset, and the proof after it.


GPUS = "gpus"  # field of the ledger's row: the GPUs before it, by PCI address
PROOF_S = 180.0  # the Fabric Manager registers the GPUs anew within some ten seconds
NAMES_MAX = 5


async def list_idle_gpus(site: Site, node: Node) -> tuple[str, ...] | Blocker:
    """Return the GPUs of a host by PCI address; a Blocker that names the processes on them."""
    gpus = await _read_gpus(site, node)
    if isinstance(gpus, Blocker):
        return gpus
    try:
        uses = [(gpu.part, name) for gpu in gpus for name in list_processes(gpu)]
    except Unreadable as error:
        return _unproved(node, Reason.MALFORMED, str(error))
    if not uses:
        return tuple(gpu.pci for gpu in gpus)
    listed = "; ".join(f"{part}: {name or 'without a name'}" for part, name in uses[:NAMES_MAX])
    return Blocker(
        reason=Reason.BUSY,
        subject=f"{node.id}/gpus",
        detail=f"{len(uses)} processes use the GPUs: {listed}",
        unblock="End them in the host, then ask again.",
    )


def build_reset_work(site: Site, node: Node, gpus: Sequence[str]) -> Work:
    """Return the work of one request: the reset of a case's remedy, with a proof of its own."""
    own = build_work(site, node, plan_gpu_reset(WANT))

    async def finish(entry: LedgerEntry) -> Blocker | None:
        refused = await own.finish(entry)
        if refused is not None:
            return refused
        return await _prove_gpus(site, node, tuple(entry.before.get(GPUS, ())))

    act = replace(own.act, name=f"{WANT} {node.id}", before={**own.act.before, GPUS: list(gpus)})
    return Work(act=act, finish=finish)


async def _prove_gpus(site: Site, node: Node, before: tuple[str, ...]) -> Blocker | None:
    """Wait until each GPU of before answers and is registered in its NVLink fabric again."""
    until = site.clock.now() + PROOF_S
    while True:
        gpus = await _read_gpus(site, node)
        problem = gpus if isinstance(gpus, Blocker) else _judge(node, gpus, before)
        if problem is None or site.clock.now() >= until:
            return problem
        await site.clock.sleep(site.settings.poll_s)


def _judge(node: Node, gpus: Sequence[GpuFacts], before: tuple[str, ...]) -> Blocker | None:
    missing = sorted(set(before) - {gpu.pci for gpu in gpus})
    if missing:
        return _unproved(node, Reason.CHECK_FAILED, f"no answer of GPU {', '.join(missing)}")
    try:
        states = {gpu.part: gpu.find("Fabric/State") for gpu in gpus}
    except Unreadable as error:
        return _unproved(node, Reason.MALFORMED, str(error))
    allowed = {None, "Completed", *NOT_THERE}  # GPUs without NVSwitches have none
    outside = [f"{part}: {state}" for part, state in states.items() if state not in allowed]
    if outside:
        detail = f"not in the NVLink fabric: {'; '.join(outside[:NAMES_MAX])}"
        return _unproved(node, Reason.CHECK_FAILED, detail)
    return None


async def _read_gpus(site: Site, node: Node) -> tuple[GpuFacts, ...] | Blocker:
    command = (SMI_QUERY.name, SMI_QUERY.line, SMI_QUERY.limit_s)
    outputs = await run_commands(site, node, [command])
    if isinstance(outputs, Blocker):
        return outputs
    try:
        return read(read_output(outputs, SMI_QUERY))
    except Unreadable as error:
        return _unproved(node, Reason.MALFORMED, str(error))


def _unproved(node: Node, reason: Reason, detail: str) -> Blocker:
    unblock = "Look at the driver in the host, then have the node checked: `provisioner case open`."
    return Blocker(reason=reason, subject=f"{node.id}/gpus", detail=detail, unblock=unblock)


# ------------------------------------------------------------------------------
# A person's power request as physical work: intent, act, observation. It may be repeated.


def build_power_work(site: Site, node: Node, host: Redfish, act: PowerAct) -> Work:
    """Return the work of one request; nothing is switched off while firmware is written."""

    async def look() -> Snapshot | Blocker:
        if act is not PowerAct.ON and (written := await check_quiet(site, node)) is not None:
            return written
        return {"power": (await host.power()).value}

    async def send() -> Sent | Blocker:
        if act is not PowerAct.OFF and (wet := await host.admit_act()) is not None:
            return wet
        if act is not PowerAct.ON and (stuck := await power_off(site, node, host)) is not None:
            return stuck
        if act is PowerAct.OFF:
            return Sent()
        refused = await power_on(site, node, host)
        return Sent() if refused is None else refused

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        state = await host.power()
        if state is act.end:
            return None
        return Blocker(
            reason=Reason.POWER,
            subject=node.id,
            detail=f"the power state is {state}, {act.end} was asked for",
            unblock="Look at the power supplies and the BMC's event log.",
        )

    return Work(
        act=Act(
            name=f"{write_want(act)} {node.id}",
            before={"power": act.value},
            look=look,
            send=send,
            happened=lambda before, now: judge_effect(act, _state(before), _state(now)),
            request_max_s=4 * site.settings.power_limit_s,
            destroys=None,
        ),
        finish=finish,
    )


def _state(seen: Snapshot) -> Power:
    return Power(seen.get("power", Power.UNKNOWN.value))


# ------------------------------------------------------------------------------
# Setting the time of one BMC as physical work: intent, request, reading. It may be repeated.


READS = 4
SHOWN_LATER_S = 5.0  # between two readings: services start their time client anew
CLOCK = "clock"  # field of the snapshot


def name_act(bmc: str) -> str:
    """Return the ledger's name of the act at one BMC, "node/bmc"."""
    return f"{TIME_REQUESTS_WANT} {bmc}"


def build_time_work(site: Site, name: str, client: Redfish) -> Work:
    """Return the work at the BMC `name`; one that has the right time gets no request."""
    servers = site.settings.bmc_ntp_servers

    async def read() -> BmcClock | None:
        return await read_clock(client.service, site.clock.now)

    async def look() -> Snapshot:
        clock = await read()
        return {CLOCK: None if clock is None else clock.model_dump(mode="json")}

    async def send() -> Sent | Blocker:
        return await set_clock(client.service, servers, site.clock.now) or Sent()

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        clock = await read()
        for _ in range(READS - 1):
            if is_set(clock, servers):
                return None
            await site.clock.sleep(SHOWN_LATER_S)
            clock = await read()
        if is_set(clock, servers):
            return None
        shown = "no clock" if clock is None else f"NTP {clock.ntp}, servers {clock.ntp_servers}"
        skew = "" if clock is None or clock.skew_s is None else f", {clock.skew_s:+.0f} s from ours"
        return Blocker(
            reason=Reason.NOT_ACTIVATED,
            subject=name,
            detail=f"the BMC accepted its time, and shows {shown}{skew}",
            unblock="Look at the BMC's time settings; some want a restart of the BMC for them.",
        )

    return Work(
        act=Act(
            name=name_act(name),
            before={"time": list(servers)},
            look=look,
            send=send,
            happened=lambda _before, now: is_set(_read(now), servers),
            destroys=None,
        ),
        finish=finish,
    )


def _read(seen: Snapshot) -> BmcClock | None:
    clock = seen.get(CLOCK)
    return None if clock is None else BmcClock.model_validate(clock)
