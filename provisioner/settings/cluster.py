"""Settings of several daemons on one database: a part of `Settings`."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record


class ClusterSettings(Record):
    """Used only with `--database`: one daemon with its own file has no peers."""

    lease_s: float = Field(
        10.0,
        ge=1.0,
        le=120.0,
        description="A daemon without a heartbeat in the database for this long loses its lease; "
        "it stops acting after three quarters of it.",
    )
    database_wait_max_s: float = Field(
        60.0,
        ge=10.0,
        le=3600.0,
        description="A daemon that has waited this long for one transaction of a PostgreSQL "
        "database ends with its reason, and is started again. It is reported after 5 s.",
    )
    clock_difference_max_s: float = Field(
        30.0,
        ge=1.0,
        le=600.0,
        description="A daemon whose machine's clock is further from the database's than this is "
        "refused at its start, and ends. It is reported above a second.",
    )
