"""Which reset to factory defaults a BMC gets between two tenants, and whether it was carried out.

Pure. A reset that takes the daemon's login away is proved by that login: refused, while the
factory's is accepted. One that keeps it is proved by a setting of the BMC that it changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.base import Record
from provisioner.model.erasure import Result
from provisioner.model.machine.bios_state import BiosState
from provisioner.model.node import BmcRef
from provisioner.model.outcome import Blocker, Reason

# source: DMTF Manager 1.12 and newer, ResetToDefaultsType
ALL = "ResetAll"  # "Reset all settings to factory defaults"
NETWORK_KEPT = "PreserveNetwork"
USERS_KEPT = "PreserveNetworkAndUsers"  # "... except network and local user names/passwords"
SHOWN_MAX = 6  # names in a sentence


def choose_reset(offered: Sequence[str], *, reserved: bool, factory_login: bool) -> tuple[str, str]:
    """Return the type of reset, and "" or why there is none.

    `reserved`: the site's DHCP gives each BMC its address again, so that the network may be lost.
    `factory_login`: the login that the BMC has afterwards is known.
    """
    if NETWORK_KEPT in offered and factory_login:
        return NETWORK_KEPT, ""
    if ALL in offered and factory_login and reserved:
        return ALL, ""
    if USERS_KEPT in offered:
        return USERS_KEPT, ""
    if not offered:
        return "", "the BMC does not say which resets to defaults it has"
    listed = ", ".join(offered[:SHOWN_MAX])
    if not factory_login:
        return "", f"it offers {listed}, and no factory login is known to come back with"
    return (
        "",
        f"it offers {listed}, which ends its network; its address is not declared as reserved",
    )


def keeps_login(kind: str) -> bool:
    """Return whether the daemon's login survives this type of reset."""
    return kind == USERS_KEPT


def list_changed(before: BiosState, after: BiosState) -> tuple[str, ...]:
    """Return the settings that were shown before and have another value now."""
    earlier = dict(zip(before.names, before.digests, strict=True))
    now = zip(after.names, after.digests, strict=True)
    return tuple(name for name, digest in now if earlier.get(name, digest) != digest)


def judge_kept(kind: str, changed: Sequence[str]) -> tuple[Result, str]:
    """Return the verdict on a BMC that accepts the daemon's login under its old certificate."""
    if not keeps_login(kind):
        return Result.NOT_DONE, f"it took {kind}, and keeps the daemon's login: nothing was reset"
    if changed:
        listed = ", ".join(changed[:SHOWN_MAX])
        return Result.DONE, f"{kind}: {len(changed)} settings changed: {listed}"
    return Result.NOT_DONE, (
        f"{kind}: no setting changed: all had their defaults, or the BMC dropped the reset; "
        "a pinned setting that differs from its default shows which"
    )


class Identity(Record):
    """What a BMC is known by besides its login and certificate; "" where it is not known."""

    serial: str
    base_mac: str = ""  # of a card
    uuid: str = ""  # of the host's system


def refuse_stranger(node: str, bmc: BmcRef, stored: Identity, seen: Identity) -> Blocker | None:
    """Return why the BMC that answers is not the one that was reset."""
    detail = ""
    if seen.serial != stored.serial:
        detail = f"it reports the serial {seen.serial[:64] or 'none'}, not {stored.serial}"
    elif stored.base_mac and seen.base_mac and seen.base_mac.lower() != stored.base_mac:
        detail = f"it reports the base address {seen.base_mac[:32]}, not {stored.base_mac}"
    elif stored.uuid and seen.uuid and seen.uuid.lower() != stored.uuid.lower():
        detail = f"it reports the system UUID {seen.uuid[:64]}, not {stored.uuid}"
    if not detail:
        return None
    return Blocker(
        reason=Reason.PAIRING_FAILED,
        subject=f"{node}/{bmc.name}",
        detail=f"after the reset of the BMC another one answers at {bmc.url}: {detail}",
        unblock="Give the BMC its reserved address again and look who has it now; "
        f"then `provisioner node retry {node}`.",
    )


def report_absence(node: str, bmc: BmcRef, limit_s: float) -> Blocker:
    """Return the blocker of a BMC that took the reset and is not seen any more."""
    return Blocker(
        reason=Reason.NOT_ACTIVATED,
        subject=f"{node}/{bmc.name}",
        detail=f"it took its reset to factory defaults, and did not answer at {bmc.url} within "
        f"{limit_s:.0f} s",
        unblock="Look at it at its rack: power, and whether DHCP gives it this address again "
        f"(its factory's network is DHCP or static); then `provisioner node retry {node}`.",
    )


def report_login(node: str, bmc: BmcRef, why: str) -> Blocker:
    """Return the blocker of a BMC that came back and lets the daemon in by no login it knows."""
    return Blocker(
        reason=Reason.LOGIN_REFUSED,
        subject=f"{node}/{bmc.name}",
        detail=f"it came back from its reset to factory defaults, and refuses the login: {why}",
        unblock="Keep the factory login that is on its label (`provisioner case factory`), or "
        f"reset its account by hand; then `provisioner node retry {node}`.",
    )
