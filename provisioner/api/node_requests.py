"""The bodies of requests on a node."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record


class Retry(Record):
    """The body of a retry."""

    new_board: bool = Field(
        default=False, description="Its board was exchanged: enrol the TPM anew."
    )
    admit_tpm: str = Field(
        default="",
        pattern="^([0-9a-f]{64})?$",
        description="You vouch for the TPM with this key (SHA-256), which no pinned maker does.",
    )


class Reclaim(Record):
    """The body of a reclaim."""

    for_repair: bool = Field(
        default=False, description="It goes back to the same tenant when it is well."
    )
    accept_no_return: bool = Field(
        default=False, description="Also if it could not serve again once it is erased."
    )
