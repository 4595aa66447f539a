"""The steps of a remedy, for the executor. Pure.

Their `reason` names case and try, by which the ledger identifies steps that were already carried
out.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner import components
from provisioner.model.case import RemedyKind, RemedyTry
from provisioner.model.inventory import Activation, Inventory
from provisioner.model.matrix import Edge, Matrix
from provisioner.model.node import Node
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.planning.path import activation as act
from provisioner.planning.path.bundles import SLOT
from provisioner.planning.path.hops import NO_FILE
from provisioner.planning.repair.remedies import load_escalation_orders

GPU_RESET = "gpu_reset"  # the executor's method of this name
_RESETS = {
    RemedyKind.COLD_BOOT: Activation.COLD_BOOT,
    RemedyKind.AC_CYCLE: Activation.AC_CYCLE,
}


def plan_steps(
    tried: RemedyTry, words: str, node: Node, inventory: Inventory | None, matrix: Matrix
) -> tuple[Step, ...] | str:
    """Return the steps in order; () for a remedy without any; or why it cannot be carried out."""
    if tried.remedy is RemedyKind.RERUN:
        return ()
    if inventory is None:
        return "the node was never read, so its parts are unknown"
    if tried.remedy is RemedyKind.GPU_RESET:
        is_logged = any(key.startswith("check:kernel_log") for key in tried.before)
        # the log of this boot keeps earlier events: only a new boot shows which ones recur
        anew = (_reset(Activation.WARM_REBOOT, f"{words}: the kernel's log begins anew"),)
        return (plan_gpu_reset(words), *(anew if is_logged else ()))
    if tried.remedy is RemedyKind.REFLASH:
        return _reflash(tried, words, node, inventory, matrix)
    assert tried.remedy in _RESETS, tried.remedy
    return (_reset(_RESETS[tried.remedy], words),)


def plan_gpu_reset(reason: str) -> Step:
    """Return the reset of all GPUs of a node at once."""
    return Step(
        kind=StepKind.ACTIVATE,
        component="hgx.gpu",
        method=GPU_RESET,
        activation=Activation.NONE,
        disruption=Disruption.HOST,
        duration_s=120,
        expected=(),
        reason=reason,
    )


def _reset(reset: Activation, words: str, activates: tuple[tuple[str, str], ...] = ()) -> Step:
    return Step(
        kind=StepKind.ACTIVATE,
        activation=reset,
        activates=activates,
        disruption=act.get_disruption(reset),
        duration_s=act.estimate_duration_s(reset),
        expected=(),
        reason=words,
    )


def _reflash(
    tried: RemedyTry, words: str, node: Node, inventory: Inventory, matrix: Matrix
) -> tuple[Step, ...] | str:
    """Return the update of the pinned version over itself, then the reset that its edge needs."""
    kind = next(
        (
            r.component
            for r in load_escalation_orders()[tried.kind]
            if r.remedy is RemedyKind.REFLASH
        ),
        "",
    )
    release = matrix.releases.get(node.release)
    profile = release.profiles.get(node.profile) if release is not None else None
    pin = profile.pins.get(kind) if profile is not None else None
    declared = components.ALL.get(kind)
    if pin is None or not pin.known or declared is None:
        return f"{node.release} pins no version of {kind or tried.kind} for this node"
    edge = next((e for e in matrix.edges.get(kind, ()) if e.to == pin.version), None)
    if edge is None:
        return f"the matrix has no way of writing {kind} {pin.version}"
    method = edge.method or declared.method
    artifact, sha256 = _file(edge, pin.artifact, pin.sha256)
    if method not in NO_FILE and not (artifact and sha256):
        return f"there is no file of {kind} {pin.version} with its digest"
    slots = (SLOT,) if declared.derived else _slots(tried.part, kind, inventory)
    if not slots:
        return f"the node shows no {kind}"
    write = Step(
        kind=StepKind.UPDATE,
        component=kind,
        slots=slots,
        from_version=pin.version,
        to_version=pin.version,
        method=method,
        artifact=artifact,
        sha256=sha256,
        force=True,  # "Component image is identical": skipped otherwise
        activation=edge.activates_by,
        disruption=Disruption.NONE,
        duration_s=edge.duration_s or 1800,
        expected=(),
        reason=f"{words}: {kind} is written once more",
    )
    if edge.activates_by in act.AT_ONCE:
        return (write,)
    activates = tuple((f"{kind}/{slot}", pin.version) for slot in slots)
    return write, _reset(edge.activates_by, f"{words}: it is activated", activates)


def _file(edge: Edge, artifact: str, sha256: str) -> tuple[str, str]:
    return (edge.artifact, edge.sha256) if edge.artifact else (artifact, sha256)


def _slots(part: str, kind: str, inventory: Inventory) -> tuple[str, ...]:
    """Return the suspect's own slot where the component has one; otherwise all of its slots."""
    slots = tuple(c.slot for c in inventory.of_kind(kind))
    return (part,) if part in slots else slots


def find_latest(entries: Sequence[LedgerEntry], step: Step) -> LedgerEntry | None:
    """Return the newest settled row of this very step; the case's words identify it."""
    mine = [
        e
        for e in entries
        if e.before.get("step", {}).get("reason") == step.reason
        and e.status in (ActionStatus.CONFIRMED, ActionStatus.FAILED)
    ]
    return max(mine, key=lambda e: e.settled_at, default=None)
