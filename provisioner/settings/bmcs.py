"""Settings of what BMCs keep beside firmware: their time."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from provisioner.model.base import Record

NtpServer = Annotated[str, Field(max_length=253, pattern=r"^[0-9A-Za-z]([0-9A-Za-z.:-]*)$")]


class BmcSettings(Record):
    """Part of `Settings`."""

    bmc_ntp_servers: tuple[NtpServer, ...] = Field(
        (),
        max_length=4,
        description="Time servers that BMCs are given at intake, by name or address; none: their "
        "time is left alone. A BMC without NTP gets our time once.",
    )
    bmc_skew_limit_s: float = Field(
        60.0,
        ge=5,
        le=86400,
        description="Largest difference between a BMC's clock and ours without an alert.",
    )
