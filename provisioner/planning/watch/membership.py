"""Membership of daemons on one database: only with equal matrix, settings and code.

Two daemons with different matrices would each bring nodes to their own pins. A difference is
refused when a daemon joins, unless a change is declared: then old and new work side by side until
the declared end, after which the daemons that joined earlier end.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from provisioner.model.base import Record
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# When a scheduled backup is due, and which older ones are removed: by the names of the files.
#
# No other file is ever counted or removed: a person's own backups beside them stay.


NAME = re.compile(r"provisioner-(\d{8}T\d{6}Z)\.tar", re.ASCII)
TIME = "%Y%m%dT%H%M%SZ"
RETRY_S = 3600.0  # after a backup that failed
AHEAD_S = 3600.0  # a file that is newer than this from now was named by a wrong clock


def name_backup(now: float) -> str:
    """Return the name of a backup that is made now."""
    return f"provisioner-{datetime.fromtimestamp(now, UTC).strftime(TIME)}.tar"


def read_time(name: str) -> float | None:
    """Return when a backup was made, by its name; None for any other file."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    try:
        return datetime.strptime(match[1], TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:  # 31 February
        return None


def find_newest(names: Iterable[str], now: float) -> float:
    """Return when the newest backup was made; 0.0 if there is none. A future one does not count."""
    times = [at for name in names if (at := read_time(name)) is not None]
    return max((at for at in times if at <= now + AHEAD_S), default=0.0)


def choose_removals(names: Iterable[str], keep: int) -> tuple[str, ...]:
    """Return the backups beyond the newest `keep`, the oldest first."""
    ours = sorted(name for name in names if read_time(name) is not None)
    return tuple(ours[: max(0, len(ours) - keep)])


# Settings of one machine: addresses, files, its telemetry, its capacity.
OF_ONE_MACHINE = frozenset(
    {
        "api_host",
        "api_port",
        "api_serve",
        "api_certificate",
        "api_certificate_key",
        "api_names",
        "api_connections_max",
        "api_oidc_secret_file",
        "api_streams_max",
        "artifacts_connections_max",
        "attestation_references",
        "audit_otlp_ca_file",
        "audit_otlp_headers_file",
        "audit_syslog_ca_file",
        "audit_syslog_identity_file",
        "metrics_connections_max",
        "backup_directory",
        "credential_setup_password_file",
        "backup_every_h",
        "backup_keep",
        "log_format",
        "log_intake_ca_file",
        "log_intake_host",
        "log_intake_port",
        "log_intake_udp_port",
        "metrics_fresh_s",
        "metrics_host",
        "metrics_nodes_max",
        "metrics_port",
        "metrics_token_file",
        "operations_max",
        "requests_max",
        "ssh_connections_max",
        "switch_tacacs_key_file",
        "trace_endpoint",
        "tpm_makers_file",
        "trace_headers_file",
    }
)


class WorksBy(Record):
    """The parts that a daemon works by, and until when others may differ."""

    digests: Mapping[str, str] = {}  # part -> SHA-256; empty: of a version that did not record it
    change_until: float = 0.0  # seconds since the epoch; 0: no change is declared


class Joined(WorksBy):
    """A daemon among its peers. `number` counts daemons in the order in which they joined."""

    id: str
    number: int = 0


def digest_settings(settings: Settings) -> str:
    """Return the digest of all settings that must be equal on all daemons."""
    shared = settings.model_dump(mode="json", exclude=set(OF_ONE_MACHINE))
    return _digest(json.dumps(shared, sort_keys=True))


def digest_text(text: str) -> str:
    """Return the digest of a file's text: thresholds, the address plan."""
    return _digest(text)


def find_differences(ours: Joined, theirs: Joined) -> tuple[str, ...]:
    """Return the parts by which two daemons differ, by name."""
    parts = sorted({*ours.digests, *theirs.digests})
    return tuple(p for p in parts if ours.digests.get(p) != theirs.digests.get(p))


def find_join_refusal(ours: Joined, peers: Sequence[Joined], now: float) -> str:
    """Return why a daemon may not join its living peers; "" if it may."""
    for peer in peers:
        apart = find_differences(ours, peer)
        if apart and max(ours.change_until, peer.change_until) <= now:
            return f"{_other(apart)} than {peer.id}"
    return ""


def find_end_reason(ours: Joined, peers: Sequence[Joined], now: float) -> str:
    """Return why a daemon has to end: a declared change is over, and it works by the old parts."""
    for peer in peers:
        apart = find_differences(ours, peer)
        allowed = max(ours.change_until, peer.change_until) > now
        if apart and peer.number > ours.number and not allowed:
            return f"{_other(apart)} than {peer.id}, which joined later; the change has ended"
    return ""


def describe_mixed_peers(ours: Joined, peers: Sequence[Joined]) -> tuple[str, ...]:
    """Return a sentence for each peer with different parts."""
    return tuple(
        f"{peer.id} works by {_named(apart)}"
        for peer in peers
        if (apart := find_differences(ours, peer))
    )


def _other(apart: Sequence[str]) -> str:
    return f"this daemon works by {_named(apart)}"


def _named(apart: Sequence[str]) -> str:
    return "another " + " and another ".join(apart)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
