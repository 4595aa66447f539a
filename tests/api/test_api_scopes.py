"""Roles for a part of the site: racks, releases, tenants; what they cover, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from served import ELSEWHERE, NOW, Served, run

from provisioner.access.identity import read_claims
from provisioner.access.sessions import caller_of_session, new_session
from provisioner.access.tokens import new_token
from provisioner.api.scopes import CONCERNS, find_scope_blockers
from provisioner.model.access import (
    Bound,
    Caller,
    ChangeKind,
    ChangeRequest,
    Concern,
    Role,
    Scope,
    SessionLimits,
    find_uncovered,
)
from provisioner.model.input_error import InputError

RED_IN_1 = Concern(name="n1", rack="su0-rack1", release="sx-1.3.0", tenant="red")
FREE = Concern(name="n2", rack="su0-rack1", release="sx-1.3.0", tenant="")
ANY = Concern(name="the whole site")
RACK1 = Scope(racks=("su0-rack1",))
RED = Scope(tenants=("red",))
# acts of the whole site: a role with a scope makes none of them
SITE_WIDE = frozenset(
    {
        ChangeKind.POLICY_PUT,
        ChangeKind.POLICY_DELETE,
        ChangeKind.IMAGE_PUT,  # any node of the site may be given it
        ChangeKind.IMAGE_DESCRIBE,
        ChangeKind.IMAGE_DELETE,
        ChangeKind.NODE_INTAKE,  # a list of hardware has any rack
        ChangeKind.NODE_ADOPT,
        ChangeKind.CAPABILITY_GRANT,  # how far the daemon may go is the site's decision
        ChangeKind.CAPABILITY_WITHDRAW,
        ChangeKind.WEBHOOK_ADD,
        ChangeKind.WEBHOOK_SET,
        ChangeKind.WEBHOOK_REMOVE,
        ChangeKind.WEBHOOK_AGAIN,
        ChangeKind.WEBHOOK_DROP,
        ChangeKind.WEBHOOK_PAUSE,
        ChangeKind.WEBHOOK_RESUME,
        ChangeKind.WEBHOOK_ROTATE,
        ChangeKind.RECOVERY_SETTLE,
        ChangeKind.RECOVERY_FINISH,
        ChangeKind.CLOCK_ACCEPT,
        ChangeKind.MATRIX_RELOAD,
        ChangeKind.KEY_ROTATE,
        ChangeKind.FACTORY_KEEP,
        ChangeKind.TOKEN_CREATE,  # or a role would give itself a wider scope
        ChangeKind.TOKEN_REVOKE,
        ChangeKind.SESSION_END,
        ChangeKind.AUDIT_ARCHIVE,
        ChangeKind.AUDIT_PRUNE,
        ChangeKind.BUNDLE_SEAL,
    }
)


@pytest.mark.parametrize(
    ("scopes", "concerns", "outside"),
    [
        ((), (RED_IN_1, ANY), ()),
        ((RACK1,), (RED_IN_1, FREE), ()),
        ((RACK1,), (ANY,), (ANY,)),
        ((RED,), (RED_IN_1, FREE), (FREE,)),
        ((Scope(tenants=("*",)),), (FREE,), (FREE,)),  # a node of no tenant is nobody's
        ((Scope(racks=("su0-*",), tenants=("red",)),), (RED_IN_1,), ()),
        ((Scope(racks=("su1-*",), tenants=("red",)),), (RED_IN_1,), (RED_IN_1,)),
        ((Scope(racks=("su1-*", "su0-*")),), (RED_IN_1,), ()),
        ((Scope(releases=("sx-2.*",)),), (RED_IN_1,), (RED_IN_1,)),
        ((Scope(racks=("su1-*",)), RED), (RED_IN_1, FREE), (FREE,)),
    ],
)
def test_a_scope_covers_what_each_of_its_lists_names(
    scopes: tuple[Scope, ...], concerns: tuple[Concern, ...], outside: tuple[Concern, ...]
) -> None:
    assert find_uncovered(scopes, concerns) == outside


@pytest.mark.parametrize(
    ("claims", "roles", "bounds"),
    [
        ({"operator"}, {"operator"}, {}),
        ({"operator@rack=su0-*"}, {"operator"}, {"operator": ["rack su0-*"]}),
        (
            {"operator@rack=a,rack=b,tenant=red", "operator@release=sx-2.*", "viewer"},
            {"operator", "viewer"},
            {"operator": ["rack a or b and tenant red", "release sx-2.*"]},
        ),
        ({"operator", "operator@rack=a"}, {"operator"}, {}),  # the wider one holds
        ({"approver@tenant=red"}, {"approver"}, {"approver": ["tenant red"]}),
        ({"operator@"}, set(), {}),
        ({"operator@rak=a"}, set(), {}),
        ({"operator@rack="}, set(), {}),
        ({"operator@rack=a b"}, set(), {}),
        ({"operator@rack=a,"}, set(), {}),
        ({"viewer@rack=a"}, set(), {}),
        ({"tenant@rack=a"}, set(), {}),
    ],
)
def test_a_claim_names_a_role_and_its_scope_or_gives_none(
    claims: set[str], roles: set[str], bounds: dict[str, list[str]]
) -> None:
    held, read = read_claims(frozenset(claims))
    shown: dict[str, list[str]] = {}
    for bound in read:
        shown.setdefault(bound.role.value, []).append(str(bound.scope))

    assert ({r.value for r in held}, shown) == (roles, bounds)


def test_one_role_may_be_for_the_site_and_another_for_a_part() -> None:
    caller = Caller(
        subject="ada",
        roles=frozenset({Role.OPERATOR, Role.APPROVER}),
        bounds=(Bound(role=Role.OPERATOR, scope=RACK1),),
    )

    assert caller.list_scopes(frozenset({Role.OPERATOR})) == (RACK1,)
    assert caller.list_scopes(frozenset({Role.APPROVER})) == ()
    assert caller.list_scopes(frozenset({Role.OPERATOR, Role.APPROVER})) == ()


def test_only_the_scopes_of_roles_that_are_held_and_asked_for_count() -> None:
    bounds = {Role.OPERATOR: RACK1, Role.APPROVER: RED}
    caller = Caller(
        subject="ada",
        roles=frozenset(bounds),
        bounds=tuple(Bound(role=role, scope=scope) for role, scope in bounds.items()),
    )

    assert caller.list_scopes(frozenset({Role.OPERATOR, Role.TENANT})) == (RACK1,)
    assert caller.list_scopes(frozenset({Role.APPROVER})) == (RED,)
    assert caller.list_scopes(frozenset(bounds)) == (RACK1, RED)


def test_a_scope_says_what_it_is_for() -> None:
    both = Scope(racks=("a", "b"), tenants=("red",))

    assert (str(Scope()), str(both)) == ("the whole site", "rack a or b and tenant red")


@pytest.mark.parametrize("role", [Role.VIEWER, Role.TENANT])
def test_a_token_that_changes_nothing_of_the_site_takes_no_scope(role: Role) -> None:
    tenant = "red" if role is Role.TENANT else ""

    with pytest.raises(InputError) as refused:
        new_token("ada", role, tenant, 1.0, NOW, RACK1)

    assert refused.value.source == "--role"


@pytest.mark.parametrize("local", [True, False])
def test_a_browsers_session_has_the_scopes_of_its_sign_in(local: bool) -> None:
    limits = SessionLimits(whole_s=600.0, idle_s=600.0, proof_s=60.0, per_person=2)
    _, token = new_token("ada", Role.OPERATOR, "", 1.0, NOW, RACK1)
    bounds = (Bound(role=Role.OPERATOR, scope=RACK1),)
    signed_in = Caller(
        subject="ada",
        roles=frozenset({Role.OPERATOR}),
        bounds=bounds,
        token=token.id if local else "",
        issuer="" if local else "https://login",
    )
    _, session = new_session(signed_in, limits, NOW)
    caller = caller_of_session(session, token if local else None, limits, "https://login", NOW)

    assert caller is not None
    assert caller.bounds == bounds


def test_every_kind_of_change_has_its_concerns_or_is_the_whole_sites() -> None:
    assert CONCERNS.keys() | SITE_WIDE == set(ChangeKind)
    assert not CONCERNS.keys() & SITE_WIDE


def test_no_kind_of_change_is_carried_out_elsewhere() -> None:
    words: dict[str, Any] = {
        "reason": "check_failed",
        "unblock": "Reseat it.",
        "select": "all",
        "release": "spectrum-x-1.3.0",
        "node": "su0-n01",
        "scope": "node",
        "name": "su0-n01",
        "nodes": ["su0-n01"],
        "logins": ["su0-n03/host"],
        "racks": [],
    }

    async def scenario(served: Served) -> None:
        draft = {"release": "spectrum-x-2.1.2", "select": "all"}
        await served.ask("operator", "POST", "/campaigns", draft)
        subjects = ("su0-n01", "leaf-su0-r0", "cert-su0-n01", "c0001", "su0-rack1", "red", "gone")
        for kind in ChangeKind:
            for subject in subjects:
                asked = ChangeRequest(
                    kind=kind,
                    subject=subject,
                    arguments=words,
                    scopes=(ELSEWHERE,),
                    asked_by="ada",
                    asked_at=NOW,
                )
                blockers = await find_scope_blockers(served.parts, asked)

                assert blockers, (kind, subject)

    run(scenario)


def test_a_role_for_a_rack_changes_that_rack_and_no_other() -> None:
    async def scenario(served: Served) -> None:
        for node, expected in (("su0-n01", 200), ("su0-n02", 403), ("leaf-su0-r0", 403)):
            status, told = await served.ask(
                "operator-rack1", "PUT", f"/nodes/{node}/tags", {"tags": ["loan"]}
            )
            assert status == expected, told
        # a leaf serves hosts of other racks, so that its own rack is not enough
        assert "su0-n02" in told["detail"]
        status, told = await served.ask(
            "operator-rack1", "POST", "/campaigns", {"release": "spectrum-x-2.1.2",
                                                     "select": "rack=su0-rack1 and kind=host"}
        )  # fmt: skip
        assert status == 200, told
        status, told = await served.ask(
            "operator-rack1", "POST", "/campaigns", {"release": "spectrum-x-2.1.2",
                                                     "select": "kind=host"}
        )  # fmt: skip
        assert (status, told["type"]) == (403, "urn:provisioner:problem:scope")
        assert (await served.ask("operator-rack1", "GET", "/nodes"))[1]["total"] == 7

    run(scenario)


def test_a_role_for_a_tenant_or_a_release_changes_what_is_theirs() -> None:
    async def scenario(served: Served) -> None:
        tags = {"tags": ["loan"]}
        for who, node, expected in (
            ("operator-red", "su0-n01", 200),
            ("operator-red", "su0-n03", 403),
            ("operator-red", "su0-n04", 403),
            ("operator-release", "su0-n01", 403),
        ):
            status, told = await served.ask(who, "PUT", f"/nodes/{node}/tags", tags)
            assert status == expected, (who, node, told)
        for who, release, expected in (
            ("operator-release", "spectrum-x-2.1.2", 200),
            ("operator-release", "spectrum-x-1.3.0", 403),
            ("operator-red", "spectrum-x-2.1.2", 403),
        ):
            draft = {"release": release, "select": "kind=host"}
            status, told = await served.ask(who, "POST", "/campaigns", draft)
            assert status == expected, (who, release, told)
        status, told = await served.ask("operator-red", "PATCH", "/tenants/blue", {"nodes": 2})
        assert (status, told["unblock"][:46]) == (
            403,
            "Ask a person whose role is for tenant blue, or",
        )

    run(scenario)


def test_a_bulk_retry_leaves_out_the_nodes_of_others() -> None:
    async def scenario(served: Served) -> None:
        group = {"reason": "check_failed", "unblock": "Reseat it."}
        status, told = await served.ask("operator-red", "POST", "/blocked/retry", group)
        assert (status, told["type"]) == (403, "urn:provisioner:problem:scope")
        status, told = await served.ask("operator-rack1", "POST", "/blocked/retry", group)
        assert (status, told["result"]["retried"]) == (200, 1), told

    run(scenario)


def test_a_request_that_waited_is_compared_again_when_it_is_carried_out() -> None:
    async def scenario(served: Served) -> None:
        body = {"tags": ["loan"]}
        status, told = await served.ask("operator-red", "PUT", "/nodes/su0-n01/tags", body)
        assert (status, told["state"]) == (202, "waiting"), told
        node = await served.store.nodes.get("su0-n01")
        assert node is not None
        await served.store.nodes.save(node.model_copy(update={"tenant": "blue"}))
        path = f"/requests/{told['id']}/approve"
        status, told = await served.ask("approver-elsewhere", "POST", path, {"note": "yes"})
        assert (status, told["type"]) == (403, "urn:provisioner:problem:scope")
        status, told = await served.ask("approver", "POST", path, {"note": "yes"})
        assert status == 409
        assert "the role is for tenant red" in told["detail"]
        node = await served.store.nodes.get("su0-n01")
        assert node is not None
        assert node.tags == ()

    run(scenario, api_four_eyes=["node.tag"])


def test_a_tokens_scope_is_made_listed_and_shown_to_its_holder() -> None:
    async def scenario(served: Served) -> None:
        body = {"sha256": "0" * 64, "subject": "bob", "role": "operator", "racks": ["su0-*"]}
        assert (await served.ask("operator", "POST", "/tokens", body))[0] == 200
        _, listed = await served.ask("viewer", "GET", "/tokens")
        scopes = {t["subject"]: t["scope"]["racks"] for t in listed["items"]}
        assert (scopes["bob"], scopes["operator@example"]) == (["su0-*"], [])
        _, me = await served.ask("operator-rack1", "GET", "/me")
        assert me["bounds"] == [
            {"role": "operator", "scope": {"racks": ["su0-rack1"], "releases": [], "tenants": []}}
        ]
        for wrong in ({"role": "viewer"}, {"racks": ["a,b"]}):
            status, told = await served.ask("operator", "POST", "/tokens", {**body, **wrong})
            assert status == 400, told

    run(scenario)
