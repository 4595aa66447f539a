"""The conditions under which a node may be handed to its tenant, as they were read last."""

from __future__ import annotations

from provisioner.model.base import Record


class Standing(Record):
    """A handover is recorded only if all of this still holds in the transaction that records it."""

    certificate: str  # id; it must be neither revoked nor expired
    inventory: str  # identity of what is installed (`planning/certification/certification.py`)
    tenant: str
    vrf: str  # the tenant's network
