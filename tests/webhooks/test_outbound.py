"""A webhook's address: what the site's settings allow, by whatever name or notation it is said."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from aiohttp import web
from receiver import Receiver
from webhook_rig import SECRET

from provisioner.integrations.webhooks.outbound import refuse_address
from provisioner.integrations.webhooks.posted_events import check
from provisioner.integrations.webhooks.webhook_posts import open_posts
from provisioner.model.input_error import InputError
from provisioner.model.integrations.webhook import JournalRow, PostOutcome, Webhook
from provisioner.ports import Secret
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings

DEFAULT = Settings()
ROW = JournalRow(seq=1, at=1.0, kind="state", node="n1", sha256="0" * 64)

# hosts that lead to the daemon's own machine, to its networks, or to a cloud's metadata
REFUSED = (
    "127.0.0.1",
    "127.9.9.9",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "127.0.0.1.",
    "0.0.0.0",
    "0",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::10.0.0.1]",
    "[2002:7f00:1::]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]",  # Teredo of 127.0.0.1
    "localhost",
    "LOCALHOST.",
    "a.localhost",
    "localhost.localdomain",
    "ip6-localhost",
    "169.254.169.254",
    "169.254.1.1",
    "2852039166",
    "0xA9FEA9FE",
    "[::ffff:a9fe:a9fe]",
    "[fe80::1]",
    "[fe80::a9fe:a9fe]",
    "[fec0::1]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "10.0.0.9",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "[fc00::1]",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "[ff02::1]",
    "240.0.0.1",
    "255.255.255.255",
    "0x7f000001.",
    "1.2.3",
    "999.1.1.1",
    "127.0.0.%31",
    "good.example%00.10.0.0.1",
)


def hook(url: str) -> Webhook:
    return Webhook(name="billing", url=url, made_at=1.0)


@pytest.mark.parametrize("host", REFUSED)
def test_an_address_that_only_the_daemon_reaches_is_refused_in_every_notation(host: str):
    with pytest.raises(InputError):
        check(hook(f"https://{host}/events"), DEFAULT)


@pytest.mark.parametrize(
    "url",
    [
        "https://good.example@127.0.0.1/",
        "https://good.example:x@10.0.0.1/",
        "https://good.example\\@127.0.0.1/",
        "https://127.0.0.1\\@good.example/",
        "https://127.0.0.1\\.good.example/",
        "https://good.example,127.0.0.1/",
        "https:///127.0.0.1/",
        "https://[::1%25lo]/",
        "https://①②⑦.⓪.⓪.①/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
    ],
)
def test_a_url_that_two_parsers_may_read_differently_is_refused(url: str):
    allowing = Settings(webhook_plain=True)
    with pytest.raises(InputError):
        check(hook(url), allowing, plain=True)


@pytest.mark.parametrize(
    "host", ["hooks.example", "hooks.example.", "8.8.8.8", "[2606:4700::1111]", "10.example"]
)
def test_a_public_receiver_needs_no_setting(host: str):
    check(hook(f"https://{host}/events"), DEFAULT)


def test_the_sites_networks_allow_what_they_hold_and_nothing_beside():
    chosen = Settings(webhook_networks=("10.20.0.0/16", "fd00:20::/32", "127.0.0.1/32"))
    for good in ("10.20.3.4", "[::ffff:10.20.3.4]", "[fd00:20::9]", "localhost"):
        check(hook(f"https://{good}/"), chosen)
    for bad in ("10.21.0.1", "[fd00:21::9]", "127.0.0.2", "[::1]", "192.168.0.1"):
        with pytest.raises(InputError, match="webhook_networks"):
            check(hook(f"https://{bad}/"), chosen)


def test_metadata_of_a_cloud_is_allowed_by_its_own_entry_alone():
    wide = ("169.254.0.0/16", "fd00::/8", "0.0.0.0/0")
    for address in ("169.254.169.254", "fd00:ec2::254", "168.63.129.16", "100.100.100.200"):
        assert "metadata" in refuse_address(address, wide)
        single = f"{address}/{128 if ':' in address else 32}"
        assert refuse_address(address, (single,)) == ""
    assert refuse_address("169.254.1.1", wide) == ""
    everything = ("0.0.0.0/0", "::/0")
    for address in ("0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"):
        assert refuse_address(address, everything)


def test_http_takes_the_sites_setting_and_the_callers_word():
    url = "http://hooks.example/"
    for chosen, plain in ((DEFAULT, False), (DEFAULT, True), (Settings(webhook_plain=True), False)):
        with pytest.raises(InputError):
            check(hook(url), chosen, plain=plain)
    check(hook(url), Settings(webhook_plain=True), plain=True)


def test_a_network_that_is_none_is_refused_at_the_start():
    for text in ("10.0.0.1/8", "10.0.0.0/33", "anything", ""):
        with pytest.raises(ValueError, match="webhook_networks"):
            Settings(webhook_networks=(text,))


class Site:
    """A receiver on all loopback addresses, and a resolver that answers as its owner likes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.port = 0
        self.answers: list[list[str]] = []  # of each question; the last one stays
        self.questions = 0
        self.reached: list[str] = []  # the address at which each event came in
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)  # what the loop asks, in a thread

    def _resolve(self, host: Any, port: Any, *args: Any, **named: Any) -> Any:
        if host != "hooks.example":
            return self._real(host, port, *args, **named)
        self.questions += 1
        given = self.answers[min(self.questions, len(self.answers)) - 1]
        made = []
        for one in given:
            made += self._real(one, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return made

    async def take(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        assert json.loads(await request.read())["id"]
        self.reached.append(request.transport.get_extra_info("sockname")[0])
        return web.Response(status=204, headers={"Connection": "close"})

    async def post(self, url: str, **settings: Any) -> PostOutcome:
        """One delivery by a new sender, which has no connection and no cached name."""
        async with open_posts(WallClock(), Settings(webhook_plain=True, **settings)) as posts:
            target = hook(url.replace("PORT", str(self.port)))
            return await posts.post(target, ROW, [Secret(SECRET)], 10.0)


def with_site(monkeypatch: pytest.MonkeyPatch, story: Any) -> Any:
    async def main() -> Any:
        site = Site(monkeypatch)
        app = web.Application()
        app.router.add_post("/events", site.take)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "0.0.0.0", 0).start()
            site.port = runner.addresses[0][1]
            async with asyncio.timeout(30):
                return await story(site)
        finally:
            await runner.cleanup()

    return asyncio.run(main())


NAME = "http://hooks.example:PORT/events"
LISTED: dict[str, Any] = {"webhook_networks": ("127.0.1.0/24",)}


@pytest.mark.parametrize(
    "answer",
    [["127.0.2.1"], ["::ffff:127.0.2.1"], ["::1"], ["0.0.0.0"], ["127.0.2.1", "127.0.2.2"]],
    ids=["other network", "mapped", "IPv6", "any", "several"],
)
def test_a_name_is_judged_by_the_address_that_it_is_resolved_to(
    monkeypatch: pytest.MonkeyPatch, answer: list[str]
):
    async def story(site: Site) -> tuple[PostOutcome, list[str]]:
        site.answers = [answer]
        return await site.post(NAME, **LISTED), site.reached

    outcome, reached = with_site(monkeypatch, story)
    assert not outcome.delivered
    assert "webhook_networks" in outcome.error
    assert reached == []


def test_of_a_names_addresses_the_allowed_one_is_asked(monkeypatch: pytest.MonkeyPatch):
    async def story(site: Site) -> tuple[bool, list[str]]:
        site.answers = [["127.0.2.1", "127.0.1.1"]]
        return (await site.post(NAME, **LISTED)).delivered, site.reached

    assert with_site(monkeypatch, story) == (True, ["127.0.1.1"])


def test_a_name_that_is_bound_anew_between_two_questions_gains_nothing(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(site: Site) -> tuple[list[bool], set[str]]:
        site.answers = [["127.0.1.1"], ["127.0.2.1"]] * 3
        arrived = [(await site.post(NAME, **LISTED)).delivered for _ in range(6)]
        return arrived, set(site.reached)

    assert with_site(monkeypatch, story) == ([True, False] * 3, {"127.0.1.1"})


def test_a_stored_receiver_is_judged_at_each_delivery(monkeypatch: pytest.MonkeyPatch):
    async def story(site: Site) -> tuple[list[PostOutcome], list[str]]:
        plain = "http://127.0.1.1:PORT/events"
        refused = [
            await site.post(plain),
            await site.post("http://[::ffff:127.0.1.1]:PORT/events"),
            await site.post("http://2130706433:PORT/events", **LISTED),
        ]
        async with open_posts(WallClock(), Settings(**LISTED)) as posts:  # without http
            target = hook(plain.replace("PORT", str(site.port)))
            refused.append(await posts.post(target, ROW, [Secret(SECRET)], 10.0))
        assert (await site.post(plain, **LISTED)).delivered
        return refused, site.reached

    refused, reached = with_site(monkeypatch, story)
    assert not any(outcome.delivered for outcome in refused)
    assert "webhook_plain" in refused[-1].error
    assert reached == ["127.0.1.1"]


def test_a_redirect_leads_nowhere(monkeypatch: pytest.MonkeyPatch):
    async def story(site: Site) -> PostOutcome:
        receiver = Receiver()
        receiver.answer = lambda _event, _time: 307
        app = web.Application()
        app.router.add_post("/events", receiver.take)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.1.1", 0).start()
            url = f"http://127.0.1.1:{runner.addresses[0][1]}/events"
            return await site.post(url, **LISTED)
        finally:
            await runner.cleanup()

    outcome = with_site(monkeypatch, story)
    assert (outcome.delivered, outcome.error) == (False, "HTTP 307")
