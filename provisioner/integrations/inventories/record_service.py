"""A system that keeps its own records of our hosts, read over HTTPS by GET alone.

The client is synchronous: a caller with an event loop calls it in a thread. Links of answers are
not followed, because a link may name any host, and no proxy or .netrc is used, so that no other
host gets the login.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests

from provisioner.model.input_error import InputError
from provisioner.model.integrations.partition import is_loopback
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
        sign: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`login`: the options that give a login, named when the address has one in it. `sign`
        gives further headers of each single request.
        """
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
            remedy = "Say https://; only a loopback address may be plain http."
            raise InputError("URL", url[:200], "a login goes over https only", remedy)
        if parts.username or parts.password:
            raise InputError("URL", "…", "it has a login in it", f"Use {login}.")
        self.name = name
        self.url = url.rstrip("/")
        self.headers: dict[str, str] = {}
        self._sign = sign
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
                headers={**self.headers, **self._sign()},
                timeout=REQUEST_S,
                stream=True,
                allow_redirects=False,
            ) as answer:
                body = answer.raw.read(self._answer_max + 1, decode_content=True)
                status = answer.status_code
        except (requests.RequestException, OSError) as error:
            why = describe_failure(error)
            raise Unreachable(f"{self.name} at {self.url}: {why}", maybe_executed=True) from None
        if status in absent:
            return None
        if status in REFUSED:
            advice = "Check the login, and that it may read this."
            raise LoginRefused(f"{self.name}: HTTP status {status} for {shown}. {advice}")
        if status != 200:
            advice = f"Check that {self.name}'s API is at {self.url}."
            raise PortError(f"{self.name}: HTTP status {status} for {shown}. {advice}")
        if len(body) > self._answer_max:
            raise TooLarge(f"{self.name}: {shown} has more than {self._answer_max} bytes")
        try:
            return json.loads(body)
        except ValueError:
            advice = f"Check that {self.name}'s API is at {self.url}."
            raise Malformed(f"{self.name}: {shown} is no JSON. {advice}") from None


def describe_failure(error: Exception) -> str:
    """Return why no answer came, and what to look at: without the client's own words around it."""
    if isinstance(error, requests.exceptions.SSLError):
        return f"its certificate is not trusted ({_find_cause(error)}). Name the file of its CAs."
    if isinstance(error, requests.Timeout):
        return f"no answer within {REQUEST_S:.0f} s. Check the address and the way to it."
    return f"no answer ({_find_cause(error)}). Check the address, and the way to it from here."


def _find_cause(error: Exception) -> str:
    """Return the innermost reason, such as "Connection refused"."""
    inner: object = error
    for _ in range(8):
        cause = getattr(inner, "reason", None)
        if not isinstance(cause, Exception):
            arguments = getattr(inner, "args", ())
            cause = next((a for a in arguments if isinstance(a, Exception)), None)
        if cause is None:
            break
        inner = cause
    text = _clean(str(inner))
    return re.sub(r"^.*?: (?=Failed to |\[Errno)|Failed to establish a new connection: ", "", text)


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:TEXT_MAX]
