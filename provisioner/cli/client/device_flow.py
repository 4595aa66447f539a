"""Sign-in of the command line at the site's OIDC provider: the device flow.

The person opens the provider's page in any browser and types a short code there; the command asks
the provider now and then whether that is done. No password and no token passes the terminal. Only
the standard library is used, so that a command that refreshes its token starts fast.

Sources: RFC 8628 (device authorization grant); RFC 6749 section 6 (refresh); RFC 7009 (revocation);
OpenID Connect Discovery 1.0 section 4.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

ANSWER_MAX = 256 * 1024  # bytes of one answer of the provider
LIMIT_S = 20.0  # seconds for one request
INTERVAL_S = 5.0  # seconds between two questions, unless the provider names others (RFC 8628, 3.2)
INTERVAL_MAX_S = 60.0
CODE_MAX_S = 3600.0  # a code is never waited for longer
TOKEN_MAX = 16 * 1024  # characters
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")


class ProviderRefused(Exception):
    """The provider or its answer allows no sign-in. `remedy` is the advice to the person."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


@dataclass(frozen=True)
class Offer:
    """The provider that a daemon names for command lines, and our client id there."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...] = ("openid",)


@dataclass(frozen=True)
class Endpoints:
    """The provider's addresses for this flow. `revocation` is empty where it has none."""

    device: str
    token: str
    revocation: str = ""


@dataclass(frozen=True)
class Code:
    """A code that a person types at the provider's page."""

    page: str
    user_code: str
    whole_page: str  # the page with the code in it; empty: the provider has none
    device_code: str = field(repr=False)
    interval_s: float = INTERVAL_S
    expires_s: float = CODE_MAX_S


@dataclass(frozen=True)
class Tokens:
    """The tokens of one sign-in. `expires_at`: seconds since the epoch; 0.0: it did not say."""

    access: str = field(repr=False)
    refresh: str = field(default="", repr=False)
    expires_at: float = 0.0


class Provider:
    """Requests to one provider, over TLS that `trust` verifies; loopback may go without."""

    def __init__(self, offer: Offer, trust: ssl.SSLContext) -> None:
        self._offer = offer
        self._trust = trust

    def find_endpoints(self) -> Endpoints:
        """Return the provider's addresses by discovery. Raises ProviderRefused and OSError."""
        issuer = self._offer.issuer
        address = issuer.rstrip("/") + "/.well-known/openid-configuration"
        status, document = self._send("GET", address, {})
        if status != 200 or document.get("issuer") != issuer:
            problem = f"{issuer} describes itself as {_clean(document.get('issuer'))!r}"
            raise ProviderRefused(problem, "Correct api_oidc_issuer of the daemon.")
        names = ("device_authorization_endpoint", "token_endpoint", "revocation_endpoint")
        found = [str(document.get(name, "")) for name in names]
        if not found[0] or not found[1]:
            problem = f"{issuer} has no device flow"
            raise ProviderRefused(problem, "Allow it there, or use a token file.")
        for endpoint in filter(None, found):
            if urlsplit(endpoint).scheme != urlsplit(issuer).scheme:
                problem = f"{issuer} names an address of another scheme"
                raise ProviderRefused(problem, "Correct the provider's discovery document.")
        return Endpoints(*found)

    def ask_code(self, endpoints: Endpoints) -> Code:
        """Return a code for the person. Raises ProviderRefused and OSError."""
        form = {"client_id": self._offer.client_id, "scope": " ".join(self._offer.scopes)}
        status, answer = self._send("POST", endpoints.device, form)
        device_code = str(answer.get("device_code", ""))
        user_code = _clean(answer.get("user_code"))
        page = _page(answer.get("verification_uri"))
        if status != 200 or not (device_code and user_code and page):
            problem = f"the provider gave no code: {_clean(answer.get('error')) or status}"
            raise ProviderRefused(problem, f"Allow the device flow to {self._offer.client_id}.")
        return Code(
            page,
            user_code,
            _page(answer.get("verification_uri_complete")),
            device_code,
            min(_number(answer.get("interval"), INTERVAL_S), INTERVAL_MAX_S),
            min(_number(answer.get("expires_in"), CODE_MAX_S), CODE_MAX_S),
        )

    def await_tokens(
        self, endpoints: Endpoints, code: Code, wait: Callable[[float], None] = time.sleep
    ) -> Tokens:
        """Ask until the person has agreed. Raises ProviderRefused and OSError."""
        form = {
            "grant_type": DEVICE_GRANT,
            "device_code": code.device_code,
            "client_id": self._offer.client_id,
        }
        interval_s = code.interval_s
        waited_s = 0.0
        while waited_s < code.expires_s:
            wait(interval_s)
            waited_s += interval_s
            try:
                status, answer = self._send("POST", endpoints.token, form)
            except TimeoutError:  # RFC 8628 section 3.5: ask half as often
                interval_s = min(interval_s * 2, INTERVAL_MAX_S)
                continue
            error = str(answer.get("error", ""))
            if status == 200:
                return _read_tokens(answer)
            if error == "slow_down":
                interval_s = min(interval_s + 5, INTERVAL_MAX_S)
            elif error == "access_denied":
                raise ProviderRefused("the person at the provider refused", "Sign in again.")
            elif error not in ("authorization_pending", ""):
                raise ProviderRefused(f"the provider answers {_clean(error)!r}", "Sign in again.")
        raise ProviderRefused("the code has expired", "Sign in again, and type the code at once.")

    def refresh(self, endpoints: Endpoints, tokens: Tokens) -> Tokens:
        """Return fresh tokens. Raises ProviderRefused when the person must sign in again."""
        form = {
            "grant_type": "refresh_token",
            "refresh_token": tokens.refresh,
            "client_id": self._offer.client_id,
        }
        status, answer = self._send("POST", endpoints.token, form)
        if status != 200:
            problem = f"the sign-in has ended: {_clean(answer.get('error')) or status}"
            raise ProviderRefused(problem, "Run `provisioner sign-in`.")
        fresh = _read_tokens(answer)
        return Tokens(fresh.access, fresh.refresh or tokens.refresh, fresh.expires_at)

    def revoke(self, endpoints: Endpoints, tokens: Tokens) -> bool:
        """Return whether the provider took the token back. Raises OSError."""
        token = tokens.refresh or tokens.access
        if not endpoints.revocation or not token:
            return False
        form = {"token": token, "client_id": self._offer.client_id}
        status, _ = self._send("POST", endpoints.revocation, form)
        return status == 200

    def _send(
        self, verb: str, address: str, form: Mapping[str, str]
    ) -> tuple[int, Mapping[str, Any]]:
        parts = urlsplit(address)
        host = parts.hostname or ""
        connection: http.client.HTTPConnection
        if parts.scheme == "https" and host:
            connection = http.client.HTTPSConnection(
                host, parts.port, timeout=LIMIT_S, context=self._trust
            )
        elif parts.scheme == "http" and host in LOCAL_HOSTS:
            connection = http.client.HTTPConnection(host, parts.port, timeout=LIMIT_S)
        else:
            raise ProviderRefused(f"{address[:200]!r} is no https address", "Correct the issuer.")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Accept": "application/json"}
        body = None
        if verb == "POST":
            body = urlencode(form).encode()
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        with closing(connection):
            connection.request(verb, target, body, headers)
            answer = connection.getresponse()
            content = answer.read(ANSWER_MAX + 1)
        return answer.status, read_object(content)


def read_object(content: bytes) -> Mapping[str, Any]:
    """Return the JSON object of an answer; an empty one for anything else."""
    try:
        document = json.loads(content) if len(content) <= ANSWER_MAX else None
    except (ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) else {}


def _read_tokens(answer: Mapping[str, Any]) -> Tokens:
    access = answer.get("access_token")
    refresh = answer.get("refresh_token")
    if not _is_token(access) or (refresh is not None and not _is_token(refresh)):
        raise ProviderRefused("the provider gave no usable token", "Read the provider's log.")
    expires_s = _number(answer.get("expires_in"), 0.0)
    expires_at = time.time() + expires_s if expires_s else 0.0
    return Tokens(str(access), str(refresh or ""), expires_at)


def _is_token(value: object) -> bool:
    if not isinstance(value, str):
        return False
    return 0 < len(value) <= TOKEN_MAX and value.isascii() and value.isprintable()


def _number(value: object, otherwise: float) -> float:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9
    return float(value) if fits and isinstance(value, int | float) else otherwise


def _page(value: object) -> str:
    """Return an address that a person may open, or "" for anything else."""
    text = value if isinstance(value, str) else ""
    parts = urlsplit(text) if text.isascii() and text.isprintable() else urlsplit("")
    safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOCAL_HOSTS)
    return text if safe and len(text) <= 500 else ""


def _clean(value: object) -> str:
    """Return printable text for a terminal, at most 100 characters."""
    text = value if isinstance(value, str) else ""
    return "".join(c for c in text[:100] if c.isprintable())
