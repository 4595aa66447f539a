"""Judge whether a site may go live: each examined item, with its remedy.

Pure: `looking.py` and `doctor_commands.py` collect the facts, and this module
judges them. An item that was not examined never counts as good.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from enum import StrEnum
from statistics import median

from provisioner.integrations.matrix_tools.deciding.review import Weight, review_matrix
from provisioner.model.alert import Subscription
from provisioner.model.base import Record
from provisioner.model.expected import Expected
from provisioner.model.matrix import MAINTENANCE, Matrix
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.intake.pairing import Endpoint, Foreseen
from provisioner.planning.matrix.readiness import Use
from provisioner.settings import Settings

SKEW_BAD_S = 300.0  # beyond it, events of devices and of the daemon cannot be ordered by time
SKEW_MAX_S = 30.0  # an HTTP date has whole seconds, and a BMC may take seconds to answer
PROVING_S = 600.0  # a new subscription is tried several times within it
CLOCKS_MIN = 3  # devices that must agree before this machine's clock is judged wrong
FREE_BAD_BYTES = 1 << 30
FREE_MIN_BYTES = 10 << 30  # evidence of a rack for some months, and room to restore a backup
FILES_RESERVE = 256  # database, logs, switches, the process's own
FILES_PER_COMMAND = 3  # a command's pipes
FILES_PER_DOWNLOAD = 2  # the connection, and the file


class Standing(StrEnum):
    """The result for one item. Only GOOD is a pass."""

    GOOD = "good"
    WARNING = "warning"  # it works, with disadvantages
    BAD = "bad"
    NOT_LOOKED = "not looked"
    AFTER_INTAKE = "after intake"  # it cannot be known before the first intake


class Examined(Record):
    """One examined item. `remedy` is empty only if no action is needed."""

    area: str
    subject: str
    standing: Standing
    detail: str
    remedy: str = ""


def report_good(area: str, subject: str, detail: str) -> Examined:
    return Examined(area=area, subject=subject, standing=Standing.GOOD, detail=detail)


def report_bad(area: str, subject: str, detail: str, remedy: str) -> Examined:
    """Return the result of an item that must be changed before go-live."""
    return Examined(area=area, subject=subject, standing=Standing.BAD, detail=detail, remedy=remedy)


def report_warning(area: str, subject: str, detail: str, remedy: str) -> Examined:
    """Return the result of an item that should be changed."""
    return Examined(
        area=area, subject=subject, standing=Standing.WARNING, detail=detail, remedy=remedy
    )


def report_not_looked(area: str, subject: str, detail: str, remedy: str) -> Examined:
    """Return the result of an item that could not be examined."""
    return Examined(
        area=area, subject=subject, standing=Standing.NOT_LOOKED, detail=detail, remedy=remedy
    )


def report_later(area: str, subject: str, detail: str, remedy: str = "") -> Examined:
    """Return the result of an item that only an intake can show."""
    return Examined(
        area=area, subject=subject, standing=Standing.AFTER_INTAKE, detail=detail, remedy=remedy
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


def report_failure(area: str, subject: str, reason: Reason, detail: str) -> Examined:
    remedy = _REMEDIES.get(reason, "See its log; then ask again.")
    return report_bad(area, subject, f"{reason}: {detail}", remedy)


def judge_first_login(url: str, endpoint: Endpoint | None, refusal: Blocker | None) -> Examined:
    """Judge the factory login of a BMC that is not taken in yet."""
    if endpoint is not None:
        who = f"a {endpoint.kind}'s BMC, serial {endpoint.serial or 'not shown'}"
        return report_good("credential", url, f"the factory login works: {who}")
    assert refusal is not None
    if refusal.reason is Reason.PASSWORD_CHANGE:
        return report_good("credential", url, "the factory login works; intake changes it first")
    if refusal.reason is Reason.UNKNOWN_VENDOR:
        return report_bad("credential", url, refusal.detail, refusal.unblock)
    return report_failure("credential", url, refusal.reason, refusal.detail)


def judge_pairing(seen: Foreseen) -> tuple[Examined, ...]:
    """Judge the nodes of a list by what an intake would do with them."""
    refused = [report_bad("list", b.subject, b.detail, b.unblock) for b in seen.refused]
    ready = [report_good("list", name, "it would be taken in") for name in seen.ready]
    strangers = [report_warning("list", b.subject, b.detail, b.unblock) for b in seen.strangers]
    return (*refused, *ready, *strangers)


def judge_serials(
    expected: Expected, endpoints: Sequence[Endpoint], known: Collection[str]
) -> tuple[Examined, ...]:
    """Judge the BMCs at listed addresses by their serials; cards are found only by a search."""
    found = {e.url.rstrip("/"): e for e in endpoints}
    results = []
    for entry in (n for n in expected.nodes if n.name not in known and n.kind is NodeKind.HOST):
        endpoint = found.get(entry.bmc.url.rstrip("/"))
        if endpoint and entry.bmc.serial and endpoint.serial != entry.bmc.serial:
            detail = f"{endpoint.url} has the serial {endpoint.serial or 'none'}"
            remedy = f"The list says {entry.bmc.serial}: correct it, or the address."
            results.append(report_bad("list", entry.name, detail, remedy))
        elif entry.dpus or endpoint is None:
            remedy = "Give --range to look for them now; `intake --dry-run` does it too."
            detail = f"{len(entry.dpus)} cards of it were not looked for"
            if endpoint is None and not entry.bmc.url:
                detail = f"its BMC and {detail}"
            results.append(report_later("list", entry.name, detail, remedy))
    return tuple(results)


def find_unproved(subscriptions: Iterable[Subscription], now: float) -> tuple[Examined, ...]:
    """Return a warning for each event subscription at a BMC that delivers nothing."""
    remedy = (
        "Let the BMC reach the daemon's listener (firewall, route, TLS); polls go on meanwhile."
    )
    return tuple(
        report_warning(
            "events",
            f"{s.node}/{s.bmc}",
            "no event has come by our subscription, not even the test event",
            remedy,
        )
        for s in subscriptions
        if not s.delivers and now - s.made_at > PROVING_S
    )


def compute_skew_s(date: str, at: float) -> float | None:
    """Return how many seconds an HTTP Date header (RFC 9110 section 6.6.1) is ahead of `at`.

    Returns None if it is no date.
    """
    try:
        return parsedate_to_datetime(date).timestamp() - at
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def judge_clocks(skews: Mapping[str, float | None]) -> tuple[Examined, ...]:
    """Compare the devices' clocks with this machine's.

    If most devices agree with each other but not with this machine, its own clock is wrong.
    """
    readable = {name: skew for name, skew in skews.items() if skew is not None}
    if not readable:
        remedy = "Compare `date -u` here with a clock that you trust."
        return (report_not_looked("clock", "this machine", "no device reported its time", remedy),)
    middle = median(readable.values())
    agree = [s for s in readable.values() if abs(s - middle) <= SKEW_MAX_S]
    ours_wrong = abs(middle) > SKEW_MAX_S and len(agree) >= max(CLOCKS_MIN, len(readable) / 2)
    results = []
    if ours_wrong:
        detail = (
            f"{len(agree)} of {len(readable)} devices agree that it is {_format_offset(-middle)}"
        )
        results.append(
            report_bad("clock", "this machine", detail, "Let it follow NTP (`timedatectl`).")
        )
    else:
        results.append(
            report_good("clock", "this machine", f"compared with {len(readable)} devices")
        )
    reference = middle if ours_wrong else 0.0
    for name, skew in sorted(readable.items()):
        off = skew - reference
        if abs(off) <= SKEW_MAX_S:
            continue
        judge = report_bad if abs(off) > SKEW_BAD_S else report_warning
        results.append(judge("clock", name, f"it is {_format_offset(off)}", "Set NTP on it."))
    return tuple(results)


def _format_offset(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead' if seconds > 0 else 'behind'}"


def judge_disk(subject: str, free_bytes: int) -> Examined:
    detail = f"{free_bytes / 2**30:.1f} GiB free"
    remedy = f"Make room: at least {FREE_MIN_BYTES >> 30} GiB."
    if free_bytes < FREE_BAD_BYTES:
        return report_bad("machine", subject, detail, remedy)
    if free_bytes < FREE_MIN_BYTES:
        return report_warning("machine", subject, detail, remedy)
    return report_good("machine", subject, detail)


def judge_open_files(limit: int, settings: Settings) -> Examined:
    shares = {
        "Redfish requests": settings.requests_max,
        "event streams": settings.watch_streams_max,
        "hosts (three each)": settings.ssh_connections_max * FILES_PER_COMMAND,
        "playbooks": settings.playbook_slots * FILES_PER_COMMAND,
        "webhooks": settings.webhook_parallel,
        "API": settings.api_connections_max,
        "agents": settings.agents_connections_max,
        "events": settings.events_connections_max,
        "artifacts (two each)": settings.artifacts_connections_max * FILES_PER_DOWNLOAD,
        "metrics": settings.metrics_connections_max,
    }
    needed = sum(shares.values()) + FILES_RESERVE
    detail = f"{limit} may be open, {needed} may be needed"
    if limit >= needed:
        return report_good("machine", "open files", detail)
    parts = ", ".join(f"{name} {count}" for name, count in shares.items())
    remedy = f"Raise it: `ulimit -n {needed}`, LimitNOFILE={needed} in the systemd unit."
    return report_bad("machine", "open files", f"{detail}: {parts}, others {FILES_RESERVE}", remedy)


def judge_matrix(matrix: Matrix, use: Use, *, production: bool) -> tuple[Examined, ...]:
    """Judge the part of the matrix that the site uses: a result for each fault that blocks it, and
    one for production.
    """
    remarks = review_matrix(matrix, use=use)
    results = [
        report_bad("matrix", r.where, r.problem, r.remedy)
        for r in remarks
        if r.weight is Weight.BLOCKS
    ]
    incomplete = [r for r in remarks if r.weight is Weight.PRODUCTION]
    if incomplete:
        detail = f"{len(incomplete)} pins or paths lack a version, a digest or a source"
        words = [f"--release {r}" for r in sorted(use.releases)]
        words += [f"--profile {p}" for p in sorted(use.profiles)]
        command = " ".join(["provisioner matrix check --production", *words])
        remedy = f"`{command}` lists them; close them in an overlay."
        judge = report_bad if production else report_warning
        results.append(judge("matrix", "production", detail, remedy))
    if not results:
        results.append(report_good("matrix", matrix.digest()[:12], _name_use(matrix, use)))
    return tuple(results)


def _name_use(matrix: Matrix, use: Use) -> str:
    names = (*sorted(use.releases), *sorted(use.profiles))
    return f"{', '.join(names)}: usable" if names else f"{len(matrix.releases)} releases"


def find_use(
    matrix: Matrix, expected: Expected | None, nodes: Sequence[Node], profiles: Collection[str]
) -> Use:
    """Return the part of the matrix that a site uses, by its list, its nodes and its own word.

    A node that was taken in has its profile. Before, a release is judged with each profile of the
    kinds of nodes on the list, unless `profiles` names those that the site has.
    """
    releases = {n.release for n in nodes} | ({expected.release} if expected else set())
    used = frozenset(releases & matrix.releases.keys())
    named = set(profiles) | {n.profile for n in nodes if n.profile}
    if expected and used and not profiles:
        taken_in = {n.id for n in nodes if n.profile}
        open_kinds = {e.kind for e in expected.nodes if e.name not in taken_in}
        named |= {
            name
            for release in used
            for name, profile in matrix.releases[release].profiles.items()
            if profile.match.kind in open_kinds
        }
    return Use(used, frozenset(named))


def judge_list(expected: Expected, matrix: Matrix) -> Examined:
    if expected.release in matrix.releases:
        return report_good("list", expected.release, f"{len(expected.nodes)} nodes")
    remedy = f"Name one of: {', '.join(matrix.releases)}."
    if not expected.release:
        return report_warning("list", "release", "it names no release", remedy)
    problem = f"the matrix has no release {expected.release!r}"
    return report_bad("list", "release", problem, remedy)


def judge_artifact(name: str, pinned_sha256: str, sha256: str | None) -> Examined:
    """Judge a file that the matrix names. `sha256` is its digest; None if the file is missing."""
    if sha256 is None:
        remedy = "Download it from the vendor and put it into the artifact directory."
        return report_bad("artifacts", name, "there is no such file", remedy)
    if not pinned_sha256:
        remedy = f"Compare {sha256} with the vendor's, and put it into the matrix as `sha256`."
        return report_warning("artifacts", name, "the matrix pins no digest", remedy)
    if sha256 != pinned_sha256:
        remedy = "Download it again; if it is right, correct the digest in the matrix."
        return report_bad(
            "artifacts", name, f"its SHA-256 is {sha256}, not {pinned_sha256}", remedy
        )
    return report_good("artifacts", name, "present, with its digest")


def judge_image(matrix: Matrix, *, lab: bool = False) -> Examined:
    """Judge the pinned maintenance image; a laboratory may lack it."""
    pin = matrix.images.get(MAINTENANCE)
    if pin is not None and pin.known and pin.artifact:
        return report_good("image", pin.artifact, f"version {pin.version}")
    remedy = "Run `make image` and put the lines that it prints into an overlay of the matrix."
    detail = "no maintenance image is pinned"
    if lab:
        detail += ": no node can be erased"
        return report_warning("image", MAINTENANCE, detail, remedy)
    return report_bad("image", MAINTENANCE, detail, remedy)


def judge_boot_token(image: str, *, carried: bool, allowed: bool) -> Examined:
    """Judge whether the maintenance image carries its agent's token. `allowed`: it need not."""
    if carried:
        return report_good("boot token", image, "it carries the token of its boot")
    detail = "it cannot carry its agent's token"
    if allowed:
        problem = f"{detail}: the first machine that looks up a node gets it"
        remedy = "Set `agent_lookup_trusts: nobody`, once the daemon serves an image with a slot."
        return report_warning("boot token", image, problem, remedy)
    remedy = "Build it anew with `make image`, and let the daemon serve it (no --artifact-url); "
    remedy += "or accept the risk with `agent_lookup_trusts: first`."
    return report_bad("boot token", image, f"{detail}: nodes do not boot it", remedy)


def is_ready(examined: Sequence[Examined]) -> bool:
    """Return whether no item is bad and none was left out that can be known by now."""
    fine = (Standing.GOOD, Standing.WARNING, Standing.AFTER_INTAKE)
    return all(e.standing in fine for e in examined)
