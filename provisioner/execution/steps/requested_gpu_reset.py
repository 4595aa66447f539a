"""A person's GPU reset as physical work: who uses the GPUs, the reset, and the proof after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from provisioner.checks.check import Unreadable
from provisioner.checks.gpu_processes import list_processes
from provisioner.checks.readers.smi_query import NOT_THERE, SMI_QUERY, GpuFacts, read
from provisioner.checks.readers.tool_output import read_output
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe.inband import run_commands
from provisioner.execution.steps import gpu_reset
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.gpu_requests import WANT
from provisioner.planning.repair.remedy_steps import plan_gpu_reset

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
    own = gpu_reset.build_work(site, node, plan_gpu_reset(WANT))

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
