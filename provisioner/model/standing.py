"""The conditions under which a node may be released to its tenant, as last read."""

from __future__ import annotations

from provisioner.model.base import Record


class ReleaseConditions(Record):
    """Conditions of a handover: it is recorded only if all still hold in the recording
    transaction.
    """

    certificate: str  # id; it must be neither revoked nor expired
    inventory: str  # identity of the installed parts (`planning/certification/certification.py`)
    tenant: str
    vrf: str  # the tenant's network
