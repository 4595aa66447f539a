"""Choose the profile of a release that a node belongs to, by its model and its parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.matrix import Match, Release
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.path.conditions import matches_token

_BLUEFIELD = ("bluefield.", "supernic.")  # component kinds of a BlueField in either mode
_CONNECTX = frozenset({"nic.cx7", "nic.cx8"})
_OTHER_CARD = "nic.other"
_CONNECTX_NAME = re.compile(r"ConnectX|\bMCX\d", re.IGNORECASE)  # as components/nic.yaml names them
_TITLES = {"bluefield": "BlueField cards", "connectx": "ConnectX cards and no BlueField"}


def choose_profile(
    inventory: Inventory, release: Release, kind: NodeKind | None = None
) -> str | Blocker:
    """Return the only profile whose `match` fits the inventory, or a blocker with the cause.

    A node with a few dead GPUs still belongs to its profile, and its bill of materials then lists
    the missing parts. A node that reports half of the GPUs or fewer, or more than the profile has,
    is a different machine. So is one that shows network cards of another family than the profile
    is for. Counts of other parts only decide between two fitting profiles. Without `kind`, a node
    that runs a switch operating system is treated as a switch.
    """
    kind = kind or _kind_of(inventory)
    alike = [
        name for name, p in sorted(release.profiles.items()) if _fits(inventory, p.match, kind)
    ]
    fitting = [n for n in alike if _has_cards(inventory, release.profiles[n].match)]
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
    if alike:
        return _refuse_cards(inventory, release, kind, alike)
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


def _has_cards(inventory: Inventory, match: Match) -> bool:
    """Return whether the reported network cards can be those of this profile.

    A service that reports no card at all is accepted, as one that reports no GPU is.
    """
    return not match.cards or _identify_cards(inventory) in ("", match.cards)


def _identify_cards(inventory: Inventory) -> str:
    """Return the family of the network cards as `Match.cards` names it.

    One BlueField is enough for "bluefield"; the result is "other" for cards of neither family, and
    "" where no card is reported. A card in NIC mode is a DPU for the host's BMC, and a NIC with
    firmware of a BlueField for its own BMC and for the host.
    """
    kinds = {c.kind for c in inventory.components}
    if inventory.devices_of(DeviceKind.DPU) or any(kind.startswith(_BLUEFIELD) for kind in kinds):
        return "bluefield"
    nics = inventory.devices_of(DeviceKind.NIC)
    if kinds & _CONNECTX or any(_is_connectx(nic) for nic in nics):
        return "connectx"
    return "other" if nics or _OTHER_CARD in kinds else ""


def _is_connectx(nic: Device) -> bool:
    return _CONNECTX_NAME.search(f"{nic.model or ''} {nic.part or ''}") is not None


def _refuse_cards(
    inventory: Inventory, release: Release, kind: NodeKind, alike: Sequence[str]
) -> Blocker:
    """Return the blocker of a node that fits profiles in everything but its network cards."""
    family = _identify_cards(inventory)
    differences = "; ".join(
        f"{name} would fit, but it is for hosts with {_TITLES[release.profiles[name].match.cards]}"
        for name in alike
    )
    own_profile = (
        f"add a profile with `cards: {family}` and pins for these cards in an overlay"
        if family in _TITLES
        else "add a profile with pins for these cards in an overlay"
    )
    return Blocker(
        reason=Reason.NO_PROFILE,
        subject=inventory.node,
        detail=f"no profile fits this {kind} with GPUs {_describe_gpus(inventory) or 'unknown'} "
        f"and network cards {_describe_cards(inventory)}: {differences}",
        unblock=f"If these are the cards that the host should have, {own_profile}; otherwise "
        "restore the missing cards, or list the BMCs of those in NIC mode.",
    )


def _describe_cards(inventory: Inventory) -> str:
    """Return the cards by model; by their firmware where no device is reported."""
    cards = (*inventory.devices_of(DeviceKind.DPU), *inventory.devices_of(DeviceKind.NIC))
    names = Counter(d.model or d.part or "unknown model" for d in cards)
    firmware = (*_CONNECTX, _OTHER_CARD)
    names = names or Counter(c.kind for c in inventory.components if c.kind in firmware)
    return ", ".join(f"{count} of {name}" for name, count in sorted(names.items()))


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
