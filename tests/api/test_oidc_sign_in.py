"""Browsers sign in at a provider that others wrote (Authlib); forged ways back are refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
from oidc_server import Person, Provider
from served import Served, serving

from provisioner.access.oidc_sign_in import QUESTION_S, SignInSite, read_question
from provisioner.api.console_pages import CONSOLE_SIGN_IN_COOKIE as QUESTION
from provisioner.api.console_pages import COOKIE
from provisioner.model.input_error import InputError


class Browser:
    """A browser between the console and the provider: its cookies, and no script."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.cookies: dict[str, str] = {}

    async def open(self, path: str) -> tuple[int, str, str]:
        """(status, Location, text) of a page of the console."""
        headers = {"Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
        answer = await self.served.client.get(path, headers=headers, allow_redirects=False)
        for line in answer.headers.getall("Set-Cookie", []):
            for name, morsel in SimpleCookie(line).items():
                self.cookies[name] = morsel.value
        return answer.status, answer.headers.get("Location", ""), await answer.text()

    async def agree(self, address: str) -> str:
        """Follow the way to the provider; return its way back."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(address, allow_redirects=False) as answer,
        ):
            assert answer.status == 302, await answer.text()
            back = urlsplit(answer.headers["Location"])
        return f"{back.path}?{back.query}"

    async def sign_in(self, again: str = "") -> tuple[int, str, str]:
        """The whole way."""
        _status, address, _text = await self.open("/console/sign-in" + again)
        return await self.open(await self.agree(address))

    async def who(self) -> tuple[int, dict[str, object]]:
        """The caller that the API sees."""
        headers = {"Cookie": f"{COOKIE}={self.cookies.get(COOKIE, '')}"}
        answer = await self.served.client.get("/v1/me", headers=headers)
        return answer.status, await answer.json()


@asynccontextmanager
async def signing(provider: Provider, secret: str = "", **more: str) -> AsyncIterator[Browser]:
    settings = provider.add_console("https://127.0.0.1:8443", secret)
    async with serving(**settings, **more) as served:
        served.parts.clock.at = time.time()
        yield Browser(served)


def run(scenario: Callable[[Provider, Browser], Awaitable[None]], **more: str) -> None:
    async def bounded() -> None:
        with Provider() as provider:
            async with asyncio.timeout(60), signing(provider, **more) as browser:
                await scenario(provider, browser)

    asyncio.run(bounded())


def test_a_person_signs_in_at_the_provider_and_has_the_roles_that_it_gives():
    async def scenario(provider: Provider, browser: Browser) -> None:
        offer = await browser.open("/console/sign-in-offer")
        assert offer[2] == '{"provider": "127.0.0.1", "device": null}'
        assert await browser.who() == (401, (await browser.who())[1])

        status, _where, page = await browser.sign_in()

        assert status == 200
        assert "signed_in.js" in page
        status, me = await browser.who()
        assert status == 200
        assert (me["subject"], me["roles"], me["tenant"]) == ("ada", ["operator"], "")
        assert str(me["via"]).startswith("session ")
        assert browser.cookies[QUESTION] == ""
        (exchange,) = provider.exchanges
        assert exchange["client_id"] == "console"
        assert len(exchange["code_verifier"]) == 43

    run(scenario)


def test_a_session_outlives_the_id_token_and_ends_by_our_own_limits():
    async def scenario(_provider: Provider, browser: Browser) -> None:
        await browser.sign_in()
        clock = browser.served.parts.clock
        for _ in range(4):
            clock.at += 900.0
            assert (await browser.who())[0] == 200
        clock.at += 1801.0
        assert (await browser.who())[0] == 401

    run(scenario)


def test_a_tenant_signs_in_as_a_tenant_and_a_stranger_has_no_role():
    async def scenario(provider: Provider, browser: Browser) -> None:
        claims = {"roles": ["tenant"], "tenant": "red"}
        provider.people["bob"] = Person("bob", claims)
        provider.people["eve"] = Person("eve", {"roles": ["root"]})
        provider.person = "bob"
        await browser.sign_in()
        assert (await browser.who())[1]["tenant"] == "red"

        stranger = Browser(browser.served)
        provider.person = "eve"
        assert (await stranger.sign_in())[:2] == (303, "/console/?refused=role")
        assert (await stranger.who())[0] == 401

    run(scenario)


def test_a_confidential_client_proves_itself_with_its_secret(tmp_path):
    file = tmp_path / "secret"
    file.write_text("s3cr:et/+ \n")

    async def scenario(provider: Provider, browser: Browser) -> None:
        assert (await browser.sign_in())[0] == 200
        assert "client_secret" not in provider.exchanges[0]
        provider.clients["console"].secret = "another"
        assert (await browser.sign_in())[1] == "/console/?refused=provider"

    run(scenario, secret="s3cr:et/+", api_oidc_secret_file=str(file))


def test_roles_of_an_access_token_for_our_api_come_first_and_must_be_the_same_persons():
    async def scenario(provider: Provider, browser: Browser) -> None:
        claims = {"aud": "provisioner", "sub": "ada", "roles": ["viewer"]}
        provider.access = claims
        await browser.sign_in()
        assert (await browser.who())[1]["roles"] == ["viewer"]

        provider.access = {**claims, "aud": "another service"}
        await browser.sign_in()
        assert (await browser.who())[1]["roles"] == ["operator"]

        provider.access = {**claims, "sub": "eve"}
        assert (await browser.sign_in())[1] == "/console/?refused=mismatch"

    run(scenario)


async def _stolen_code(provider: Provider, browser: Browser) -> str:
    """A code of another browser's sign-in, brought to this one with the state that it expects."""
    victim = Browser(browser.served)
    _, address, _ = await victim.open("/console/sign-in")
    code = parse_qs(urlsplit(await victim.agree(address)).query)["code"][0]
    await browser.open("/console/sign-in")
    question = read_question(browser.cookies[QUESTION])
    assert question is not None
    return "/console/signed-in?" + urlencode({"code": code, "state": question.state})


async def _no_question(provider: Provider, browser: Browser) -> str:
    _, address, _ = await browser.open("/console/sign-in")
    back = await browser.agree(address)
    browser.cookies.clear()
    return back


async def _foreign_state(provider: Provider, browser: Browser) -> str:
    """The answer to an attacker's question, in the victim's browser: a login by another's name."""
    attacker = Browser(browser.served)
    _, address, _ = await attacker.open("/console/sign-in")
    await browser.open("/console/sign-in")
    return await attacker.agree(address)


async def _too_late(provider: Provider, browser: Browser) -> str:
    _, address, _ = await browser.open("/console/sign-in")
    back = await browser.agree(address)
    browser.served.parts.clock.at += QUESTION_S + 1.0
    return back


async def _used_twice(provider: Provider, browser: Browser) -> str:
    _, address, _ = await browser.open("/console/sign-in")
    kept = dict(browser.cookies)
    back = await browser.agree(address)
    await browser.open(back)
    browser.cookies = kept
    return back


async def _old_sign_in(provider: Provider, browser: Browser) -> str:
    provider.signed_in_before_s = 3600
    _, address, _ = await browser.open("/console/sign-in")
    return await browser.agree(address)


async def _other_nonce(provider: Provider, browser: Browser) -> str:
    provider.nonce = "x" * 43
    _, address, _ = await browser.open("/console/sign-in")
    return await browser.agree(address)


async def _refusal(provider: Provider, browser: Browser) -> str:
    provider.person = None
    _, address, _ = await browser.open("/console/sign-in")
    return await browser.agree(address)


async def _another_issuer(provider: Provider, browser: Browser) -> str:
    _, address, _ = await browser.open("/console/sign-in")
    return await browser.agree(address) + "&iss=https%3A%2F%2Fevil.example"


async def _state_twice(provider: Provider, browser: Browser) -> str:
    _, address, _ = await browser.open("/console/sign-in")
    return await browser.agree(address) + "&state=x"


@pytest.mark.parametrize(
    ("forge", "word"),
    [
        (_stolen_code, "provider"),  # its verifier is in the other browser
        (_no_question, "expired"),
        (_foreign_state, "mismatch"),
        (_too_late, "expired"),
        (_used_twice, "provider"),
        (_old_sign_in, "stale"),
        (_other_nonce, "mismatch"),
        (_refusal, "denied"),
        (_another_issuer, "mismatch"),
        (_state_twice, "mismatch"),
    ],
)
def test_a_forged_or_late_way_back_begins_no_session(
    forge: Callable[[Provider, Browser], Awaitable[str]], word: str
) -> None:
    async def scenario(provider: Provider, browser: Browser) -> None:
        back = await forge(provider, browser)
        browser.cookies.pop(COOKIE, None)

        status, where, _page = await browser.open(back)

        assert (status, where) == (303, f"/console/?refused={word}")
        assert COOKIE not in browser.cookies
        assert browser.cookies.get(QUESTION, "") == ""

    run(scenario)


def test_a_provider_that_is_gone_is_said_to_be_gone():
    async def scenario() -> None:
        with Provider() as provider:
            pass
        async with signing(provider) as browser:
            assert (await browser.open("/console/sign-in"))[1] == "/console/?refused=provider"

    asyncio.run(scenario())


def test_without_a_client_there_is_no_sign_in_at_a_provider():
    async def scenario() -> None:
        async with serving() as served:
            browser = Browser(served)
            assert (await browser.open("/console/sign-in-offer"))[2] == (
                '{"provider": "", "device": null}'
            )
            assert (await browser.open("/console/sign-in"))[0] == 404
            assert (await browser.open("/console/signed-in?code=x&state=y"))[0] == 404

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "url",
    [
        "http://site.example/console/signed-in",
        "https://site.example/elsewhere",
        "https://site.example/console/signed-in?x=1",
        "",
        "https:///console/signed-in",
    ],
)
def test_a_redirect_url_that_is_not_the_consoles_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="api_oidc_redirect_url"):
        SignInSite("console", url).check()


@pytest.mark.parametrize("text", ["", "a.b.c.0.1", ".".join(["x" * 43] * 3) + ".2.1", "x" * 9000])
def test_a_cookie_that_is_no_question_asks_nothing(text: str) -> None:
    assert read_question(text) is None
