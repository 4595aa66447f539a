"""Which reset to factory defaults a BMC gets between two tenants, and whether it was carried out.

Pure. A reset that takes the daemon's login away is proved by that login: refused, while the
factory's is accepted. One that keeps it is proved by a setting of the BMC that it changed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from provisioner.model.base import Record
from provisioner.model.erasure import ErasureRecord, Holder, Method, Result
from provisioner.model.machine.settings import BiosState, BmcRemainders, KeyDatabase, SecureBootKeys
from provisioner.model.node import BmcRef
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.erasure.disk_answers import step_result, strip_control_characters

# ------------------------------------------------------------------------------
# Whether a BIOS has its factory defaults after a reset. Pure.
#
# The request's answer proves nothing: some BIOS take a change and drop it at the boot without a
# word. A reset is proved by attributes that it changed, or by the state that an earlier proved one
# left.


SHOWN_MAX = 6  # names in a sentence
_UNKNOWN = (
    "no attribute changed: all had their defaults, or the BIOS dropped the reset at the boot; "
    "a pinned setting that differs from its default shows which"
)


def judge_defaults(
    before: BiosState, after: BiosState | None, known: BiosState | None
) -> tuple[Result, str]:
    """Return the verdict and its sentence. `known`: the state after an earlier proved reset."""
    if after is None:
        return Result.NOT_DONE, "the BMC shows no attributes after the boot: the result is unknown"
    if not before.names:
        return Result.NOT_DONE, "the BMC showed no attributes before it: the result is unknown"
    if after.waiting:
        waiting = ", ".join(after.waiting[:SHOWN_MAX])
        return Result.NOT_DONE, f"after the boot these attributes still wait: {waiting}"
    earlier = dict(zip(before.names, before.digests, strict=True))
    now = dict(zip(after.names, after.digests, strict=True))
    changed = [n for n, digest in now.items() if n in earlier and earlier[n] != digest]
    if known is not None and (known.names, known.digests) == (after.names, after.digests):
        return Result.DONE, f"as after the last reset; {_count(changed)}"
    if changed:
        return Result.DONE, f"reset by the BMC and booted; {_count(changed)}"
    return Result.NOT_DONE, _UNKNOWN


def _count(changed: list[str]) -> str:
    listed = ", ".join(changed[:SHOWN_MAX])
    return f"{len(changed)} attributes changed" + (f": {listed}" if listed else "")


# ------------------------------------------------------------------------------
# Whether the storage of a BlueField is wiped between two tenants, and the proof of it. Pure.
#
# No document names the method of the card's UEFI, and no block can be read from outside. Two things
# show: the orders are no longer there, and the system that was on the storage does not start any
# more. So a card is only wiped where its bundle is written afterwards: it would have no system.


_RUNNING = "OsIsRunning"  # BootProgress.OemLastState of a BlueField's BMC


def explain_no_wipe(card: str, offered: Sequence[str], followed: Collection[str]) -> str:
    """Return why a card is not wiped; "": it is. `followed`: cards whose bundle is written."""
    if card not in followed:
        return "its bundle is not written in this stay, and the card would have no system"
    if not offered:
        return "its BMC shows no order to wipe its storage (NIC mode?)"
    return ""


def judge_wipe(
    orders: Sequence[str], waiting: Sequence[str], states: Sequence[str | None], watched_s: float
) -> tuple[Result, str]:
    """Return the result and its sentence.

    `waiting`: orders that are still there after the start. `states`: how far the card had booted,
    each time that it was read in the `watched_s` seconds since.
    """
    names = " and ".join(orders)
    if waiting:
        left = " and ".join(waiting)
        return (
            Result.NOT_DONE,
            f"{left} still waits: the host's power cycle did not restart the card",
        )
    if _RUNNING in states:
        return Result.NOT_DONE, f"{names}: accepted, and the card's former system still starts"
    if not states or not states[-1]:  # a system may have started unseen
        return Result.NOT_DONE, f"{names}: carried out, and the card shows no progress of its boot"
    seen = f"for {watched_s:.0f} s the card came to {states[-1]}, and no system started"
    return Result.DONE, f"{names}: carried out by the card's UEFI; {seen}"


# ------------------------------------------------------------------------------
# Whether shim's machine owner keys are those of the maintenance image and the site. Pure.
#
# A key in MokList signs boot loaders, kernels and modules that the next tenant's host trusts,
# although the firmware's own databases are in order. The maintenance image reads the copy that shim
# makes for the system that it starts.


KEYS_MAX = 512
TEXT_MAX = 120
OWNER_KEYS_SHOWN_MAX = 4  # keys in a sentence
# "Debian Secure Boot CA", which each of Debian's shims shows beside MokList.
# source: the certificate (DER) in shimx64.efi.signed of shim-signed 1.51~1+deb12u1+16.1-2~deb12u1
OF_THE_IMAGE = "079646974bce09b1f04da67bd722d1fb0947ae4c4010bccdbba52d5b23cbf1a2"
_UNBLOCK = "reset them at the console (`mokutil --reset`), or name them in the site's list"


def judge_owner_keys(answer: object, own: Sequence[str]) -> tuple[Result, str]:
    """Return the result and its sentence; `own`: SHA-256 of the site's certificates.

    A switched off verification is worse than a key: shim starts whatever is on the drive.
    """
    result, detail = step_result(answer)
    if result is not Result.DONE or not isinstance(answer, Mapping):
        return result, detail
    keys = answer.get("keys")
    verifies = answer.get("verifies")
    if not isinstance(keys, list) or len(keys) > KEYS_MAX or not isinstance(verifies, bool):
        return Result.NOT_DONE, "the image's list of machine owner keys cannot be read"
    names = {name.casefold() for name in own} | {OF_THE_IMAGE}
    shown = [strip_control_characters(key, TEXT_MAX) for key in keys]
    strange = sorted(key for key in shown if key.casefold() not in names)
    problems = []
    if not verifies:
        off = "shim verifies nothing (MokSBState): switch it on (`mokutil --enable-validation`)"
        problems.append(off)
    if strange:
        listed = ", ".join(key[:32] for key in strange[:OWNER_KEYS_SHOWN_MAX])
        more = (
            f" and {len(strange) - OWNER_KEYS_SHOWN_MAX} more"
            if len(strange) > OWNER_KEYS_SHOWN_MAX
            else ""
        )
        problems.append(f"keys that shim trusts beside its own: {listed}{more}; {_UNBLOCK}")
    if problems:
        return Result.NOT_DONE, "; ".join(problems)
    return Result.DONE, f"{len(shown)} keys, all of the image's shim or of this site"


# ------------------------------------------------------------------------------
# Whether a BMC has accounts, subscriptions or waiting settings that the site did not make. Pure.
#
# What belongs there is the daemon's own and what the site names; everything else is foreign, also
# where it came with the machine: a list of "usual" accounts would hide the one that is not.


REMAINDERS_SHOWN_MAX = 8  # names in a sentence
_DEFAULT_PORT = re.compile(r"^(?:(https://[^/]*):443|(http://[^/]*):80)(?=/|$)")


def judge_remainders(
    bmc: str,
    reading: BmcRemainders,
    accounts: Sequence[str],
    destinations: Sequence[str],
    keys: Sequence[str] = (),
) -> Iterator[tuple[str, Result, str]]:
    """Yield (part, result, sentence) for each part of a BMC.

    `accounts` and `destinations` are patterns of those that belong there, `keys` fingerprints. A
    list without any account is not whole: the daemon itself logs in by one.
    """
    if reading.gaps:
        yield f"{bmc} resources", Result.NOT_DONE, f"not read: {'; '.join(reading.gaps[:3])}"
    if reading.accounts is None:
        yield f"{bmc} accounts", Result.UNSUPPORTED, "the BMC lists no accounts"
    elif not reading.accounts:
        yield f"{bmc} accounts", Result.NOT_DONE, "not read: the list is empty, without our own"
    else:
        strange = [f"{a.name} ({a.role})" for a in reading.accounts if not _fits(a.name, accounts)]
        unblock = "remove them, or name them in `bmc_accounts_expected`"
        yield f"{bmc} accounts", *_judge(strange, len(reading.accounts), unblock)
    if shown := [a for a in reading.accounts or () if a.keys is not None]:
        listed = [(a.name, key) for a in shown for key in a.keys or ()]
        strange = [f"{key} of {name}" for name, key in listed if key not in keys]
        unblock = "remove them, or name them in `bmc_ssh_keys_expected`"
        yield f"{bmc} SSH keys", *_judge(strange, len(listed), unblock)
    if reading.destinations is None:
        yield f"{bmc} events", Result.UNSUPPORTED, "the BMC lists no event subscriptions"
    else:
        strange = [d for d in reading.destinations if not _leads_there(d, destinations)]
        unblock = "remove them, or name them in `bmc_destinations_expected`"
        yield f"{bmc} events", *_judge(strange, len(reading.destinations), unblock)
    if reading.waiting is not None:
        waiting = [f"{name} = {value}" for name, value in reading.waiting.items()]
        unblock = "look which job keeps them, and take them back in the BMC"
        yield f"{bmc} waiting settings", *_judge(waiting, 0, unblock)


def _judge(strange: Sequence[str], number: int, unblock: str) -> tuple[Result, str]:
    if not strange:
        return Result.DONE, f"{number} are there, and all belong there" if number else "none"
    more = (
        f" and {len(strange) - REMAINDERS_SHOWN_MAX} more"
        if len(strange) > REMAINDERS_SHOWN_MAX
        else ""
    )
    listed = ", ".join(strange[:REMAINDERS_SHOWN_MAX])[:300]
    return Result.NOT_DONE, f"not of this site: {listed}{more}; {unblock}"


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _leads_there(destination: str, patterns: Sequence[str]) -> bool:
    """NVIDIA's server shows a destination with the default port of its scheme
    (docs/sources/redfish.md#bmcweb)."""
    bare = _DEFAULT_PORT.sub(lambda match: match[1] or match[2], destination)
    return _fits(destination, patterns) or _fits(bare, patterns)


def record_part(part: str, result: Result, detail: str, now: float) -> ErasureRecord:
    return ErasureRecord(
        holder=Holder.BMC,
        device=part,
        method=Method.NONE if result is Result.UNSUPPORTED else Method.COMPARED,
        result=result,
        detail=detail,
        started_at=now,
        ended_at=now,
    )


# ------------------------------------------------------------------------------
# Whether the keys of Secure Boot are the factory's and the site's. Pure.
#
# A key that a tenant enrolled signs what the next tenant's host boots, and a revocation that is
# gone lets a broken boot loader in again. What belongs there is what the firmware shows as its
# factory's set, and the fingerprints that the site names; a set that is not shown vouches for
# nothing.


SECURE_BOOT_KEYS_SHOWN_MAX = 4  # entries in a sentence
_FORBIDDING = "dbx"  # what must not boot: more of it is no harm, less is
_OPEN = ("SetupMode", "AuditMode")  # UEFI 2.10, 32.3: keys are enrolled without a signature
_SECURE_BOOT_KEYS_UNBLOCK = (
    "have the factory's keys restored, or name them in `secure_boot_keys_expected`"
)
Verdict = tuple[str, Result, str]


def judge_keys(bmc: str, keys: SecureBootKeys | None, own: Sequence[str]) -> Iterator[Verdict]:
    """Yield (part, result, sentence). `own`: SHA-256 of the site's certificates."""
    if keys is None:
        yield f"{bmc} Secure Boot", Result.UNSUPPORTED, "the BMC shows no Secure Boot"
        return
    if keys.gaps:
        yield f"{bmc} Secure Boot", Result.NOT_DONE, f"not read: {'; '.join(keys.gaps[:3])}"
    state = {True: "on", False: "off", None: "not shown"}[keys.enabled]
    if keys.mode in _OPEN:
        why = f"{keys.mode}: whatever runs on it may enrol keys; Secure Boot is {state}"
        yield f"{bmc} mode", Result.NOT_DONE, why
    else:
        shown = Result.DONE if keys.mode else Result.UNSUPPORTED
        yield f"{bmc} mode", shown, f"{keys.mode or 'not shown'}; Secure Boot is {state}"
    if not keys.databases and not keys.gaps:
        yield f"{bmc} databases", Result.UNSUPPORTED, "the BMC shows no databases of keys"
    names = {name.casefold() for name in own}
    for database in keys.databases:
        judge = _judge_forbidding if database.name == _FORBIDDING else _judge_allowing
        yield f"{bmc} {database.name}", *judge(database, names)


def explain_no_restoring(
    keys: SecureBootKeys | None, verdicts: Sequence[Verdict], own: Sequence[str]
) -> str:
    """Return why the factory's keys are not asked for; "": they are.

    A site with keys of its own would lose them, and its maintenance image would not boot any more.
    """
    if keys is None or all(result is not Result.NOT_DONE for _, result, _ in verdicts):
        return "nothing differs"
    if not keys.resets:
        return "the service offers no reset of its keys to the factory's"
    names = {name.casefold() for name in own}
    if any(names & set(database.entries) for database in keys.databases):
        return "keys of this site are enrolled, and a reset would take them away"
    return ""


def record_keys(verdict: Verdict, method: Method, now: float) -> ErasureRecord:
    """Return the record of one part of a system's Secure Boot."""
    part, result, detail = verdict
    return ErasureRecord(
        holder=Holder.SECURE_BOOT,
        device=part,
        method=Method.NONE if result is Result.UNSUPPORTED else method,
        result=result,
        detail=detail,
        started_at=now,
        ended_at=now,
    )


def _judge_allowing(database: KeyDatabase, own: set[str]) -> tuple[Result, str]:
    factory = set(database.factory or ())
    strange = [e for e in database.entries if e not in factory and e not in own]
    if not strange:
        return Result.DONE, f"{len(database.entries)} keys, all of the factory or of this site"
    without = "" if factory else " (the BMC shows no factory set)"
    listed = ", ".join(_name(database, e) for e in strange[:SECURE_BOOT_KEYS_SHOWN_MAX])
    more = (
        f" and {len(strange) - SECURE_BOOT_KEYS_SHOWN_MAX} more"
        if len(strange) > SECURE_BOOT_KEYS_SHOWN_MAX
        else ""
    )
    return (
        Result.NOT_DONE,
        (
            f"neither the factory's nor this site's{without}: {listed}{more};"
            f" {_SECURE_BOOT_KEYS_UNBLOCK}"
        ),
    )


def _judge_forbidding(database: KeyDatabase, _own: set[str]) -> tuple[Result, str]:
    if not database.factory:
        number = len(database.entries)
        return Result.UNSUPPORTED, f"{number} revocations, and no factory set to compare with"
    missing = set(database.factory) - set(database.entries)
    if not missing:
        return Result.DONE, f"{len(database.entries)} revocations, all of the factory among them"
    example = min(missing)[:16]
    count = f"{len(missing)} of the factory's {len(database.factory)} revocations"
    return Result.NOT_DONE, f"{count} are not in force ({example}, ...); update or restore them"


def _name(database: KeyDatabase, entry: str) -> str:
    title = database.titles.get(entry, "")
    return f"{title} ({entry[:16]})" if title else entry[:64]


# source: DMTF Manager 1.12 and newer, ResetToDefaultsType
ALL = "ResetAll"  # "Reset all settings to factory defaults"
NETWORK_KEPT = "PreserveNetwork"
USERS_KEPT = "PreserveNetworkAndUsers"  # "... except network and local user names/passwords"


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
