"""Rules for roots of trust that are asked again while a certificate is in force.

Pure. Evidence that contradicts the certificate ends it at once. A proof that cannot be had ends it
only after a time of grace, since a BMC may be busy, restart, or be asked by another client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from provisioner.model.alert import Alert, Classification
from provisioner.model.base import Record
from provisioner.model.health import Finding, Severity
from provisioner.planning.certification.attested_state import RootChange
from provisioner.planning.watch.watch_rules import ITEMS_MAX, Found

SOURCE = "watch.attestation"
DIFFERS = "AttestationDiffers"
UNPROVED = "AttestationUnproved"
# A BMC that computes the time of its reset from its uptime shows it some seconds off, and one that
# takes its time from NTP corrects it.
RESET_SLACK_S = 120.0
_MESSAGE_MAX = 400


class Renewal(Record):
    """The result of one question: by root of trust, what differs, and what is not proved."""

    differs: tuple[tuple[str, str], ...] = ()
    unproved: tuple[tuple[str, str], ...] = ()

    @property
    def proved(self) -> bool:
        """Return whether every root proved the certified state."""
        return not self.differs and not self.unproved


def judge_renewal(findings: Iterable[Finding], changes: Iterable[RootChange]) -> Renewal:
    """Return the result from the check's findings and from differences to the certified state."""
    differs: dict[str, str] = {}
    unproved: dict[str, str] = {}
    for finding in findings:
        lies = finding.severity is Severity.ISOLATE
        (differs if lies else unproved).setdefault(finding.part, _describe(finding))
    for change in changes:
        if change.name not in unproved:  # values of an unproved report are no statement
            differs.setdefault(change.name, change.detail[:_MESSAGE_MAX])
    return Renewal(differs=tuple(differs.items()), unproved=tuple(unproved.items()))


def confirm_renewal(first: Renewal, second: Renewal) -> Renewal:
    """Return the second result, where only differences count that the first one had too.

    A BMC hands out the last answer that any client asked for: one contradiction may be another's
    answer.
    """
    before = {name for name, _ in first.differs}
    return Renewal(
        differs=tuple(one for one in second.differs if one[0] in before),
        unproved=(
            *second.unproved,
            *(one for one in second.differs if one[0] not in before),
        ),
    )


def list_conditions(
    renewal: Renewal, standing: Iterable[Alert], *, required: bool, now: float, grace_s: float
) -> tuple[Found, ...]:
    """Return the present conditions. `standing`: the node's alerts, which know since when."""
    since = {a.target: a.since for a in standing if a.active and a.id == UNPROVED}
    conditions = []
    for name, message in renewal.differs:
        conditions.append(_condition(DIFFERS, name, message, revokes=required))
    for name, message in renewal.unproved:
        over = now - since.get(name, now) >= grace_s
        conditions.append(_condition(UNPROVED, name, message, revokes=required and over))
    return tuple(conditions[:ITEMS_MAX])


def was_reset(before: Mapping[str, str] | None, after: Mapping[str, str], proved_at: float) -> bool:
    """Return whether a system or a manager was reset since it was read, or since the last proof.

    The values are `LastResetTime` by path. `before` None: nothing was read since the daemon began,
    so that the BMC's own time decides.
    """
    for path, shown in after.items():
        now = _parse_time(shown)
        if now is None:
            continue
        if before is None:
            if now > proved_at + RESET_SLACK_S:
                return True
            continue
        then = _parse_time(before.get(path, ""))
        if then is not None and abs(now - then) > RESET_SLACK_S:
            return True
    return False


def list_outdated(alerts: Sequence[Alert], issued_at: float) -> tuple[Alert, ...]:
    """Return the active alerts of this watch that are older than the certificate in force."""
    return tuple(a for a in alerts if a.active and a.source == SOURCE and a.last_at < issued_at)


def _condition(name: str, target: str, message: str, *, revokes: bool) -> Found:
    classes: tuple[Classification, ...] = (Classification.ATTESTATION,)
    if revokes:
        classes = (Classification.ATTESTATION, Classification.DRIFT)
    return Found(id=name, target=target, classifications=classes, message=message)


def _describe(finding: Finding) -> str:
    text = finding.detail
    if finding.measured:
        text += f": measured {finding.measured}"
    if finding.wanted:
        text += f", admitted {finding.wanted}"
    return text[:_MESSAGE_MAX]


def _parse_time(shown: str) -> float | None:
    """Return the seconds since 1970; None for text that is no time with an offset."""
    try:
        moment = datetime.fromisoformat(shown)
        return moment.timestamp() if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
