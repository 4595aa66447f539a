"""Posts rows to a receiver of OpenTelemetry's logs; its answer is the proof that it has them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence

from provisioner.adapters.bounded_http import FAILURES, error_words, open_session, time_limit
from provisioner.integrations.audit_export.form import make_otlp_request, read_otlp_reply
from provisioner.model.integrations.audit_export import ExportOutcome
from provisioner.model.integrations.webhook import JournalRow
from provisioner.ports import Clock

ANSWER_MAX = 64 * 1024


class OtlpSink:
    """`ports.AuditSink` over OTLP/HTTP in JSON. To be made inside the event loop."""

    receiver = "otlp"

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        context: ssl.SSLContext,
        clock: Clock,
        names: tuple[str, str],
    ) -> None:
        self._url = url
        self._headers = {**headers, "Content-Type": "application/json"}
        self._context = context
        self._clock = clock
        self._site, self._version = names
        self._session = open_session(per_host=1, keep_alive=True)

    async def send(self, rows: Sequence[JournalRow], timeout_s: float) -> ExportOutcome:
        """As `ports.AuditSink`. A redirect is a failure: the headers are for this receiver."""
        body = make_otlp_request(rows, self._site, self._version, self._clock.now())
        try:
            async with self._session.post(
                self._url,
                data=body,
                headers=self._headers,
                ssl=self._context,
                allow_redirects=False,
                timeout=time_limit(timeout_s),
            ) as answer:
                reply = await answer.content.read(ANSWER_MAX)
                answer.close()
                return read_otlp_reply(answer.status, reply, len(rows))
        except (*FAILURES, ssl.SSLError) as error:
            return ExportOutcome(taken=False, error=error_words(error))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()
