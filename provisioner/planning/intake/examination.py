"""Whether a site may go live: each thing that was looked at, judged, with what to do about it.

Pure: `execution/observe/examination.py` and `provisioner doctor` look, this judges. What was not
looked at is never good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from enum import StrEnum
from statistics import median

from provisioner.model.base import Record
from provisioner.model.matrix import MAINTENANCE, Matrix
from provisioner.model.outcome import Reason
from provisioner.planning.matrix.review import Weight, review

SKEW_BAD_S = 300.0  # beyond it, times of events and of ours cannot be put in one order any more
SKEW_MAX_S = 30.0  # an HTTP date has whole seconds, and a BMC may take seconds to answer
CLOCKS_MIN = 3  # devices that must agree before our own clock is doubted
FREE_BAD_BYTES = 1 << 30
FREE_MIN_BYTES = 10 << 30  # evidence of a rack for some months, and room to restore a backup
FILES_RESERVE = 256  # database, playbooks' pipes, logs, artifacts that are served


class Standing(StrEnum):
    """How one thing stands. Only GOOD is a pass."""

    GOOD = "good"
    WARNING = "warning"  # it works, and will annoy
    BAD = "bad"
    NOT_LOOKED = "not looked"


class Examined(Record):
    """One thing that was looked at. `remedy` is empty only where nothing is to be done."""

    area: str
    subject: str
    standing: Standing
    detail: str
    remedy: str = ""


def good(area: str, subject: str, detail: str) -> Examined:
    """It is as it has to be."""
    return Examined(area=area, subject=subject, standing=Standing.GOOD, detail=detail)


def bad(area: str, subject: str, detail: str, remedy: str) -> Examined:
    """It has to be changed before go-live."""
    return Examined(area=area, subject=subject, standing=Standing.BAD, detail=detail, remedy=remedy)


def warning(area: str, subject: str, detail: str, remedy: str) -> Examined:
    """It should be changed."""
    return Examined(
        area=area, subject=subject, standing=Standing.WARNING, detail=detail, remedy=remedy
    )


def not_looked(area: str, subject: str, detail: str, remedy: str) -> Examined:
    """Nothing is known about it."""
    return Examined(
        area=area, subject=subject, standing=Standing.NOT_LOOKED, detail=detail, remedy=remedy
    )


_REMEDIES: Mapping[Reason, str] = {
    Reason.UNREACHABLE: "Check cable, address and the management network's firewall from here.",
    Reason.LOGIN_REFUSED: (
        "Correct the credential (docs/intake.md). This one is not tried again by itself, so that "
        "the account is not locked."
    ),
    Reason.ACCOUNT_LOCKED: "Wait as long as it says; ask again once the credential is right.",
    Reason.CERTIFICATE_CHANGED: (
        "Find out why it changed. If that was meant, take the node in again; or give --ca-file."
    ),
    Reason.CERTIFICATE_UNTRUSTED: "Give the CA of its certificate with --ca-file.",
    Reason.MALFORMED: "Is it the right address? Look at it with `provisioner inspect URL`.",
    Reason.TOO_LARGE: "Is it the right address? Look at it with `provisioner inspect URL`.",
    Reason.NOT_OFFERED: "Is it the right address? It answers, and not as such a device does.",
    Reason.BUSY: "Ask again in a minute.",
}


def failed(area: str, subject: str, reason: Reason, detail: str) -> Examined:
    """A device that failed us, with the remedy of its reason."""
    remedy = _REMEDIES.get(reason, "See its log; then ask again.")
    return bad(area, subject, f"{reason}: {detail}", remedy)


def skew_s(date: str, at: float) -> float | None:
    """Seconds that an HTTP Date header (RFC 9110 section 6.6.1) is ahead of `at`; None: no date."""
    try:
        return parsedate_to_datetime(date).timestamp() - at
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def clocks(skews: Mapping[str, float | None]) -> tuple[Examined, ...]:
    """Clocks of devices against ours; where most agree with each other, ours is the wrong one."""
    known = {name: skew for name, skew in skews.items() if skew is not None}
    if not known:
        remedy = "Compare `date -u` here with a clock that you trust."
        return (not_looked("clock", "this machine", "no device told its time", remedy),)
    middle = median(known.values())
    agree = [s for s in known.values() if abs(s - middle) <= SKEW_MAX_S]
    ours_wrong = abs(middle) > SKEW_MAX_S and len(agree) >= max(CLOCKS_MIN, len(known) / 2)
    told = []
    if ours_wrong:
        detail = f"{len(agree)} of {len(known)} devices agree that it is {_off(-middle)}"
        told.append(bad("clock", "this machine", detail, "Let it follow NTP (`timedatectl`)."))
    else:
        told.append(good("clock", "this machine", f"compared with {len(known)} devices"))
    reference = middle if ours_wrong else 0.0
    for name, skew in sorted(known.items()):
        off = skew - reference
        if abs(off) <= SKEW_MAX_S:
            continue
        judge = bad if abs(off) > SKEW_BAD_S else warning
        told.append(judge("clock", name, f"it is {_off(off)}", "Set NTP on it."))
    return tuple(told)


def _off(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead' if seconds > 0 else 'behind'}"


def disk(subject: str, free_bytes: int) -> Examined:
    """Room where the data directory is."""
    detail = f"{free_bytes / 2**30:.1f} GiB free"
    remedy = f"Make room: at least {FREE_MIN_BYTES >> 30} GiB."
    if free_bytes < FREE_BAD_BYTES:
        return bad("machine", subject, detail, remedy)
    if free_bytes < FREE_MIN_BYTES:
        return warning("machine", subject, detail, remedy)
    return good("machine", subject, detail)


def open_files(limit: int, requests: int, streams: int, connections: int) -> Examined:
    """The limit of open files against what the settings allow the daemon to open."""
    needed = requests + streams + connections + FILES_RESERVE
    detail = f"{limit} may be open, {needed} may be needed"
    if limit >= needed:
        return good("machine", "open files", detail)
    remedy = f"Raise it: `ulimit -n {needed}`, LimitNOFILE={needed} in the systemd unit."
    return bad("machine", "open files", detail, remedy)


def pinned(matrix: Matrix, *, production: bool) -> tuple[Examined, ...]:
    """The matrix: what blocks its use, one line; what only production refuses, counted."""
    remarks = review(matrix)
    told = [
        bad("matrix", r.where, r.problem, r.remedy) for r in remarks if r.weight is Weight.BLOCKS
    ]
    lacking = [r for r in remarks if r.weight is Weight.PRODUCTION]
    if lacking:
        detail = f"{len(lacking)} pins or paths lack a version, a digest or a source"
        remedy = "`provisioner matrix check --production` lists them; close them in an overlay."
        judge = bad if production else warning
        told.append(judge("matrix", "production", detail, remedy))
    if not told:
        told.append(good("matrix", matrix.digest()[:12], f"{len(matrix.releases)} releases"))
    return tuple(told)


def artifact(name: str, wanted: str, found: str | None) -> Examined:
    """A file that the matrix names. `found`: its SHA-256; None if it is not there."""
    if found is None:
        remedy = "Download it from the vendor and put it into the artifact directory."
        return bad("artifacts", name, "there is no such file", remedy)
    if not wanted:
        remedy = f"Compare {found} with the vendor's, and put it into the matrix as `sha256`."
        return warning("artifacts", name, "the matrix pins no digest", remedy)
    if found != wanted:
        remedy = "Download it again; if it is right, correct the digest in the matrix."
        return bad("artifacts", name, f"its SHA-256 is {found}, not {wanted}", remedy)
    return good("artifacts", name, "present, with its digest")


def image(matrix: Matrix) -> Examined:
    """The maintenance image that nodes are to boot."""
    found = matrix.images.get(MAINTENANCE)
    if found is not None and found.known and found.artifact:
        return good("image", found.artifact, f"version {found.version}")
    remedy = "Run `make image` and put the lines that it prints into an overlay of the matrix."
    return bad("image", MAINTENANCE, "no maintenance image is pinned", remedy)


def ready(examined: Sequence[Examined]) -> bool:
    """True if nothing is bad and nothing was left out."""
    return all(e.standing in (Standing.GOOD, Standing.WARNING) for e in examined)
