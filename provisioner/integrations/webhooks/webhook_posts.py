"""Posts one event to one webhook: signed, bounded in time and bytes, redirects not followed.

Each attempt goes to an address that the site's settings allow: the URL is judged before it, and
each address that its name is resolved to as the connection is opened.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from provisioner.adapters.bounded_http import FAILURES, open_session, time_limit
from provisioner.integrations.webhooks import posted_events as form
from provisioner.integrations.webhooks.outbound import refuse_address
from provisioner.model.integrations.webhook import JournalRow, PostOutcome, Webhook
from provisioner.planning.watch.webhooks import CONTENT_TYPE, event_id
from provisioner.ports import Clock, Secret
from provisioner.settings import Settings

# bytes that are read so that the connection can be used again; the rest is not
ANSWER_MAX = 64 * 1024
ERROR_MAX = 300  # characters of a failure's text


@asynccontextmanager
async def open_posts(clock: Clock, settings: Settings) -> AsyncIterator[HttpPosts]:
    """Yield a sender, and close its connections at the end."""
    posts = HttpPosts(clock, settings)
    try:
        yield posts
    finally:
        await posts.close()


class HttpPosts:
    """`ports.WebhookPosts` over HTTP. To be made inside the event loop."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._clock = clock
        self._settings = settings
        self._site = settings.site
        per_host = settings.webhook_parallel
        self._session = open_session(per_host=per_host, keep_alive=True, refuse=self._refuse)
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def post(
        self, webhook: Webhook, row: JournalRow, secrets: Sequence[Secret], timeout_s: float
    ) -> PostOutcome:
        """Try once. The body is the same each time, the timestamp and the signature are not."""
        body = form.cloud_event(row, self._site)
        id_ = event_id(row)
        now = int(self._clock.now())
        try:
            host = URL(webhook.url).raw_host or ""
            if why := form.refuse_url(webhook.url, host, self._settings):
                return PostOutcome(delivered=False, error=f"refused: {why}"[:ERROR_MAX])
            keys = [secret.reveal() for secret in secrets]
            headers = {
                "Content-Type": CONTENT_TYPE,
                "webhook-id": id_,
                "webhook-timestamp": str(now),
                "webhook-signature": form.make_signature(keys, id_, now, body),
            }
            async with self._session.post(
                webhook.url,
                data=body,
                headers=headers,
                ssl=self._trust(webhook),
                allow_redirects=False,
                timeout=time_limit(timeout_s),
            ) as answer:
                outcome = form.outcome_of(answer.status, answer.headers.get("Retry-After", ""))
                await _read_little(answer)
                return outcome
        except (*FAILURES, ssl.SSLError, asyncio.IncompleteReadError) as error:
            cause = " ".join(f"{type(error).__name__} {error}".split())
            shown = "".join(c for c in cause if c.isprintable())[:ERROR_MAX].rstrip()
            return PostOutcome(delivered=False, error=shown)

    def _refuse(self, address: str) -> str:
        why = refuse_address(address, self._settings.webhook_networks)
        return f"{why}: {form.SITES_NETWORKS}" if why else ""

    def _trust(self, webhook: Webhook) -> ssl.SSLContext | bool:
        if not webhook.ca:
            return True
        if webhook.ca not in self._contexts:
            self._contexts[webhook.ca] = ssl.create_default_context(cadata=webhook.ca)
        return self._contexts[webhook.ca]

    async def close(self) -> None:
        await self._session.close()


async def _read_little(answer: aiohttp.ClientResponse) -> None:
    """Read a little: the status is decided; the rest only lets the connection be used again."""
    try:
        await answer.content.read(ANSWER_MAX)
    except FAILURES:
        answer.close()
