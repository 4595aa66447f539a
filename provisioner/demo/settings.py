"""A daemon's settings under a simulated site's fast clock."""

from __future__ import annotations

from provisioner.settings import Settings

DAY_S = 86400.0
PARTNERS_THERE = 5  # sound nodes and one broken: from here on everybody finds three partners
# a person who waits for a tenant is the first at its leaves, as at a real site's pace
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
DEVICE_LIMIT_S = 60.0  # of the wall, at least


def settings_of(nodes: int, speed: float) -> Settings:
    """For a site of so many hosts and a clock that runs `speed` times as fast.

    What is looked at often costs most of a real second. Tenants take every node at once, so that
    who comes late would find no partners: all are gathered for one session of gate C. Requests take
    real time, whatever the clock's speed: the windows in which they may be sent are kept, as are
    the limits of a browser's session, and a device, which is asked several times until it is where
    it should be, is given at least `DEVICE_LIMIT_S`.
    """
    settings = Settings(
        site="demo",
        poll_s=60.0,
        fresh_s=3600.0,
        switch_poll_s=10.0,
        watch_s=DAY_S,
        watch_ports_s=3600.0,
        certify_gates="abc" if nodes >= PARTNERS_THERE else "ab",
        fabric_gather_s=DAY_S,
        fabric_wait_s=DAY_S,
        fabric_session_limit_s=DAY_S,
    )
    kept = {
        name: min(getattr(settings, name) * speed, largest_value(name))
        for name in (*WINDOWS, *BROWSER_LIMITS)
    }
    waits = {n: max(getattr(settings, n), DEVICE_LIMIT_S * speed) for n in DEVICE_LIMITS}
    return settings.model_copy(update=kept | waits)


def largest_value(name: str) -> float:
    """Return the largest value that a settings file may give to a setting."""
    bounds = [rule.le for rule in Settings.model_fields[name].metadata if hasattr(rule, "le")]
    return min(bounds, default=float("inf"))
