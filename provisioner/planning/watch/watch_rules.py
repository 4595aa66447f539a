"""Rules for conditions of serving nodes, from readings that do not touch them.

Pure. Each rule takes readings and returns the conditions that are present (`Found`); no rule has
state. Numbers have their source beside them; where no number is published, the fleet is the
reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from statistics import median
from zlib import crc32

from provisioner.model.alert import Classification, Signal
from provisioner.model.base import Record
from provisioner.model.certificate import Certificate
from provisioner.model.inventory import Inventory
from provisioner.planning.certification.certification import list_serials

# ------------------------------------------------------------------------------
# The pace of a first round: after a start every BMC is read once, whatever it reports by itself.
#
# A budget that suits a fleet of BMCs that send events is too small for that: reading 720,896 of
# them would take a day. The first round gets requests of its own beside it, as many as end it in
# time.


# Of a BMC that was not read since the start: a login, the way to its system and to its event
# service, and a subscription that is looked at or made. The simulated ones take six or seven.
FIRST_REQUESTS = 8


def compute_extra_rate(bmcs: int, first_s: float, per_s: float) -> float:
    """Return the requests a second that a first round over these BMCs needs above the budget.

    It ends within `first_s` seconds; 0: whenever the budget allows.
    """
    if first_s <= 0:
        return 0.0
    return max(0.0, bmcs * FIRST_REQUESTS / first_s - per_s)


C = Classification
# Azure's health checks: five losses of carrier in 24 hours
FLAPS_DAY = 5
DAY_S = 86400.0
# GPUd: down for 25 s or more and up again, three times in 12 hours; down for over 4 minutes
FLAP_DOWN_S = 25.0
FLAPS_HALF_DAY = 3
HALF_DAY_S = 43200.0
DROP_S = 240.0
# NVSentinel, NIC monitor: more than two changes of carrier in one interval of its reading
CHANGES_MAX = 2
# Meta's ROCET names its counters, not its limits: a port is compared with its fleet
ROCET = (
    "out_of_sequence",
    "local_ack_timeout_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "out_of_buffer",
    "rx_icrc_encapsulated",
)
ROCET_PORTS_MIN = 8  # fewer ports are no reference
# ours: ten times the fleet's, and one a second at least
ROCET_TIMES = 10.0
ROCET_FLOOR_PER_S = 1.0
EXPIRES_SOON_S = 3 * 86400.0  # a tenant's notice for a drain takes days
ITEMS_MAX = 16  # of one rule; a person reads no more
FATAL_COUNTERS = ("FatalErrorCount", "UncorrectableECCErrorCount")
FATAL_MAX = 512  # of one BMC: eight GPUs with their memories and links have some 100
_DRIVERS = "hgx.driver"  # the driver of each GPU and NVSwitch, as its baseboard reports it


class Found(Record):
    """One condition that is present."""

    id: str
    target: str = ""
    classifications: tuple[Classification, ...]
    message: str


def signal_of(found: Found | Signal, node: str, source: str, now: float) -> Signal:
    if isinstance(found, Signal):
        return found.model_copy(update={"source": source})
    return Signal(**found.model_dump(), node=node, source=source, at=now)


def turn_came(name: str, period_s: float, now: float) -> float:
    """Return when the last turn of `name` began, one in each period; inf for a period of 0.

    Turns are placed by the name, not by the start of the daemon: after a start all nodes are read
    at once, and a period later that would otherwise be repeated.
    """
    if period_s <= 0:
        return inf
    share = crc32(name.encode()) / 2**32
    return now - (now + share * period_s) % period_s


def find_next_turn(name: str, period_s: float, after: float) -> float:
    """Return when the first turn of `name` after this time begins, the same for each daemon."""
    return turn_came(name, period_s, after) + period_s if period_s > 0 else after


def find_later_turn(name: str, period_s: float, due: float, now: float) -> float:
    """Return the turn after the one that was `due` and has begun, a little early perhaps."""
    return find_next_turn(name, period_s, max(due, now) + period_s / 64)


class Counters(Record):
    """Counters of one port at one reading; `boot` changes when counting begins anew."""

    at: float
    boot: str = ""
    values: Mapping[str, int]


class Interruption(Record):
    """One loss of a link. `up_at` None: it is still down."""

    down_at: float
    up_at: float | None = None


def find_drift(certificate: Certificate, seen: Inventory) -> tuple[Found, ...]:
    """Return versions and drivers that differ from the certificate, as far as BMCs report them.

    A value that a BMC does not report now (a host that is off has no driver, a card that restarts
    no version) is no drift; a version that differs is.
    """
    had = dict(certificate.versions)
    driver = had.get("host.driver/host", "")
    findings = []
    for component in seen.components:
        name = f"{component.kind}/{component.slot}"
        now = component.version
        before = had.get(name) or (driver if component.kind == _DRIVERS else "")
        if not now or not before or now == before:
            continue
        message = f"{before} was certified, now it is {now}"
        findings.append(Found(id="Drift", target=name, classifications=(C.DRIFT,), message=message))
    return tuple(findings[:ITEMS_MAX])


def find_swaps(certificate: Certificate, seen: Inventory) -> tuple[Found, ...]:
    """Return parts in slots where others were certified.

    A part that is merely not reported is none: only a slot with another serial in it is a swap.
    """
    had = dict(part.split("=", 1) for part in certificate.serials if "=" in part)
    serials = set(had.values())
    findings = []
    for part in list_serials(seen):
        slot, _, serial = part.partition("=")
        # a host's BMC numbers cards in its own way: a card that was certified anywhere is accepted
        if slot.startswith(("nic/", "dpu/")) and serial in serials:
            continue
        if slot in had and had[slot] != serial:
            message = f"{had[slot]} was certified, now it is {serial}"
            # a power supply may be exchanged while the node serves, without interrupting its tenant
            meaning = C.DRIFT if slot.startswith("psu/") else C.PART_SWAP
            swap = Found(id="PartSwap", target=slot, classifications=(meaning,), message=message)
            findings.append(swap)
    return tuple(findings[:ITEMS_MAX])


LAPSED = frozenset(
    {
        "it serves without a certificate",
        "its certificate has expired",
        "its certificate was revoked",
    }
)


def certificate_age(
    certificate: Certificate | None, now: float, *, revoked: bool = False
) -> tuple[Found, ...]:
    """Return that the certificate expires soon, has expired, was revoked, or is missing."""
    if certificate is None:
        message = "it serves without a certificate"
    elif revoked:
        message = "its certificate was revoked"
    elif now >= certificate.expires_at:
        message = "its certificate has expired"
    elif certificate.expires_at - now < EXPIRES_SOON_S:
        message = f"its certificate expires within {EXPIRES_SOON_S / 86400:.0f} days"
    else:
        return ()
    return (Found(id="CertificateAge", classifications=(C.CERTIFICATE_AGE,), message=message),)


def find_silent_bmcs(
    heard: Mapping[str, float], began_at: float, now: float, limit_s: float
) -> tuple[Found, ...]:
    """Return BMCs without an answer for `limit_s`. `heard`: BMC -> last answer (0: never)."""
    findings = []
    for bmc, last in sorted(heard.items()):
        if now - max(last, began_at) >= limit_s:
            message = f"no answer for {limit_s / 60:.0f} minutes"
            findings.append(
                Found(id="BmcSilent", target=bmc, classifications=(C.UNOBSERVED,), message=message)
            )
    return tuple(findings[:ITEMS_MAX])


def find_skew(
    bmc: str, skew_s: float | None, uncertainty_s: float, limit_s: float
) -> tuple[Found, ...] | None:
    """Return that the clock of a BMC is off by more than the limit, or shows no time at all.

    None: the reading took so long that it proves neither side of the limit. The message names days
    or minutes only: a skew that drifts by seconds is one condition.
    """
    if skew_s is not None and abs(abs(skew_s) - limit_s) < uncertainty_s:
        return None
    if skew_s is not None and abs(skew_s) <= limit_s:
        return ()
    if skew_s is None:
        message = "it shows no time that can be read"
    else:
        size = abs(skew_s)
        amount = f"{size / 86400:.0f} days" if size >= DAY_S else f"{limit_s:.0f} s or more"
        message = f"its clock is {amount} {'ahead of' if skew_s > 0 else 'behind'} ours"
    return (Found(id="BmcClock", target=bmc, classifications=(C.SENSOR_WARNING,), message=message),)


def link_flaps(port: str, losses: Sequence[Interruption], now: float) -> tuple[Found, ...]:
    """Return whether a port flaps or is down for good, by Azure's and GPUd's rules."""
    past = [i for i in losses if i.down_at <= now]
    day = sum(now - i.down_at <= DAY_S for i in past)
    long = sum(
        i.up_at is not None
        and i.up_at <= now
        and now - i.up_at <= HALF_DAY_S
        and i.up_at - i.down_at >= FLAP_DOWN_S
        for i in past
    )
    down_s = max((now - i.down_at for i in past if i.up_at is None), default=0.0)
    if down_s > DROP_S:
        message = f"down for more than {DROP_S / 60:.0f} minutes"
        return (Found(id="LinkDown", target=port, classifications=(C.LINK,), message=message),)
    message = ""
    if day >= FLAPS_DAY:
        message = f"it lost its carrier {FLAPS_DAY} times or more in 24 hours"
    elif long >= FLAPS_HALF_DAY:
        message = f"down for {FLAP_DOWN_S:.0f} s or more, {FLAPS_HALF_DAY} times in 12 hours"
    if not message:
        return ()
    return (Found(id="LinkFlap", target=port, classifications=(C.LINK,), message=message),)


def carrier_changes(port: str, looks: Sequence[Counters]) -> tuple[Found, ...]:
    """Return too many carrier changes between two readings: NVSentinel's rule for a bare
    counter.
    """
    grew = compute_growth(looks, "carrier_changes")
    if grew is None or grew <= CHANGES_MAX:
        return ()
    message = f"its carrier changed more than {CHANGES_MAX} times between two looks"
    return (Found(id="LinkFlap", target=port, classifications=(C.LINK,), message=message),)


def stuck_queue(port: str, looks: Sequence[Counters]) -> tuple[Found, ...]:
    """Return whether the ingress queue of a BlueField is stuck, over the last three readings.

    NVIDIA publishes no rule; this follows the kernel's counters (mlx5, `devlink health` and
    `ethtool -S`): a queue that is stopped in two readings, or pause frames sent in two intervals
    without any received packet. One reading is not enough, because a queue may only be full.
    """
    last = [look for look in looks if look.boot == looks[-1].boot][-3:] if looks else []
    if len(last) >= 2 and all(look.values.get("queues_stopped", 0) > 0 for look in last[-2:]):
        message = "a queue was stopped in two looks"
    elif len(last) == 3 and all(_pausing(last[i : i + 2]) for i in (0, 1)):
        message = "it sends pause frames and receives nothing, in two intervals"
    else:
        return ()
    return (Found(id="QueueStuck", target=port, classifications=(C.LINK,), message=message),)


def held_by_watchdog(port: str, looks: Sequence[Counters]) -> tuple[Found, ...]:
    """Return what the leaf's PFC watchdog says: a queue stuck in two looks, or a new storm.

    a driver says DEADLOCK of a traffic class, or "stormed" of a queue; a single look may be in the
    middle of a short storm, which the watchdog itself ends.
    """
    known = [look.values["watchdog_stuck"] for look in looks if "watchdog_stuck" in look.values]
    last = known[-2:]  # a look that did not tell of it ends nothing
    if len(last) == 2 and min(last) > 0:
        message = "the leaf's PFC watchdog held a queue to this host as stuck in two looks"
        return (Found(id="QueueStuck", target=port, classifications=(C.LINK,), message=message),)
    grew = compute_growth(looks, "watchdog_storms")
    if not grew:
        return ()
    message = "the leaf's PFC watchdog counted a storm of pause frames from this host"
    return (Found(id="PfcStorm", target=port, classifications=(C.LINK,), message=message),)


# counter at a leaf's port -> condition, and its words
_QUEUE_RULES = {
    "pause_received": (
        "SlowReceiver",
        "this host pauses its leaf far more than others do: it cannot take what it is sent (PFC)",
    ),
    "discards": (
        "QueueDiscards",
        "the leaf drops far more frames for this host than for the fleet's other hosts",
    ),
}


def find_slow_receivers(
    looks_at: Mapping[tuple[str, str], Sequence[Counters]],
) -> dict[str, tuple[Found, ...]]:
    """Return hosts that hold up the fabric, by what their leaves count: node -> conditions.

    A port is compared with all ports of the fleet in the same intervals, and has to stand out in
    two intervals one after the other: one burst of many to one is a workload, not a fault. Too few
    ports are no reference, and a counter that is missing is no zero.
    """
    found: dict[str, list[Found]] = {node: [] for node, _ in looks_at}
    for name, (condition, message) in _QUEUE_RULES.items():
        rates: dict[tuple[str, str], float] = {}
        for key, looks in sorted(looks_at.items()):
            both = [per_second(looks[-3:-1]).get(name), per_second(looks[-2:]).get(name)]
            known = [rate for rate in both if rate is not None]
            if len(looks) >= 3 and len(known) == 2:
                rates[key] = min(known)
        if len(rates) < ROCET_PORTS_MIN:
            continue
        limit = max(ROCET_TIMES * median(rates.values()), ROCET_FLOOR_PER_S)
        for (node, port), rate in rates.items():
            if rate > limit:
                one = Found(id=condition, target=port, classifications=(C.LINK,), message=message)
                found[node].append(one)
    return {node: tuple(each[:ITEMS_MAX]) for node, each in found.items()}


QUEUE_ALERTS = frozenset({"QueueStuck", "PfcStorm", "SlowReceiver", "QueueDiscards"})


def name_tenant(found: Found, tenant: str) -> Found:
    """Return a condition of a queue with the tenant whose traffic it is."""
    if found.id not in QUEUE_ALERTS or not tenant:
        return found
    return found.model_copy(update={"message": f"{found.message}; tenant {tenant}"})


def find_rocet_outliers(
    rates: Mapping[tuple[str, str], Mapping[str, float]],
) -> dict[str, tuple[Found, ...]]:
    """Return ports whose transport errors are far above their fleet's: node -> conditions.

    `rates`: (node, port) -> counter -> errors per second, in one interval of the same traffic. A
    timeout may be caused by the other side's failure: it is reported without blame.
    """
    findings: dict[str, list[Found]] = {node: [] for node, _ in rates}
    for name in ROCET:
        of_port = {key: values[name] for key, values in sorted(rates.items()) if name in values}
        if len(of_port) < ROCET_PORTS_MIN:
            continue
        limit = max(ROCET_TIMES * median(of_port.values()), ROCET_FLOOR_PER_S)
        for (node, port), rate in of_port.items():
            if rate > limit:
                message = f"{name} grows far faster than at the fleet's other ports"
                one = Found(
                    id=f"Rocet.{name}", target=port, classifications=(C.LINK,), message=message
                )
                findings[node].append(one)
    return {node: tuple(each[:ITEMS_MAX]) for node, each in findings.items()}


def per_second(looks: Sequence[Counters]) -> dict[str, float]:
    """Return growth per second between the last two readings; {} if they cannot be compared.

    A missing counter is not a zero, and one that fell began anew (NVSentinel's hygiene).
    """
    if len(looks) < 2 or looks[-2].boot != looks[-1].boot:
        return {}
    seconds = looks[-1].at - looks[-2].at
    if seconds <= 0:
        return {}
    old = looks[-2].values
    new = looks[-1].values
    return {
        name: (value - old[name]) / seconds
        for name, value in new.items()
        if name in old and value >= old[name]
    }


def fatal_growth(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Found, ...]:
    """Return counters of a metric report that grew although a healthy part does not count them.

    DSP0268: PCIeErrors.FatalErrorCount; UncorrectableECCErrorCount of processors and memory.
    """
    findings = []
    for name, value in sorted(after.items()):
        leaf = _leaf(name)
        if leaf in FATAL_COUNTERS and name in before and value > before[name]:
            message = f"{leaf} grew"
            both = (C.FATAL_EVENT, C.HARDWARE)
            findings.append(
                Found(id=leaf, target=name[-128:], classifications=both, message=message)
            )
    return tuple(findings[:ITEMS_MAX])


def fatal_counters(metrics: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the metrics of a report that `fatal_growth` compares; of a series the last value."""
    counters: dict[str, float] = {}
    for name, value in metrics:
        if _leaf(name) in FATAL_COUNTERS and (name in counters or len(counters) < FATAL_MAX):
            counters[name] = value
    return counters


def _leaf(name: str) -> str:
    return name.replace(".", "/").rsplit("/", 1)[-1]


def compute_growth(looks: Sequence[Counters], name: str) -> int | None:
    """Return the growth of one counter between the last two readings; None: not comparable."""
    if len(looks) < 2 or looks[-2].boot != looks[-1].boot:
        return None
    old = looks[-2].values.get(name)
    new = looks[-1].values.get(name)
    return new - old if old is not None and new is not None and new >= old else None


def _pausing(pair: Sequence[Counters]) -> bool:
    """Whether pause frames of a priority were sent, and no packet of any kind was received."""
    names = [n for n in pair[1].values if n.startswith("tx_prio") and n.endswith("_pause")]
    sent = any((compute_growth(pair, name) or 0) > 0 for name in names)
    return sent and compute_growth(pair, "rx_packets") == 0
