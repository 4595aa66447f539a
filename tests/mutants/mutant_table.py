"""The critical functions, and the tests that judge each of them; mutants that change nothing.

A row's tests are those whose failure would tell an engineer what is wrong. `targets` are named
"module:function", "module:Class.method", "module:Class.*" or "module:*".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Functions that are judged by the same tests."""

    name: str
    targets: tuple[str, ...]
    tests: tuple[str, ...]  # files and folders, from the root
    select: str = ""  # of these, as pytest's -k


TABLE = (
    Row(
        "sending an action at most once",
        ("provisioner.execution.actions.once:*",),
        ("tests/simulation/test_once.py", "tests/simulation/test_once_open_intents.py"),
    ),
    Row(
        "the gate of a release",
        (
            "provisioner.planning.release.release_gate:*",
            "provisioner.planning.release.release_gate_routes:*",
            "provisioner.planning.release.release_ask:*",
            "provisioner.planning.release.release_proof:*",
            "provisioner.planning.release.port_isolation:*",
        ),
        (
            "tests/planning/test_release_rows.py",
            "tests/planning/test_release_rows_whole.py",
            "tests/planning/test_release_ask.py",
            "tests/planning/test_release_proof.py",
            "tests/planning/test_port_isolation.py",
        ),
    ),
    Row(
        "the order of a release and of a fence",
        (
            "provisioner.execution.tenancy.release_sequence:*",
            "provisioner.execution.tenancy.release_recheck:*",
            "provisioner.control.node.performer:Performer._fence",
            "provisioner.control.node.performer:Performer._release",
        ),
        ("tests/fabric",),
    ),
    Row(
        "where ports are, read back",
        (
            "provisioner.execution.tenancy.leaf:*",
            "provisioner.execution.tenancy.leaf_line:*",
            "provisioner.execution.tenancy.tenancy:*",
        ),
        (
            "tests/simulation/test_tenancy.py",
            "tests/fabric/test_release_sequence.py",
            "tests/fabric/test_fences.py",
        ),
    ),
    Row(
        "certification",
        (
            "provisioner.planning.certification.certification:*",
            "provisioner.planning.certification.gates:*",
        ),
        (
            "tests/planning/test_certification.py",
            "tests/planning/test_certificate_validity.py",
            "tests/planning/test_gates.py",
        ),
    ),
    Row(
        "epochs and fencing in the store",
        ("provisioner.store.rows.operation_rows:*",),
        ("tests/store/test_store_fencing.py", "tests/store/test_store_rows.py"),
        "not server and not threads and not file",  # what is written is the same on every database
    ),
    Row(
        "access",
        (
            "provisioner.access.identity:*",
            "provisioner.access.oidc:*",
            "provisioner.access.tokens:*",
            "provisioner.model.access:*",
        ),
        (
            "tests/api/test_identity.py",
            "tests/api/test_api_oidc.py",
        ),
    ),
)

# Mutants that no test can tell from the code, with the reason. They count as not killed.
EQUIVALENT: dict[str, str] = {
    "provisioner.planning.release.release_gate:judge: "
    "leaf is None or state is None => state is None": "without a leaf there is no state of a port",
    "provisioner.planning.release.release_gate_routes:_remainder: 0 in default=0 => 1": (
        "without a network of the node nothing is covered, however short a prefix is"
    ),
    "provisioner.planning.release.release_gate_routes:_remainder: network.prefixlen >= lengths and "
    "any((_covers(m, network) for m in mine)) => any((_covers(m, network) for m in mine))": (
        "no network covers a shorter prefix: the length is asked first because it is cheap"
    ),
    "provisioner.store.rows.operation_rows:open_operation: "
    "if _active_of(connection, node) is not None => False": (
        "the unique index decides as well; to look first spares the error in its log"
    ),
    "provisioner.store.rows.operation_rows:intend: entry.model_dump(mode='json') => no argument": (
        "a member of StrEnum is written as its text by either driver"
    ),
    "provisioner.store.rows.operation_rows:settle: settled.model_dump(mode='json') => no argument": (  # noqa: E501
        "a member of StrEnum is written as its text by either driver"
    ),
    "provisioner.store.rows.operation_rows:last_entry: 1 => 2": (
        "the first row is taken of however many are read"
    ),
}
