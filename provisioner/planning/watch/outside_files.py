"""Judgement whether a file of an external server may be offered to devices.

A file that is not provably the same is treated as changed: it is read completely again before any
device is sent to it.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from provisioner.model.agent import FileReading, Validators
from provisioner.model.outcome import Blocker, Reason

GRAIN_S = 2.0  # a Last-Modified, and an ETag made of it, counts whole seconds; its clock may tick
FRESH_S = 60.0  # a file that was read so recently need not have good validators
NAME_MAX = 200  # bytes; file systems take 255, and percent-encoding triples some of them


def is_settled(etag: str, modified: str, date: str) -> bool:
    """Return whether a change after this answer must change its date (RFC 9110, section 8.8.2.2).

    A file that changed in the very second of the answer can change again within it, and keep its
    date; nginx makes its ETag of date and size, so it can keep that too.
    """
    if not modified:
        return is_strong(etag)
    try:
        age_s = (parsedate_to_datetime(date) - parsedate_to_datetime(modified)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return False
    return age_s >= GRAIN_S


def is_strong(etag: str) -> bool:
    """Return whether an ETag promises equal bytes, not equal meaning (RFC 9110, section 8.8.1)."""
    return len(etag) > 2 and etag.startswith('"') and etag.endswith('"')


def is_same_file(seen: Validators, now: Validators) -> bool:
    if seen.length is None or not seen.settled:
        return False
    return _alike(seen, now) and (is_strong(seen.etag) or bool(seen.modified))


def is_still_valid(seen: FileReading, now: Validators, at: float) -> bool:
    """Return whether an address may be issued at `at`: provably the same, or read just before.

    The latter permits a server without good validators: its file is read for each offer.
    """
    fresh = 0.0 <= at - seen.at < FRESH_S
    return is_same_file(seen.validators, now) or (fresh and _alike(seen.validators, now))


def _alike(seen: Validators, now: Validators) -> bool:
    return (seen.etag, seen.modified, seen.length) == (now.etag, now.modified, now.length)


def is_plain_name(name: str) -> bool:
    """Return whether a name is a plain file name in one directory: no path, not hidden."""
    return (
        name.isprintable()
        and not name.startswith(".")
        and not set(name) & set("/\\")
        and 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_MAX
    )


def make_absent_blocker(name: str, address: str) -> Blocker:
    """Return the blocker for a file that the server does not have."""
    return Blocker(
        reason=Reason.MISSING_ARTIFACT,
        subject=name,
        detail=f"there is no file at {address}",
        unblock="Download it from the vendor, and put it on the server under exactly this name.",
    )


def make_unnamed_blocker(name: str) -> Blocker:
    """Return the blocker for a pin without a file name, or with one that cannot be requested."""
    return Blocker(
        reason=Reason.MISSING_ARTIFACT,
        subject=name[:NAME_MAX] or "(no file)",
        detail="this is no plain file name"
        if name
        else "the matrix names no file to install it from",
        unblock="Add `artifact` and `sha256` to the edge or pin (an overlay will do).",
    )


def make_wrong_content_blocker(name: str, address: str, found: str, wanted: str) -> Blocker:
    return Blocker(
        reason=Reason.DIGEST_MISMATCH,
        subject=name,
        detail=f"the SHA-256 of {address} is {found}, the matrix pins {wanted}",
        unblock="Put the right file on the server; if it is right, correct the digest in the "
        "matrix.",
    )


def make_exchanged_blocker(name: str, address: str) -> Blocker:
    """Return the blocker for a verified file that has changed, or may have changed."""
    return Blocker(
        reason=Reason.BUSY,
        subject=name,
        detail=f"{address} may differ from the verified file",
        unblock="Nothing to do: it is read whole again. Do not exchange files in use; name new "
        "files anew.",
    )


def as_a_card_asks(blocker: Blocker) -> Blocker:
    """Return the same blocker for the address with two slashes, while that with one slash is right.

    An object store takes the two for another bucket or key, and no upload makes them one.
    """
    if blocker.reason not in (Reason.MISSING_ARTIFACT, Reason.NOT_OFFERED, Reason.BUSY):
        return blocker
    remedy = (
        "BlueField's BMC asks with two slashes. If it stays so, give --artifact-url an nginx "
        "before the bucket, which makes one of them (docs/artifacts.md)."
    )
    return blocker.model_copy(update={"unblock": remedy})


def make_copy_blocker(name: str, directory: str, why: str) -> Blocker:
    """Return the blocker for a copy, from which the daemon pushes, that cannot be written."""
    return Blocker(
        reason=Reason.MISSING_ARTIFACT,
        subject=name,
        detail=f"it cannot be kept in {directory}: {why}",
        unblock="Make room in the directory of --artifacts, or correct its owner; then retry the "
        "node.",
    )


def make_withheld_blocker(name: str, reason: Reason, detail: str) -> Blocker:
    """Return the blocker for a file that the server does not send now."""
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
