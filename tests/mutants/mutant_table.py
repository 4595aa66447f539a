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
        tuple(
            f"provisioner.execution.actions.once:{name}"
            for name in ("once", "_send", "_too_late", "_answered", "_resolve", "_BEFORE_SENDING")
        ),
        (
            "tests/simulation/test_once.py",
            "tests/simulation/test_once_open_intents.py",
            "tests/simulation/test_act_gate.py",
        ),
    ),
    Row(
        "the gate of a release",
        (
            "provisioner.planning.release.release_gate:*",
            "provisioner.planning.release.release_gate_routes:*",
            "provisioner.planning.release.release_probes:*",
            "provisioner.planning.release.port_isolation:*",
        ),
        (
            "tests/planning/test_release_rows.py",
            "tests/planning/test_release_rows_whole.py",
            "tests/planning/test_release_groups.py",
            "tests/planning/test_release_ask.py",
            "tests/planning/test_release_proof.py",
            "tests/planning/test_release_packets.py",
            "tests/planning/test_port_isolation.py",
            "tests/fabric/test_release_probe_sets.py",
            "tests/fabric/test_release_sequence.py",
        ),
    ),
    Row(
        "the order of a release",
        (
            "provisioner.execution.tenancy.release_sequence:*",
            "provisioner.execution.tenancy.release_recheck:*",
        ),
        (
            "tests/fabric/test_release_order.py",
            "tests/fabric/test_release_parts.py",
            "tests/fabric/test_release_recheck.py",
            "tests/fabric/test_release_probe_sets.py",
            "tests/fabric/test_release_probed_again.py",
            "tests/fabric/test_cables_at_intake.py",
            "tests/fabric/test_release_elsewhere.py",
            "tests/fabric/test_hosts_apart.py",
            "tests/watch/test_apart_watch.py",
            "tests/tenants/test_keeper.py",
            "tests/storage/test_storage_moves.py",
        ),
    ),
    Row(
        "fences and handovers",
        (
            "provisioner.control.node.performer:Performer._fence",
            "provisioner.control.node.performer:Performer._record_fence",
            "provisioner.control.node.performer:Performer._release",
            "provisioner.control.node.performer:Performer._standing",
            "provisioner.control.node.performer:Performer._release_refused",
        ),
        (
            "tests/fabric/test_handovers.py",
            "tests/fabric/test_fences.py",
            "tests/simulation/test_release_standing.py",
        ),
    ),
    Row(
        "where ports are, read back",
        (
            "provisioner.execution.tenancy.leaf:*",
            "provisioner.execution.actions.reach:*",
            "provisioner.integrations.cumulus.port_reading:*",
        ),
        (
            "tests/switches/test_leaf_moves.py",
            "tests/switches/test_leaf_batches.py",
            "tests/switches/test_leaf_reading.py",
            "tests/switches/test_leaf_filters.py",
            "tests/switches/test_leaf_waiters.py",
            "tests/switches/test_leaf_descriptions.py",
            "tests/switches/test_switch_systems.py",
            "tests/fabric/test_bonds_made.py",
            "tests/tenants/test_security_groups.py",
            "tests/simulation/test_switch_turns.py",
            "tests/sim/test_reaching_bmcs.py",
            "tests/tenants/test_factory_passwords.py",
        ),
    ),
    Row(
        "ports of a node moved and read",
        ("provisioner.execution.tenancy.tenancy:*",),
        (
            "tests/switches/test_small_tenancy.py",
            "tests/switches/test_small_quiet.py",
            "tests/switches/test_small_fence.py",
            "tests/switches/test_port_descriptions.py",
            "tests/fabric/test_cables_at_intake.py",
            "tests/tenants/test_security_groups.py",
            "tests/storage/test_storage_moves.py",
        ),
    ),
    Row(
        "acts that nothing undoes",
        (
            "provisioner.planning.lifecycle.destruction:*",
            "provisioner.execution.actions.once:_OF_CASES",
            "provisioner.execution.actions.once:pass_gate",
            "provisioner.execution.actions.once:pass_login_gate",
            "provisioner.execution.actions.once:is_stored",
        ),
        ("tests/planning/test_destruction.py", "tests/simulation/test_act_gate.py"),
    ),
    Row(
        "certification",
        ("provisioner.planning.certification.certification:*",),
        (
            "tests/planning/test_certification.py",
            "tests/planning/test_certificate_validity.py",
            "tests/planning/test_gates.py",
        ),
    ),
    Row(
        "epochs and fencing in the store",
        ("provisioner.store.rows.operation_rows:*",),
        (
            "tests/store/test_store_fencing.py",
            "tests/store/test_store_handover.py",
            "tests/store/test_store_rows.py",
        ),
        "not server and not threads and not file",  # what is written is the same on every database
    ),
    Row(
        "access",
        (
            "provisioner.access.identity:*",
            "provisioner.access.oidc:*",
            "provisioner.access.sessions:*",
            "provisioner.access.tokens:*",
            "provisioner.model.access:*",
        ),
        (
            "tests/api/test_identity.py",
            "tests/api/test_api_oidc.py",
            "tests/api/test_oidc_keys.py",
            "tests/api/test_oidc_sign_in.py",
            "tests/api/test_session_rules.py",
            "tests/api/test_api_scopes.py",
        ),
    ),
)

# Mutants that no test can tell from the code, with the reason. They count as not killed.
EQUIVALENT: dict[str, str] = {
    "provisioner.planning.release.release_gate_routes:_remainder: 0 in default=0 => 1": (
        "without a network of the node nothing is covered, however short a prefix is"
    ),
    "provisioner.planning.release.release_gate_routes:_remainder: network.prefixlen >= lengths and "
    "any((_covers(m, network) for m in mine)) => any((_covers(m, network) for m in mine))": (
        "no network covers a shorter prefix: the length is asked first because it is cheap"
    ),
    "provisioner.planning.release.release_probes:render_canonical: "
    "proof.model_dump(mode='json') => no argument": (
        "its values are texts, numbers, tuples and members of StrEnum: both modes write them alike"
    ),
    "provisioner.planning.release.release_probes:certificate_digest: "
    "certificate.model_dump(mode='json') => no argument": (
        "its values are texts, numbers and tuples: both modes write them alike"
    ),
    "provisioner.planning.release.release_probes:_literal: "
    "urlsplit(url).hostname or '' => urlsplit(url).hostname": (
        "neither nothing nor an empty text is an address"
    ),
    "provisioner.execution.tenancy.release_recheck:Rechecks.find_miscablings: "
    "'' in vendor='' => 'X'": ("cables are compared by the slots of the cards, not by the vendor"),
    "provisioner.execution.tenancy.release_recheck:_sent: zip(strict=False) => no argument": (
        "it is what zip does without the argument"
    ),
    "provisioner.access.oidc:OidcProvider.__init__: -KEYS_FRESH_S => KEYS_FRESH_S": (
        "until keys were fetched there is none that could be believed"
    ),
    "provisioner.access.oidc:OidcProvider.verify_token: "
    "jwt.decode(algorithms=[key.algorithm_name]) => no argument": (
        "PyJWT itself takes a PyJWK's algorithm and no other one; here it is said a second time"
    ),
    "provisioner.execution.tenancy.leaf:Leaf._write: if waiting.done.done() => False": (
        "a waiter that gave up has no moves, so that a turn of its own asks for nothing"
    ),
    "provisioner.execution.tenancy.leaf:Leaf._write: "
    "if isinstance(error, asyncio.CancelledError) => False": (
        "a future with CancelledError as its exception ends its waiters as a cancelled one does"
    ),
    "provisioner.execution.tenancy.leaf:Leaf._write: "
    "if isinstance(error, asyncio.CancelledError) => True #2": (
        "nobody awaits the writer after an error of ours: only the log has it twice"
    ),
    "provisioner.execution.tenancy.leaf:Leaf._write: self._waiting.clear() => pass": (
        "those who wait have their answers then, and are passed over by the next writer"
    ),
    "provisioner.execution.tenancy.release_recheck:Rechecks.find_miscablings: "
    "if not faults => False": "of no faults none is selected; all nodes are not read for that",
    "provisioner.store.rows.operation_rows:_check_standing: "
    "certificate is None or evidence_rows.revoked(connection, name) => "
    "evidence_rows.revoked(connection, name)": (
        "a certificate that is not in the store counts as revoked there too"
    ),
    "provisioner.execution.tenancy.tenancy:sort_by_switch: 0 in p[0] => 1 #2": (
        "a move has the interface of its port, which stands beside it"
    ),
    "provisioner.execution.tenancy.tenancy:plan_move: "
    "'' in '' if node is None else node.id => 'X'": ("no group lists a node by either name"),
    "provisioner.store.rows.operation_rows:open_operation: "
    "if _active_of(connection, node) is not None => False": (
        "the unique index decides as well; to look first spares the error in its log"
    ),
    "provisioner.store.rows.operation_rows:intend: entry.model_dump(mode='json') => no argument": (
        "a member of StrEnum is written as its text by either driver"
    ),
    "provisioner.store.rows.operation_rows:_LAST_ATTEMPT: 1 => 2": (
        "the first row is taken of however many are read"
    ),
    "provisioner.store.rows.operation_rows:settle: entry.model_dump(mode='json') => no argument": (
        "a member of StrEnum is written as its text by either driver"
    ),
    "provisioner.store.rows.operation_rows:settle: settled.model_dump(mode='json') => no argument": (  # noqa: E501
        "a member of StrEnum is written as its text by either driver"
    ),
}

# `strict` of a zip whose lists have one length by their making: gather answers each request.
_ZIPS = (
    "execution.tenancy.tenancy:_answers",
    "execution.tenancy.tenancy:sort_by_switch",
    "execution.tenancy.release_sequence:HostsApart.rows",
    "execution.tenancy.release_recheck:TenantSessions.missing",
    "integrations.cumulus.port_reading:read_filter_state",
)
_OF_ZIP = ("zip(strict=True) => no argument", "True in strict=True => False")
EQUIVALENT |= {
    f"provisioner.{function}: {change}": "the lists have one length by making"
    for function in _ZIPS
    for change in _OF_ZIP
}
EQUIVALENT |= {
    f"provisioner.{_ZIPS[-1]}: {change} #2": "the lists have one length by making"
    for change in _OF_ZIP
}

# Needs of a case that are judged together: an act of the table has both of a pair or neither.
EQUIVALENT |= {
    f"provisioner.execution.actions.once:_OF_CASES: {change}": "each act has its other need too"
    for change in (
        *(
            f"{{Need.GROUND, Need.FEW, Need.ORDERED, Need.CLEAN}} => without Need.{name}"
            for name in ("GROUND", "FEW", "ORDERED", "CLEAN")
        ),
        "Need.GROUND => Need.FEW",
        "Need.ORDERED => Need.CLEAN",
    )
}
