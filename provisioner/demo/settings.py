"""The daemon's settings under the fast clock of a simulated site."""

from __future__ import annotations

from provisioner.settings import Settings

DAY_S = 86400.0
PARTNERS_THERE = 5  # five sound nodes and a broken one: from here on each node finds three partners
# at this speed, too, a person who waits for a tenant is served first at its leaves
WINDOWS = ("send_window_s", "request_max_s", "release_settle_s", "tenant_settle_s")
BROWSER_LIMITS = ("api_session_h", "api_session_idle_s", "api_session_proof_s")
DEVICE_LIMITS = (
    "bmc_return_limit_s",
    "power_limit_s",
    "boot_limit_s",
    "switch_limit_s",
    "switch_drain_limit_s",
    "switch_settle_limit_s",
    "switch_apply_limit_s",
)
SWITCH_POLL_S = 10.0
SWITCH_POLL_REAL_S = 0.25  # at most; a fifth of it while a change is young
NODES_OF_HOST = 2  # with its share of leaves and spines
DEVICE_LIMIT_S = 60.0  # seconds of real time, at least


def choose_settings(nodes: int, speed: float) -> Settings:
    """Return settings for a site of so many hosts and a clock that runs `speed` times as fast.

    Frequent readings cost most of a real second. Tenants take every node at once, so that a late
    host would find no partners; all are gathered for one session of gate C. Requests take real time
    at any speed of the clock: the windows in which they may be sent are preserved, and so are the
    limits of a browser's session. A device that is polled until it reaches a state gets at least
    `DEVICE_LIMIT_S`. All nodes may be driven at once, and all devices have one address, this
    machine's.
    """
    settings = Settings(
        site="demo",
        poll_s=60.0,
        fresh_s=3600.0,
        switch_poll_s=min(SWITCH_POLL_S, SWITCH_POLL_REAL_S * speed),
        watch_s=DAY_S,
        watch_ports_s=3600.0,
        certify_gates="abc" if nodes >= PARTNERS_THERE else "ab",
        fabric_gather_s=DAY_S,
        fabric_wait_s=DAY_S,
        fabric_session_limit_s=DAY_S,
    )
    places = max(settings.operations_max, NODES_OF_HOST * nodes)
    crowd = {
        "operations_max": int(min(places, largest_value("operations_max"))),
        "artifacts_connections_per_peer": settings.artifacts_connections_max,
    }
    preserved = {
        name: min(getattr(settings, name) * speed, largest_value(name))
        for name in (*WINDOWS, *BROWSER_LIMITS)
    }
    waits = {n: max(getattr(settings, n), DEVICE_LIMIT_S * speed) for n in DEVICE_LIMITS}
    return settings.model_copy(update=preserved | waits | crowd)


def largest_value(name: str) -> float:
    """Return the largest value that a settings file may give to a setting."""
    bounds = [rule.le for rule in Settings.model_fields[name].metadata if hasattr(rule, "le")]
    return min(bounds, default=float("inf"))
