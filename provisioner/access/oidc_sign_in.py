"""Sign-in of browsers at the site's OIDC provider: the authorization code flow with PKCE.

The browser is sent to the provider with a question: a state, a nonce and the digest of a verifier.
It keeps them in a cookie of its own, so that any daemon of the site can take the provider's answer,
and a code that was stolen on its way is worth nothing. The code is then exchanged for tokens. The
person must have authenticated at the provider within the time in which a sign-in proves presence.

Sources: OpenID Connect Core 1.0 section 3.1; RFC 7636 (PKCE, method S256); RFC 9207 (`iss`);
RFC 9700 (security of OAuth 2.0).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import aiohttp

from provisioner.access.oidc import LEEWAY_S, OidcProvider
from provisioner.model.access import Caller
from provisioner.model.input_error import InputError

log = logging.getLogger(__name__)
QUESTION_S = 600.0  # a person signs in at the provider within this time
CODE_MAX = 4096  # characters
_WORD = "[A-Za-z0-9_-]{43}"
_QUESTION = re.compile(rf"({_WORD})\.({_WORD})\.({_WORD})\.([01])\.(\d{{1,12}})")


class SignInRefused(Exception):
    """A sign-in that began no session. `word` is one of a closed list, which the console knows:
    "expired", "mismatch", "denied", "provider", "stale" or "role".
    """

    def __init__(self, word: str, detail: str) -> None:
        super().__init__(detail)
        self.word = word


@dataclass(frozen=True)
class SignInSite:
    """The console as a client of the provider. `secret` is empty for a public client."""

    client_id: str
    redirect_url: str
    scopes: tuple[str, ...] = ("openid",)
    proof_s: float = 300.0  # the person authenticated at most this long before
    secret: str = field(default="", repr=False)

    def check(self) -> None:
        """Raise InputError for a redirect URL that no provider may send a code to."""
        parts = urlsplit(self.redirect_url)
        local = parts.hostname in ("127.0.0.1", "::1", "localhost")
        safe = parts.scheme == "https" or (local and parts.scheme == "http")
        if not safe or not parts.hostname or parts.path != "/console/signed-in" or parts.query:
            remedy = "Write the console's own address: https://HOST:PORT/console/signed-in"
            problem = "this is no address of the console"
            raise InputError("api_oidc_redirect_url", self.redirect_url, problem, remedy)


@dataclass(frozen=True)
class DeviceOffer:
    """What a command line needs for the provider's device flow (RFC 8628); none of it is secret."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """One sign-in under way, as the browser keeps it. `again`: to prove presence once more."""

    state: str
    nonce: str
    verifier: str = field(repr=False)
    again: bool
    asked_at: int  # seconds since the epoch

    def write(self) -> str:
        proof = f"{self.state}.{self.nonce}.{self.verifier}"
        return f"{proof}.{int(self.again)}.{self.asked_at}"


def read_question(text: str) -> Question | None:
    match = _QUESTION.fullmatch(text)
    if match is None:
        return None
    state, nonce, verifier, again, asked_at = match.groups()
    return Question(state, nonce, verifier, again == "1", int(asked_at))


class OidcSignIn:
    """The console's sign-ins at one provider."""

    def __init__(self, provider: OidcProvider, site: SignInSite, issuer: str) -> None:
        site.check()
        self._provider = provider
        self._site = site
        self._issuer = issuer

    @property
    def provider_name(self) -> str:
        return urlsplit(self._issuer).hostname or ""

    async def ask_provider(self, now: float, *, again: bool) -> tuple[str, Question]:
        """Return the address to send the browser to, and its question. Raises SignInRefused."""
        address = await self._find_endpoint("authorization_endpoint")
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        question = Question(state, nonce, verifier, again, int(now))
        digest = hashlib.sha256(question.verifier.encode()).digest()
        parameters = {
            "response_type": "code",
            "client_id": self._site.client_id,
            "redirect_uri": self._site.redirect_url,
            "scope": " ".join(self._site.scopes),
            "state": question.state,
            "nonce": question.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "max_age": f"{self._site.proof_s:.0f}",
        }
        separator = "&" if urlsplit(address).query else "?"
        return address + separator + urlencode(parameters), question

    async def take_answer(
        self, answer: Mapping[str, str], question: Question | None, now: float
    ) -> Caller:
        """Return the caller that the provider's answer identifies. Raises SignInRefused."""
        if question is None or not -LEEWAY_S <= now - question.asked_at <= QUESTION_S:
            raise SignInRefused("expired", "this browser asked nothing, or too long ago")
        if not hmac.compare_digest(answer.get("state", "").encode(), question.state.encode()):
            raise SignInRefused("mismatch", "the answer is to another question")
        if answer.get("iss", self._issuer) != self._issuer:
            raise SignInRefused("mismatch", "the answer names another issuer")
        if "error" in answer:
            raise SignInRefused("denied", f"the provider answers {answer['error'][:80]!r}")
        code = answer.get("code", "")
        if not 0 < len(code) <= CODE_MAX:
            raise SignInRefused("provider", "the answer has no code")
        tokens = await self._exchange(code, question.verifier)
        claims = await self._verify_identity(tokens, question, now)
        caller = await self._find_caller(tokens, claims)
        if caller is None:
            raise SignInRefused("role", "the provider gives this person no role here")
        # the session's own limits apply: an ID token lives for minutes, and is no session
        return caller.model_copy(update={"expires_at": 0.0})

    async def _exchange(self, code: str, verifier: str) -> Mapping[str, Any]:
        address = await self._find_endpoint("token_endpoint")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._site.redirect_url,
            "code_verifier": verifier,
        }
        login = ""
        if self._site.secret:  # RFC 6749 section 2.3.1: both are form-encoded first
            pair = f"{quote_plus(self._site.client_id)}:{quote_plus(self._site.secret)}"
            login = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form["client_id"] = self._site.client_id
        try:
            return await self._provider.post_form(address, form, login)
        except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
            raise SignInRefused("provider", f"the code was not taken: {str(error)[:200]}") from None

    async def _verify_identity(
        self, tokens: Mapping[str, Any], question: Question, now: float
    ) -> Mapping[str, Any]:
        """Return the claims of the ID token (OpenID Connect Core 1.0 section 3.1.3.7)."""
        identity = str(tokens.get("id_token", ""))
        claims = await self._provider.verify_token(identity, self._site.client_id)
        if claims is None:
            raise SignInRefused("provider", "there is no valid ID token")
        nonce = str(claims.get("nonce", ""))
        if not hmac.compare_digest(nonce.encode(), question.nonce.encode()):
            raise SignInRefused("mismatch", "the ID token is for another question")
        party = claims.get("azp", self._site.client_id)
        if party != self._site.client_id:
            raise SignInRefused("mismatch", "the ID token was made for another client")
        proved_at = claims.get("auth_time")
        limit = question.asked_at - self._site.proof_s - LEEWAY_S
        if not isinstance(proved_at, int | float) or not limit <= proved_at <= now + LEEWAY_S:
            raise SignInRefused("stale", "the person did not authenticate recently (auth_time)")
        return claims

    async def _find_caller(
        self, tokens: Mapping[str, Any], claims: Mapping[str, Any]
    ) -> Caller | None:
        """Return the caller by the access token if it is one for our API, else by the ID token."""
        access = str(tokens.get("access_token", ""))
        caller = await self._provider.identify_caller(access) if access.count(".") == 2 else None
        if caller is None:
            return self._provider.find_caller(claims)
        if caller.subject != str(claims["sub"])[:200]:
            raise SignInRefused("mismatch", "access token and ID token name different people")
        return caller

    async def _find_endpoint(self, name: str) -> str:
        address = str((await self._provider.read_discovery()).get(name, ""))
        if urlsplit(address).scheme != urlsplit(self._issuer).scheme:
            raise SignInRefused("provider", f"the provider names no {name} of its own scheme")
        return address
