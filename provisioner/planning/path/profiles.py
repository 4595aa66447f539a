"""Choose the profile of a release that a node belongs to, by its model and its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase

from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.matrix import Match, Release
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.path.model_names import matches_token


def choose_profile(
    inventory: Inventory, release: Release, kind: NodeKind | None = None
) -> str | Blocker:
    """Return the only profile whose `match` fits the inventory, or a blocker with the cause.

    A node with a few dead GPUs still belongs to its profile, and its bill of materials then lists
    the missing parts. A node that reports half of the GPUs or fewer, or more than the profile has,
    is a different machine. Counts of other parts only decide between two fitting profiles. Without
    `kind`, a node that runs a switch operating system is treated as a switch.
    """
    kind = kind or _kind_of(inventory)
    fitting = [
        name for name, p in sorted(release.profiles.items()) if _fits(inventory, p.match, kind)
    ]
    if len(fitting) > 1:
        exact = [n for n in fitting if not _find_miscounted(inventory, release.profiles[n].match)]
        fitting = exact or fitting
    if len(fitting) == 1:
        return fitting[0]
    description = (
        f"model {inventory.model or 'unknown'}, GPUs {_describe_gpus(inventory) or 'unknown'}"
    )
    if fitting:
        return Blocker(
            reason=Reason.NO_PROFILE,
            subject=inventory.node,
            detail=f"{kind} with {description} fits several profiles: {', '.join(fitting)}",
            unblock="Narrow `match` of these profiles in the matrix until only one fits.",
        )
    offered = ", ".join(n for n, p in sorted(release.profiles.items()) if p.match.kind == kind)
    return Blocker(
        reason=Reason.NO_PROFILE,
        subject=inventory.node,
        detail=f"no profile fits this {kind} with {description}; there are: {offered or 'none'}",
        unblock="Add a profile for this model to the release, or correct the node's release.",
    )


def _kind_of(inventory: Inventory) -> NodeKind:
    switch = any(c.kind.startswith("switch.") for c in inventory.components)
    return NodeKind.SWITCH if switch else NodeKind.HOST


def _fits(inventory: Inventory, match: Match, kind: NodeKind) -> bool:
    if match.kind != kind:
        return False
    boards = (d.model for d in inventory.devices_of(DeviceKind.BASEBOARD))
    gpus = (d.model for d in inventory.devices_of(DeviceKind.GPU))
    if not _any_glob(match.models, (inventory.model, *boards)):
        return False
    return _any_gpu(match.gpu_models, gpus) and _is_plausible_count(inventory, match)


def _is_plausible_count(inventory: Inventory, match: Match) -> bool:
    """Return whether the reported GPUs can be those of this profile, some of them dead.

    A service that reports no GPU at all (the host is off) is accepted.
    """
    expected = match.devices.get(DeviceKind.GPU.value, 0)
    count = len(inventory.devices_of(DeviceKind.GPU))
    return not expected or not count or expected < 2 * count <= 2 * expected


def _any_gpu(globs: tuple[str, ...], models: Iterable[str | None]) -> bool:
    """Return whether a model has a token of one of the globs, or there is no glob."""
    names = [m for m in models if m]
    return not globs or any(matches_token(glob, name) for name in names for glob in globs)


def _any_glob(globs: tuple[str, ...], models: Iterable[str | None]) -> bool:
    """Return whether a model matches one of the globs, or there is no glob."""
    if not globs:
        return True
    names = [m.lower() for m in models if m]
    return any(fnmatchcase(name, glob.lower()) for name in names for glob in globs)


def _find_miscounted(inventory: Inventory, match: Match) -> dict[str, tuple[int, int]]:
    """Return the part kinds whose number differs: kind -> (reported, expected)."""
    counts = {kind: len(inventory.devices_of(DeviceKind(kind))) for kind in match.devices}
    return {k: (counts[k], n) for k, n in sorted(match.devices.items()) if counts[k] != n}


def _describe_gpus(inventory: Inventory) -> str:
    models = Counter(d.model or "unknown" for d in inventory.devices_of(DeviceKind.GPU))
    return ", ".join(f"{count} of {model}" for model, count in sorted(models.items()))
