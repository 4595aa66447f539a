"""A system that keeps its own records of our hosts, read over HTTPS by GET alone.

The client is synchronous: a caller with an event loop calls it in a thread. Links of answers are
not followed, because a link may name any host, and no proxy or .netrc is used, so that no other
host gets the login.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests

from provisioner.model.input_error import InputError
from provisioner.model.integrations.loopback import is_loopback
from provisioner.ports.errors import LoginRefused, Malformed, PortError, TooLarge, Unreachable

ANSWER_MAX = 32 * 2**20  # bytes of one answer
REQUEST_S = 60.0
TEXT_MAX = 300  # characters of a refusal
REFUSED = frozenset({401, 403})


class RecordService:
    """One such system. `get` raises `PortError`."""

    def __init__(
        self,
        name: str,
        url: str,
        *,
        login: str,
        ca_file: str | None = None,
        answer_max: int = ANSWER_MAX,
    ) -> None:
        """`login`: the options that give a login, named when the address has one in it."""
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
            remedy = "Say https://; only a loopback address may be plain http."
            raise InputError("URL", url[:200], "a login goes over https only", remedy)
        if parts.username or parts.password:
            raise InputError("URL", "…", "it has a login in it", f"Use {login}.")
        self.name = name
        self.url = url.rstrip("/")
        self.headers: dict[str, str] = {}
        self.sign: Callable[[], Mapping[str, str]] = dict  # headers of each single request
        self._answer_max = answer_max
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = ca_file or True

    def get(self, path: str, absent: frozenset[int] = frozenset()) -> Any:
        """Return the document at a path; None for a status of `absent`."""
        shown = path.partition("?")[0]
        try:
            with self._session.get(
                f"{self.url}{path}",
                headers={**self.headers, **self.sign()},
                timeout=REQUEST_S,
                stream=True,
                allow_redirects=False,
            ) as answer:
                body = answer.raw.read(self._answer_max + 1, decode_content=True)
                status = answer.status_code
        except (requests.RequestException, OSError) as error:
            raise Unreachable(f"{self.name}: {_clean(str(error))}", maybe_executed=True) from None
        if status in absent:
            return None
        if status in REFUSED:
            raise LoginRefused(f"{self.name}: HTTP status {status} for {shown}")
        if status != 200:
            raise PortError(f"{self.name}: HTTP status {status} for {shown}")
        if len(body) > self._answer_max:
            raise TooLarge(f"{self.name}: {shown} has more than {self._answer_max} bytes")
        try:
            return json.loads(body)
        except ValueError:
            raise Malformed(f"{self.name}: {shown} is no JSON") from None


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:TEXT_MAX]
