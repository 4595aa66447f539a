"""Tokens of an OIDC provider: whose keys, which claims, and what is never believed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import jwt
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from provisioner.access.oidc import ALGORITHMS, DOCUMENT_MAX, OidcProvider, OidcSite
from provisioner.model.access import Role
from provisioner.model.input_error import InputError

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
STRANGER = ec.generate_private_key(ec.SECP256R1())


class Provider:
    """A provider on loopback; `keys` may change, `asked` counts how often they were fetched."""

    def __init__(self) -> None:
        self.issuer, self.asked, self.silent = "", 0, False
        self.discovered: dict[str, str] = {}
        self.connections: set[Any] = set()
        self.forms_elsewhere = 0  # posted to where the token endpoint points
        self.now = time.time()
        self.keys = [
            jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True) | {"kid": "r"},
            jwt.algorithms.ECAlgorithm.to_jwk(EC.public_key(), as_dict=True) | {"kid": "e"},
            {"kty": "oct", "k": "c2VjcmV0" * 8, "kid": "s", "alg": "HS256"},
            {"kty": "nonsense", "kid": "n"},
        ]

    def application(self) -> web.Application:
        async def discovery(_request: web.Request) -> web.Response:
            if self.silent:
                raise web.HTTPServiceUnavailable
            told = {"issuer": self.issuer, "jwks_uri": self.issuer + "/keys"}
            return web.json_response(told | self.discovered)

        async def listed(_request: web.Request) -> web.Response:
            return web.json_response(self.keys)

        async def moved(_request: web.Request) -> web.Response:
            raise web.HTTPFound("/keys")

        async def points_elsewhere(_request: web.Request) -> web.Response:
            raise web.HTTPTemporaryRedirect("/elsewhere")  # a form is posted again there

        async def elsewhere(_request: web.Request) -> web.Response:
            self.forms_elsewhere += 1
            return web.json_response({})

        async def shows_headers(request: web.Request) -> web.Response:
            return web.json_response(dict(request.headers))

        async def padded(request: web.Request) -> web.Response:
            size = DOCUMENT_MAX + int(request.query["more"])
            return web.Response(text=json.dumps({"keys": self.keys}).ljust(size))

        async def broken(_request: web.Request) -> web.Response:
            return web.json_response({"keys": self.keys}, status=500)

        async def endless(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse()
            await answer.prepare(request)
            while True:
                await answer.write(b" " * DOCUMENT_MAX)

        async def keys(request: web.Request) -> web.Response:
            self.asked += 1
            self.connections.add(request.transport)
            return web.json_response({"keys": self.keys})

        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", discovery)
        app.router.add_get("/keys", keys)
        app.router.add_get("/list", listed)
        app.router.add_get("/moved", moved)
        app.router.add_get("/padded", padded)
        app.router.add_get("/broken", broken)
        app.router.add_get("/endless", endless)
        app.router.add_post("/token", points_elsewhere)
        app.router.add_post("/elsewhere", elsewhere)
        app.router.add_post("/headers", shows_headers)
        return app

    def token(self, key: Any = EC, kid: str = "e", algorithm: str = "ES256", **claims: Any) -> str:
        now = int(time.time())
        said = {"iss": self.issuer, "aud": "provisioner", "sub": "ada", "iat": now,
                "exp": now + 60, "roles": ["operator", "approver"], **claims}  # fmt: skip
        said = {k: v for k, v in said.items() if v is not None}
        return jwt.encode(said, key, algorithm=algorithm, headers={"kid": kid})


def run(scenario: Callable[[Provider, OidcProvider], Awaitable[None]], **more: Any) -> None:
    async def bounded() -> None:
        provider = Provider()
        async with asyncio.timeout(30), TestServer(provider.application()) as server:
            provider.issuer = str(server.make_url("")).rstrip("/")
            ours = OidcProvider(
                OidcSite(provider.issuer, "provisioner", **more), lambda: provider.now
            )
            try:
                await scenario(provider, ours)
            finally:
                await ours.close()
                assert ours._session is None or ours._session.closed

    asyncio.run(bounded())


def test_a_good_token_names_a_caller_and_keys_are_fetched_once():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        for _ in range(3):
            caller = await ours.identify_caller(provider.token())
            assert caller is not None
            assert (caller.subject, caller.roles) == ("ada", {Role.OPERATOR, Role.APPROVER})
        rs = await ours.identify_caller(provider.token(RSA, "r", "RS256", roles="viewer other"))
        assert rs is not None
        assert rs.roles == {Role.VIEWER}
        assert provider.asked == 1

    run(scenario)


def test_a_caller_has_every_name_by_which_a_directory_may_know_it():
    names = {"oid": "o-1", "preferred_username": "ada@x", "upn": "ada@y", "email": "ada@z"}

    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        full = await ours.identify_caller(provider.token(**names, nickname="countess"))
        odd = await ours.identify_caller(provider.token(oid=7, upn="", email="e" * 300))
        assert full is not None
        assert odd is not None
        assert full.also == tuple(names.values())
        assert odd.also == ("e" * 200,)

    run(scenario)


def test_what_is_not_wholly_right_is_nobody():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        now = int(time.time())
        header = jwt.encode({"sub": "ada"}, "", algorithm="none")
        wrong = {
            "another signer": provider.token(STRANGER),
            "another audience": provider.token(aud="billing"),
            "another issuer": provider.token(iss="https://evil.example"),
            "expired": provider.token(exp=now - 120),
            "not yet": provider.token(nbf=now + 600),
            "without an end": provider.token(exp=None),
            "without a subject": provider.token(sub=None),
            "without a role": provider.token(roles=["cook"]),
            "roles of a strange kind": provider.token(roles={"operator": True}),
            "a tenant without a name": provider.token(roles=["tenant"]),
            "a tenant that is staff": provider.token(roles=["tenant", "viewer"], tenant="red"),
            "a shared secret": provider.token("secret" * 8, "s", "HS256"),
            "no signature": header,
            "no token": "a.b.c",
            "deep": "W1tb" * 1000 + ".e30.",
        }
        for why, token in wrong.items():
            assert await ours.identify_caller(token) is None, why
        tenant = await ours.identify_caller(provider.token(roles=["tenant"], tenant="red"))
        assert tenant is not None
        assert (tenant.tenant, tenant.staff) == ("red", False)

    run(scenario)


def test_the_one_key_of_a_provider_needs_no_name():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        unnamed = {k: v for k, v in provider.keys[1].items() if k != "kid"}
        provider.keys = [
            "no key",
            provider.keys[0] | {"use": "enc"},
            unnamed | {"use": "sig", "kid": "only"},
        ]
        assert await ours.identify_caller(provider.token(kid="")) is not None
        assert await ours.identify_caller(provider.token(kid="e")) is None
        assert await ours.identify_caller(provider.token(RSA, "r", "RS256")) is None

    run(scenario)


def test_of_several_keys_none_is_taken_without_a_name():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        assert await ours.identify_caller(provider.token(kid="")) is None
        assert (
            await ours.identify_caller(provider.token(RSA, "e", "RS256")) is None
        )  # the name of another key

    run(scenario)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_key_signs_by_the_algorithm_that_its_provider_names(name: str):
    curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1()}
    key: Any = RSA
    if name.startswith("ES"):
        key = ec.generate_private_key(curves[name])
    elif name == "EdDSA":
        key = ed25519.Ed25519PrivateKey.generate()
    kinds = {"R": jwt.algorithms.RSAAlgorithm, "P": jwt.algorithms.RSAAlgorithm,
             "ES": jwt.algorithms.ECAlgorithm, "Ed": jwt.algorithms.OKPAlgorithm}  # fmt: skip
    kind = kinds[name[:2] if name[0] == "E" else name[0]]

    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        provider.keys = [kind.to_jwk(key.public_key(), as_dict=True) | {"kid": "k", "alg": name}]
        assert await ours.identify_caller(provider.token(key, "k", name)) is not None
        assert (
            await ours.identify_caller(provider.token(RSA, "k", "RS256")) is None or name == "RS256"
        )

    run(scenario)


def test_the_first_of_several_keys_is_not_the_one_of_a_token_without_a_name():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        assert await ours.identify_caller(provider.token(RSA, "", "RS256")) is None
        assert await ours.identify_caller(provider.token(RSA, "r", "RS256")) is not None

    run(scenario)


def test_a_caller_has_the_issuer_and_the_end_of_its_token():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        end = int(time.time()) + 1234
        caller = await ours.identify_caller(provider.token(exp=end))
        assert caller is not None
        assert (caller.issuer, caller.expires_at) == (provider.issuer, float(end))

    run(scenario)


def test_clocks_may_differ_by_half_a_minute():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        now = int(time.time())
        assert await ours.identify_caller(provider.token(exp=now - 20)) is not None
        assert await ours.identify_caller(provider.token(exp=now - 40)) is None

    run(scenario)


def test_a_claim_of_a_strange_kind_names_no_tenant_and_no_role():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        assert await ours.identify_caller(provider.token(roles=["tenant"], tenant=["red"])) is None
        caller = await ours.identify_caller(provider.token(roles=["viewer", 7, None]))
        assert caller is not None
        assert (caller.roles, caller.via) == ({Role.VIEWER}, provider.issuer)

    run(scenario)


def test_a_claim_whose_own_name_has_dots_is_read_as_it_is_named():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        claims = {"https://a.example/roles": ["viewer"], "roles": None}
        caller = await ours.identify_caller(provider.token(**claims))
        assert caller is not None
        assert caller.roles == {Role.VIEWER}

    run(scenario, roles_claim="https://a.example/roles")


@pytest.mark.parametrize(
    "answer",
    [
        {"issuer": "https://evil.example"},
        {"jwks_uri": "https://127.0.0.1:1/keys"},
        {"jwks_uri": "/missing"},
        {"jwks_uri": "/list"},
        {"jwks_uri": "/moved"},
        {"jwks_uri": "/padded?more=1"},
        {"jwks_uri": "/endless"},
        {"jwks_uri": "/broken"},
    ],
)
def test_keys_that_are_not_where_the_provider_must_have_them_are_not_taken(answer: dict[str, str]):
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        told = {k: provider.issuer + v if v.startswith("/") else v for k, v in answer.items()}
        provider.discovered = told
        assert await ours.identify_caller(provider.token()) is None
        assert provider.asked == 0

    run(scenario)


def test_a_provider_that_lists_no_keys_signs_nothing():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        for number, keys in enumerate(({"e": "none"}, None, "e", []), start=1):
            provider.keys = keys
            assert await ours.identify_caller(provider.token()) is None
            assert provider.asked == number
            provider.now += 31.0

    run(scenario)


def test_roles_may_be_deep_in_the_claims_and_have_a_prefix():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        deep = {"roles": ["p-operator", "viewer", "p-nothing", "x-approver"]}
        caller = await ours.identify_caller(provider.token(roles=None, realm_access=deep))
        assert caller is not None
        assert (caller.roles, caller.bounds) == ({Role.OPERATOR}, ())
        part = {"roles": ["p-approver@rack=su0-*", "p-operator@rack"]}
        caller = await ours.identify_caller(provider.token(roles=None, realm_access=part))
        assert caller is not None
        assert [(b.role, str(b.scope)) for b in caller.bounds] == [(Role.APPROVER, "rack su0-*")]
        assert (
            await ours.identify_caller(provider.token(roles=None, realm_access="p-operator"))
            is None
        )

    run(scenario, roles_claim="realm_access.roles", role_prefix="p-")


def test_an_unknown_key_makes_us_ask_again_but_not_each_time():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        assert await ours.identify_caller(provider.token()) is not None
        fresh = jwt.algorithms.ECAlgorithm.to_jwk(STRANGER.public_key(), as_dict=True)
        provider.keys.append(json.loads(json.dumps(fresh)) | {"kid": "new"})
        for _ in range(5):
            provider.now += 5.9
            assert await ours.identify_caller(provider.token(STRANGER, "new")) is None
        assert provider.asked == 1
        provider.now += 0.5
        assert await ours.identify_caller(provider.token(STRANGER, "new")) is not None
        provider.now += 60.0
        assert await ours.identify_caller(provider.token(STRANGER, "new")) is not None
        assert provider.asked == 2

    run(scenario)


def test_an_unknown_key_is_asked_for_again_after_exactly_half_a_minute():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        provider.now = 0.0  # also of a clock that has just begun
        assert await ours.identify_caller(provider.token()) is not None
        for at, asked in ((29.0, 1), (30.0, 2)):
            provider.now = at
            assert await ours.identify_caller(provider.token(kid="unknown")) is None
            assert provider.asked == asked

    run(scenario)


def test_many_callers_at_once_ask_the_provider_once():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        callers = await asyncio.gather(*(ours.identify_caller(provider.token()) for _ in range(5)))
        assert None not in callers
        assert provider.asked == 1

    run(scenario)


def test_keys_are_believed_for_an_hour_and_then_read_anew():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        provider.now = 1000.0
        for at, asked in ((1000.0, 1), (4600.0, 1), (4600.5, 2)):
            provider.now = at
            assert await ours.identify_caller(provider.token()) is not None
            assert provider.asked == asked

    run(scenario)


def test_keys_of_a_provider_that_is_silent_for_an_hour_are_not_believed():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        provider.now = 1000.0
        assert await ours.identify_caller(provider.token()) is not None
        provider.silent = True
        provider.now = 4600.0
        assert await ours.identify_caller(provider.token()) is not None
        provider.now = 4600.5
        assert await ours.identify_caller(provider.token()) is None

    run(scenario)


def test_a_document_may_be_as_long_as_its_limit():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        provider.discovered = {"jwks_uri": provider.issuer + "/padded?more=0"}
        assert await ours.identify_caller(provider.token()) is not None

    run(scenario)


def test_a_provider_that_is_not_there_lets_nobody_in():
    async def scenario() -> None:
        ours = OidcProvider(OidcSite("http://127.0.0.1:1", "provisioner"), time.time)
        assert await ours.identify_caller(Provider().token()) is None
        await ours.close()
        await OidcProvider(OidcSite("http://127.0.0.1:1", "provisioner"), time.time).close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "site",
    [
        OidcSite("http://login.example", "x"),
        OidcSite("https://", "x"),
        OidcSite("https://a", ""),
        OidcSite("ftp://127.0.0.1", "x"),
    ],
)
def test_a_site_that_cannot_be_safe_is_refused(site: OidcSite):
    with pytest.raises(InputError):
        site.check()
    with pytest.raises(InputError):
        OidcProvider(site, time.time)


@pytest.mark.parametrize(
    "issuer", ["https://a.example", "http://localhost:1", "http://127.0.0.1", "http://[::1]:80"]
)
def test_a_site_is_read_over_tls_or_on_this_machine(issuer: str):
    OidcSite(issuer, "x").check()
