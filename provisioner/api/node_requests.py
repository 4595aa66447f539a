"""The bodies of requests on a node."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record


class Retry(Record):
    """The body of a retry."""

    new_board: bool = Field(
        default=False, description="Its board was exchanged: enrol the TPM anew."
    )


class Reclaim(Record):
    """The body of a reclaim."""

    for_repair: bool = Field(
        default=False, description="It goes back to the same tenant when it is well."
    )
    accept_no_return: bool = Field(
        default=False, description="Also if it could not serve again once it is erased."
    )
