"""How keys of a provider are read: over TLS, over one connection, and never in place of none."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from test_api_oidc import Provider, run

from provisioner.access.oidc import OidcProvider, OidcSite
from provisioner.integrations.sim.hardware.clock import make_certificate


def run_over_tls(
    folder: Path, scenario: Callable[[Provider, OidcProvider, str], Awaitable[None]], *, known: bool
) -> None:
    """Run a scenario with a provider behind TLS, and the address of its keys without TLS.

    `known`: the provider's certificate is in the file that the site names.
    """
    cert, key = make_certificate("login", "127.0.0.1")
    served, trusted = folder / "served.pem", folder / "trusted.pem"
    served.write_bytes(key + cert)
    trusted.write_bytes(cert if known else make_certificate("another", "127.0.0.1")[0])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(served)

    async def bounded() -> None:
        provider = Provider()
        behind_tls = TestServer(provider.application())
        await behind_tls.start_server(ssl=tls)
        async with asyncio.timeout(30), behind_tls, TestServer(provider.application()) as plain:
            provider.issuer = str(behind_tls.make_url("")).rstrip("/")
            site = OidcSite(provider.issuer, "provisioner")
            ours = OidcProvider(site, lambda: provider.now, trusted)
            try:
                await scenario(provider, ours, str(plain.make_url("/keys")))
            finally:
                await ours.close()

    asyncio.run(bounded())


def test_a_provider_is_believed_by_the_certificate_that_the_site_names(tmp_path: Path):
    async def taken(provider: Provider, ours: OidcProvider, _plain: str) -> None:
        assert await ours.identify_caller(provider.token()) is not None

    async def not_taken(provider: Provider, ours: OidcProvider, _plain: str) -> None:
        assert await ours.identify_caller(provider.token()) is None
        assert provider.asked == 0

    run_over_tls(tmp_path, taken, known=True)
    run_over_tls(tmp_path, not_taken, known=False)


def test_keys_of_a_provider_behind_tls_are_not_read_without_it(tmp_path: Path):
    async def scenario(provider: Provider, ours: OidcProvider, plain: str) -> None:
        provider.discovered = {"jwks_uri": plain}
        assert await ours.identify_caller(provider.token()) is None
        assert provider.asked == 0

    run_over_tls(tmp_path, scenario, known=True)


def test_one_connection_to_the_provider_is_kept():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        for number in range(3):
            assert await ours.identify_caller(provider.token()) is not None
            provider.now += 3601.0
            assert provider.asked == number + 1
        assert len(provider.connections) == 1

    run(scenario)


def test_a_clients_secret_goes_nowhere_that_the_token_endpoint_points_to():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        form = {"code": "x", "client_secret": "s3cret"}
        with pytest.raises(ValueError, match="/token answers 307"):
            await ours.post_form(f"{provider.issuer}/token", form, "Basic czNjcmV0")
        assert provider.forms_elsewhere == 0

    run(scenario)


@pytest.mark.parametrize("authorization", ["", "Basic czNjcmV0"])
def test_a_form_asks_for_json_and_carries_a_login_only_where_there_is_one(authorization: str):
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        sent = await ours.post_form(f"{provider.issuer}/headers", {"code": "x"}, authorization)
        assert sent["Accept"] == "application/json"
        assert sent.get("Authorization") == (authorization or None)

    run(scenario)


def test_what_the_provider_says_of_itself_is_believed_for_an_hour_and_then_read_anew():
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        for at, asked in ((1000.0, 1), (1031.0, 1), (4600.0, 1), (4600.5, 2)):
            provider.now = at
            assert (await ours.read_discovery())["issuer"] == provider.issuer
            assert provider.asked == asked
        provider.silent = True
        provider.now += 3600.5
        assert await ours.read_discovery() == {}

    run(scenario)


@pytest.mark.parametrize("keys", ["nonsense", None, {}])
def test_a_document_without_a_list_of_keys_takes_no_key_away(keys: Any):
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        assert await ours.identify_caller(provider.token()) is not None
        provider.keys = keys
        provider.now += 31.0
        assert await ours.identify_caller(provider.token(kid="unknown")) is None
        assert provider.asked == 2
        assert await ours.identify_caller(provider.token()) is not None

    run(scenario)


@pytest.mark.parametrize(
    ("amr", "taken"),
    [
        (["pwd", "otp"], True),
        (["hwk"], True),
        ([{}, "hwk"], True),
        (["pwd"], False),
        ("otp", False),
        (None, False),
    ],
)
def test_a_site_may_demand_how_the_person_signed_in(amr: Any, taken: bool):
    async def scenario(provider: Provider, ours: OidcProvider) -> None:
        caller = await ours.identify_caller(provider.token(amr=amr))
        assert (caller is not None) is taken

    run(scenario, methods=("otp", "hwk"))
