"""Whether a file of an outside server may be offered: what is the same, what is not, and why not.

Rule: what cannot be told to be the same is not the same. It is read whole again before any device
is sent to it.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from provisioner.model.artifact import Sight, Validators
from provisioner.model.outcome import Blocker, Reason

GRAIN_S = 2.0  # a Last-Modified, and an ETag made of it, counts whole seconds; its clock may tick
FRESH_S = 60.0  # what was read whole so short a time ago need not have good validators
NAME_MAX = 200  # bytes; file systems take 255, and percent-encoding triples some of them


def settled(etag: str, modified: str, date: str) -> bool:
    """Whether a change after this answer must show (RFC 9110, section 8.8.2.2).

    A file that changed in the very second of the answer can change again within it, and keep its
    date; nginx makes its ETag of date and size, so it can keep that too.
    """
    if not modified:
        return strong(etag)
    try:
        age_s = (parsedate_to_datetime(date) - parsedate_to_datetime(modified)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return False
    return age_s >= GRAIN_S


def strong(etag: str) -> bool:
    """An ETag that promises the same bytes, not the same meaning (RFC 9110, section 8.8.1)."""
    return len(etag) > 2 and etag.startswith('"') and etag.endswith('"')


def same(seen: Validators, now: Validators) -> bool:
    """Whether what is offered now is surely what was read."""
    if seen.length is None or not seen.settled:
        return False
    return _alike(seen, now) and (strong(seen.etag) or bool(seen.modified))


def still(seen: Sight, now: Validators, at: float) -> bool:
    """Whether an address may be given at `at`: surely the same, or read whole just before.

    The latter lets a server without good validators be used: its file is read for each offer.
    """
    fresh = 0.0 <= at - seen.at < FRESH_S
    return same(seen.validators, now) or (fresh and _alike(seen.validators, now))


def _alike(seen: Validators, now: Validators) -> bool:
    return (seen.etag, seen.modified, seen.length) == (now.etag, now.modified, now.length)


def plain(name: str) -> bool:
    """A name that is a file's in one directory, ours and theirs: no path, nothing hidden."""
    return (
        name.isprintable()
        and not name.startswith(".")
        and not set(name) & set("/\\")
        and 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_MAX
    )


def absent(name: str, address: str) -> Blocker:
    """The server has no such file."""
    return Blocker(
        reason=Reason.MISSING_ARTIFACT,
        subject=name,
        detail=f"there is no file at {address}",
        unblock="Download it from the vendor, and put it on the server under exactly this name.",
    )


def unnamed(name: str) -> Blocker:
    """The matrix names none, or one that cannot be asked for."""
    return Blocker(
        reason=Reason.MISSING_ARTIFACT,
        subject=name[:NAME_MAX] or "(no file)",
        detail="this is no plain file name"
        if name
        else "the matrix names no file to install it from",
        unblock="Add `artifact` and `sha256` to the edge or pin (an overlay will do).",
    )


def wrong(name: str, address: str, found: str, wanted: str) -> Blocker:
    """The server has something else under this name."""
    return Blocker(
        reason=Reason.DIGEST_MISMATCH,
        subject=name,
        detail=f"the SHA-256 of {address} is {found}, the matrix pins {wanted}",
        unblock="Put the right file on the server; if it is right, correct the digest in the "
        "matrix.",
    )


def exchanged(name: str, address: str) -> Blocker:
    """What was verified is not what is offered now, or that cannot be told."""
    return Blocker(
        reason=Reason.BUSY,
        subject=name,
        detail=f"{address} is not surely what was verified",
        unblock="Nothing to do: it is read whole again. Do not exchange files in use; name new "
        "files anew.",
    )


def as_a_card_asks(no: Blocker) -> Blocker:
    """The same `no`, of the address with two slashes, while the one with one slash is right.

    An object store takes the two for another bucket or key, and no upload makes them one.
    """
    if no.reason not in (Reason.MISSING_ARTIFACT, Reason.NOT_OFFERED, Reason.BUSY):
        return no
    remedy = (
        "BlueField's BMC asks with two slashes. If it stays so, give --artifact-url an nginx "
        "before the bucket, which makes one of them (docs/artifacts.md)."
    )
    return no.model_copy(update={"unblock": remedy})


def unkept(name: str, directory: str, why: str) -> Blocker:
    """The copy from which we push cannot be written."""
    return Blocker(
        reason=Reason.MISSING_ARTIFACT,
        subject=name,
        detail=f"it cannot be kept in {directory}: {why}",
        unblock="Make room in the directory of --artifacts, or correct its owner; then retry the "
        "node.",
    )


def withheld(name: str, reason: Reason, detail: str) -> Blocker:
    """The server does not give it now."""
    remedies = {
        Reason.CERTIFICATE_UNTRUSTED: "Give the CA of the server's certificate with --ca-file.",
        Reason.NOT_OFFERED: "Put the file there under exactly this name, give --artifact-url as "
        "the server has it, and let it be read from the networks of the daemons and of the "
        "devices, without a login.",
        Reason.TOO_LARGE: "Look what the server has under this name.",
    }
    return Blocker(
        reason=reason,
        subject=name,
        detail=detail,
        unblock=remedies.get(reason, "It is tried again by itself; look at the artifact server."),
    )
