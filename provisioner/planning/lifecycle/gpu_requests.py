"""A person's request to reset a host's GPUs: whether it may be carried out, and its name. Pure.

All GPUs of a host are reset together: they are one NVLink domain behind NVSwitches, in which
`nvidia-smi` resets none alone (nvidia-smi manual, "--gpu-reset"). The system in the host does it,
so that it must run, with a login of the daemon's.
"""

from __future__ import annotations

from provisioner.model.node import Boots, Node, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle import power_requests

WANT = "gpu reset"  # the operation's purpose
WANT_FOR_TENANT = WANT + power_requests.FOR_TENANT
_SYSTEMS = {
    Boots.RAMDISK: ("it runs the maintenance image, which has no GPU driver", "Wait for its end."),
    Boots.NOTHING: ("no disk of it has a system", "Write one first: `provisioner explain`."),
    Boots.HANDED_OVER: (
        "its system has no login of the daemon's",
        "Its tenant resets them: `nvidia-smi --gpu-reset` as root, with no process on them.",
    ),
}


def is_gpu_reset(want: str) -> bool:
    """Return whether an operation's purpose is such a request."""
    return want in (WANT, WANT_FOR_TENANT)


def find_objection(node: Node, *, for_tenant: bool = False) -> Blocker | None:
    """Return why the GPUs of a node are not reset by request; None: they may be.

    A node that serves has it only where its tenant asked for it, as its power.
    """
    power = power_requests.find_objection(node, for_tenant=for_tenant)
    if power is not None:
        return power
    if node.boots not in _SYSTEMS:
        return None
    detail, unblock = _SYSTEMS[node.boots]
    reason = Reason.PRECONDITION
    return Blocker(reason=reason, subject=f"{node.id}/gpus", detail=detail, unblock=unblock)


def describe_effect(node: Node) -> tuple[str, ...]:
    """Return the effects of the request, in sentences for the person who decides."""
    first = f"All GPUs of {node.id} are reset together by its system (nvidia-smi --gpu-reset)."
    stopped = "DCGM, the Fabric Manager and the persistence daemon are stopped for it, and started."
    held = "It is refused while a process uses a GPU."
    if node.state is State.RELEASED:
        return (first, stopped, held, f"It stays with {node.tenant}.")
    return first, stopped, held
