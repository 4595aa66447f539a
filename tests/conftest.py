"""Properties are tried on the same examples in every run, so that CI never fails by chance.

`make soak` chooses the profile "soak" instead: ten times as many examples, new ones each time.
What it finds becomes an `@example` of its test.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# no deadline and no "too slow": they would judge the machine, not the code
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "soak",
    settings.get_profile("repeatable"),
    derandomize=False,
    max_examples=1000,
    print_blob=True,
)
settings.load_profile("repeatable")
