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
    shards: frozenset[int] = frozenset()  # that are its own; not read by its peers


def digest_settings(settings: Settings) -> str:
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


# ------------------------------------------------------------------------------
# Who reaches its devices and the database worse than its peers, and gives its work away.
#
# A daemon that cannot reach a device has learned nothing about the device: it may be off for
# everybody. So its peers try the very devices that are silent for it, and only where these answer
# a peer is there a difference. The shares are compared with a margin, so that of any daemons the
# one with the most never gives up, and two never hand to each other. One that gave up returns
# after a minute without a difference.

# silent devices that a peer has tried: one or two among others are faults of their own; but if a
# daemon hears nothing of all that it asked, these are enough
COMPARED_MIN = 3
SAMPLE_MAX = 16  # of silent devices, that peers try
MARGIN = 0.3  # of all devices that a daemon asks, more that a peer reaches
MARGIN_BACK = 0.1  # the same, for a daemon that gave its work away and wants it again
FRESH_S = 20.0  # a statement that is older says nothing
HOLD_S = 10.0  # a difference lasts so long before anything is given away
RETURN_S = 60.0  # and is over for so long before it is taken again
SLOW_MS = 40.0  # of a round trip to the database: a decision makes some ten of them
SLOW_BACK_MS = 20.0
SAME = 0.02  # of devices, by which a statement may be off before it is written again
SLOW_TIMES = 4.0  # of a peer's round trip: a database that is slow for everybody is no difference
NEAR_MS = SLOW_BACK_MS / SLOW_TIMES  # a round trip below is good enough for any comparison
READ_AS_IS = {"place", "sample", "probed"}


class Standing(Record):
    """What a daemon states of itself: how many of the devices that it asked lately answered."""

    id: str = ""
    place: str = ""  # of its data directory: its next life inherits what this one knew
    at: float = 0.0  # the database's clock; 0: it has stated nothing
    fit: bool = True  # False: it drives nothing, and does not ask for the lead
    tried: int = 0
    silent: int = 0
    sample: tuple[str, ...] = ()  # HOST:PORT of silent devices, for peers to try
    probed: Mapping[str, bool] = {}  # HOST:PORT of others' silent devices -> whether it answered
    round_trip_ms: float = 0.0  # to the database; 0: not measured

    @property
    def share(self) -> float:
        """Return the part of the devices tried, for itself and for others, that answered."""
        tried = self.tried + len(self.probed)
        answered = self.tried - self.silent + sum(self.probed.values())
        return answered / tried if tried else 1.0


class Fitness(Record):
    """Whether a daemon drives operations, and since when a look says something else."""

    fit: bool = True
    why: str = ""  # of the last look; what is held against a daemon that is not fit
    since: float | None = None


def read_standing(id_: str, text: str, shown_at: float = 0.0) -> Standing:
    """Return what a daemon stated; of an older version, or if it is no statement: nothing.

    `shown_at`: when it showed last that this still holds.
    """
    try:
        told = Standing.model_validate({**json.loads(text or "{}"), "id": id_})
    except (ValueError, TypeError, RecursionError):
        return Standing(id=id_)
    bounded = dict(list(told.probed.items())[: 8 * SAMPLE_MAX])
    at = max(told.at, shown_at) if told.at else 0.0
    changes = {"at": at, "sample": told.sample[:SAMPLE_MAX], "probed": bounded}
    return told.model_copy(update=changes)


def shorten(ours: Standing) -> Standing:
    """Return what is stated of us: no silent devices where these are too few for a difference.

    A large fleet always has some, and others at each look.
    """
    few = ours.silent < MARGIN_BACK * ours.tried
    return ours.model_copy(update={"sample": ()}) if ours.fit and few else ours


def says_the_same(stated: Standing, ours: Standing) -> bool:
    """Return whether a peer that reads what was stated judges as if it read this.

    Not of a daemon that drives nothing: its next life goes by when it last said so.
    """
    before = stated.round_trip_ms
    now = ours.round_trip_ms
    near = abs(now - before) <= 0.1 * before or 0 < min(before, now) <= max(before, now) <= NEAR_MS
    return (
        bool(stated.at)
        and (stated.fit, ours.fit) == (True, True)
        and stated.model_dump(include=READ_AS_IS) == ours.model_dump(include=READ_AS_IS)
        and abs(stated.share - ours.share) <= SAME
        and near
    )


def list_asked(ours: Standing, peers: Sequence[Standing]) -> tuple[str, ...]:
    """The devices to try now: those that are silent for others, and for an unfit one its own."""
    own = () if ours.fit else ours.sample
    wanted = [a for p in peers for a in p.sample]
    return tuple(dict.fromkeys((*own, *wanted)))[: 8 * SAMPLE_MAX]


def find_difference(ours: Standing, peers: Sequence[Standing], now: float) -> str:
    """Return in which way a fit peer is so much better that it should do our work; "" if in
    none.
    """
    margin = MARGIN if ours.fit else MARGIN_BACK
    for peer in _list_fit(peers, now):
        compared = [a for a in ours.sample if a in peer.probed]
        mute = 0 < ours.tried == ours.silent == len(compared)
        if not mute and (len(compared) < COMPARED_MIN or not ours.tried):
            continue
        reached = sum(peer.probed[a] for a in compared)
        gain = ours.silent / ours.tried * reached / len(compared)
        if gain >= margin and peer.share - ours.share >= margin:
            return (
                f"{ours.tried - ours.silent} of {ours.tried} devices that it asked answered; of "
                f"{len(compared)} silent ones {reached} answer {peer.id}: look at this machine's "
                "network to the devices"
            )
    slow_ms = SLOW_MS if ours.fit else SLOW_BACK_MS
    # a peer whose devices do not answer would do nothing at all: slow is better than that
    timed = [
        p for p in _list_fit(peers, now) if p.round_trip_ms > 0 and ours.share - p.share < MARGIN
    ]
    if ours.round_trip_ms >= slow_ms and timed:
        peer = min(timed, key=lambda p: p.round_trip_ms)
        if peer.round_trip_ms * SLOW_TIMES <= ours.round_trip_ms:
            return (
                f"a round trip to the database takes {ours.round_trip_ms:.0f} ms, from {peer.id} "
                f"{peer.round_trip_ms:.0f} ms: look at the link between this machine and it"
            )
    return ""


def judge_fitness(before: Fitness, why: str, now: float, *, alone: bool) -> Fitness:
    """Return the fitness after a look that found `why`; `alone`: no fit peer could do the work."""
    if before.fit:
        if not why or alone:
            return Fitness()
        since = now if before.since is None else before.since
        return Fitness(fit=now - since < HOLD_S, why=why, since=since)
    if alone:
        return Fitness()
    if why:
        return Fitness(fit=False, why=why)
    since = now if before.since is None else before.since
    if now - since >= RETURN_S:
        return Fitness()
    return Fitness(fit=False, why=before.why, since=since)


def describe_slow_link(ours: Standing) -> tuple[str, ...]:
    """Return a sentence if the database is far from this daemon, whoever else it is far from."""
    if ours.round_trip_ms < SLOW_MS:
        return ()
    took = f"a round trip takes {ours.round_trip_ms:.0f} ms"
    return (f"the database is far: {took}; look at the link between this machine and it",)


def is_alone(peers: Sequence[Standing], now: float) -> bool:
    """Return whether no peer is there that could do our work."""
    return not any(True for _ in _list_fit(peers, now))


def describe_unfit_peers(peers: Sequence[Standing], now: float) -> tuple[str, ...]:
    """Return a sentence for each living peer that gave its work away."""
    return tuple(
        f"{p.id} drives nothing: it reaches its devices or the database worse than its peers"
        for p in peers
        if not p.fit and now - p.at <= FRESH_S
    )


def _list_fit(peers: Sequence[Standing], now: float) -> Iterable[Standing]:
    return (p for p in peers if p.fit and p.at and now - p.at <= FRESH_S)
