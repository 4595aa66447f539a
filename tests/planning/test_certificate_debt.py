"""Which nodes owe a new certificate: hosts in service without a valid one, and nothing else."""

from __future__ import annotations

import pytest
from certified_node import CERTIFICATE

from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.campaigns.release_drift import find_lapsed_certificates

NAME, NOW = "n1", CERTIFICATE.issued_at + 1.0
VALID = {NAME: CERTIFICATE}


def owed(kind: NodeKind, state: State, held: bool, revoked: bool, now: float) -> list[str]:
    """The reasons of a node's debt lines."""
    node = Node(id=NAME, kind=kind, state=state)
    refused = {CERTIFICATE.id} if revoked else set()
    return [
        line.version
        for line in find_lapsed_certificates([node], VALID if held else {}, refused, now)
    ]


@pytest.mark.parametrize(
    ("held", "revoked", "now", "reasons"),
    [
        (True, False, NOW, []),
        (False, False, NOW, ["none"]),
        (True, True, NOW, ["revoked"]),
        (True, False, CERTIFICATE.expires_at, ["expired"]),
    ],
)
def test_a_host_in_service_owes_a_certificate_that_is_not_valid(held, revoked, now, reasons):
    assert owed(NodeKind.HOST, State.RELEASED, held, revoked, now) == reasons


def test_a_switch_in_service_owes_none():
    assert owed(NodeKind.SWITCH, State.RELEASED, False, False, NOW) == []
    assert owed(NodeKind.SWITCH, State.RELEASED, True, False, CERTIFICATE.expires_at) == []


def test_a_host_that_serves_nobody_owes_none():
    for state in State:
        if state is not State.RELEASED:
            assert owed(NodeKind.HOST, state, False, False, NOW) == []
