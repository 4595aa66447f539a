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
    tenant_data: str = Field(
        default="",
        pattern="^(keep|erase)?$",
        description="Of a node that was taken back because its ports were read elsewhere: `keep` "
        "its tenant's data, which the tenant has agreed to, or `erase` it.",
    )


class Reclaim(Record):
    """The body of a reclaim."""

    for_repair: bool = Field(
        default=False, description="It goes back to the same tenant when it is well."
    )
    accept_no_return: bool = Field(
        default=False, description="Also if it could not serve again once it is erased."
    )
