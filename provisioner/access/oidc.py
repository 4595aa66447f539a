"""Tokens of an OIDC provider: keys fetched by discovery, signature, issuer, audience and times.

The provider's keys are fetched by OpenID Connect Discovery 1.0 section 4 and read by RFC 7517. An
access token is a JWT by RFC 9068. The algorithms are chosen here, never by the token (RFC 8725).
`amr` is that of RFC 8176.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp

from provisioner.access.identity import caller_of
from provisioner.model.access import Caller
from provisioner.model.input_error import InputError
from provisioner.runtime.late_module import LateModule

if TYPE_CHECKING:
    import jwt
else:  # loaded where a site has a provider
    jwt = LateModule("jwt")

log = logging.getLogger(__name__)

# asymmetric ones only: with HS256 a public key would be a shared secret (RFC 8725 section 3.1)
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
LEEWAY_S = 30.0  # the clocks of two machines may differ
KEYS_FRESH_S = 3600.0  # a withdrawn key is trusted this long at most
KEYS_AGAIN_S = 30.0  # an unknown key id makes us fetch the keys again, but not more often than this
DOCUMENT_MAX = 256 * 1024  # bytes
KEYS_MAX = 100
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class OidcSite:
    """A site's OIDC settings. Claims may be paths: "realm_access.roles"."""

    issuer: str
    audience: str
    roles_claim: str = "roles"
    tenant_claim: str = "tenant"
    role_prefix: str = ""  # "provisioner-": a role is "provisioner-operator"
    methods: tuple[str, ...] = ()  # a token has to name one of them in `amr`; (): any will do

    def check(self) -> None:
        """Raise InputError for an issuer without TLS, or for an empty audience."""
        parts = urlsplit(self.issuer)
        local = parts.hostname in ("127.0.0.1", "::1", "localhost")
        safe = parts.scheme == "https" or (local and parts.scheme == "http")
        if not parts.hostname or not safe:
            remedy = "Write the issuer as the provider does: https://..."
            raise InputError("api_oidc_issuer", self.issuer, "this is no https address", remedy)
        if not self.audience:
            problem = "without an audience, tokens for other services would be taken"
            raise InputError("api_oidc_audience", "", problem, "Name ours at the provider.")


# claims by which a directory (SCIM) may know the holder; they shut out, and never let in. The `sub`
# of Entra ID is another one for each client (its "ID token claims reference"), `oid` is not
OTHER_NAMES = ("oid", "preferred_username", "upn", "email")


class OidcProvider:
    """Tokens of one provider. Keys older than an hour are refused while it does not answer."""

    def __init__(
        self, site: OidcSite, now: Callable[[], float], ca_file: Path | None = None
    ) -> None:
        site.check()
        self._site = site
        self._now = now
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._discovery: Mapping[str, Any] = {}
        self._fetched_at = -KEYS_FRESH_S
        self._asked_at = -KEYS_AGAIN_S
        self._fetching = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._ca_file = ca_file

    async def identify_caller(self, token: str) -> Caller | None:
        claims = await self.verify_token(token, self._site.audience)
        return None if claims is None else self.find_caller(claims)

    async def verify_token(self, token: str, audience: str) -> Mapping[str, Any] | None:
        """Return the claims of a token for this audience, or None; the log has the reason."""
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(str(header.get("kid", "")))
            if key is None:
                raise jwt.InvalidTokenError("it is not signed by a key of the provider")
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],  # one of ours: `_keys_of` takes no others
                audience=audience,
                issuer=self._site.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
            self._check_methods(claims)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            log.info("a token of the provider was refused: %s", str(error)[:200])
            return None
        return claims

    def _check_methods(self, claims: Mapping[str, Any]) -> None:
        """Raise InvalidTokenError unless the person signed in by a method that the site demands."""
        named = claims.get("amr")
        methods = named if isinstance(named, list) else []
        if self._site.methods and not any(m in methods for m in self._site.methods):
            demanded = " or ".join(self._site.methods)
            raise jwt.InvalidTokenError(f"its sign-in (amr) was not by {demanded}")

    def find_caller(self, claims: Mapping[str, Any]) -> Caller | None:
        """Return the caller with the roles that verified claims give it, or None without any."""
        claimed = _claim(claims, self._site.roles_claim)
        claimed = claimed.split() if isinstance(claimed, str) else claimed
        if not isinstance(claimed, list):
            return None
        prefix = self._site.role_prefix
        own = {w[len(prefix) :] for w in claimed if isinstance(w, str) and w.startswith(prefix)}
        tenant = _claim(claims, self._site.tenant_claim)
        subject = str(claims.get("sub", ""))[:200]
        tenant = tenant if isinstance(tenant, str) else ""
        caller = caller_of(subject, frozenset(own), tenant, self._site.issuer)
        if caller is None:
            return None
        also = tuple(
            claims[name][:200]
            for name in OTHER_NAMES
            if isinstance(claims.get(name), str) and claims[name]
        )
        proof = {"issuer": self._site.issuer, "expires_at": float(claims["exp"]), "also": also}
        return caller.model_copy(update=proof)

    async def read_discovery(self) -> Mapping[str, Any]:
        """Return the discovery document, at most an hour old; {} while it cannot be read."""
        if self._now() - self._fetched_at > KEYS_FRESH_S:
            await self._refresh()
        return self._discovery if self._now() - self._fetched_at <= KEYS_FRESH_S else {}

    async def post_form(
        self, address: str, form: Mapping[str, str], authorization: str
    ) -> dict[str, Any]:
        """Post a form and return the JSON object. Raises ValueError, OSError or ClientError."""
        headers = {"Accept": "application/json"}
        if authorization:
            headers["Authorization"] = authorization
        async with (
            asyncio.timeout(TIMEOUT_S),
            self._connect().post(
                address, data=form, headers=headers, allow_redirects=False
            ) as answer,
        ):
            return await _read_object(answer, address)

    async def _key(self, kid: str) -> jwt.PyJWK | None:
        if self._now() - self._fetched_at > KEYS_FRESH_S or kid not in self._keys:
            await self._refresh()
        if self._now() - self._fetched_at > KEYS_FRESH_S:
            return None
        if not kid and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    async def _refresh(self) -> None:
        async with self._fetching:  # callers that come while the keys are fetched wait for them
            if self._now() - self._asked_at >= KEYS_AGAIN_S:
                self._asked_at = self._now()
                await self._fetch()

    async def _fetch(self) -> None:
        """Fetch the discovery document, then the keys; a failure is logged and never raised."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                discovery = await self._document(
                    self._site.issuer.rstrip("/") + "/.well-known/openid-configuration"
                )
                if discovery.get("issuer") != self._site.issuer:
                    raise ValueError("it names another issuer than api_oidc_issuer")
                address = str(discovery.get("jwks_uri", ""))
                if urlsplit(address).scheme != urlsplit(self._site.issuer).scheme:
                    raise ValueError("its keys are at an address of another scheme")
                self._keys = _keys_of(await self._document(address))
                self._discovery = discovery
                self._fetched_at = self._now()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, RecursionError) as error:
            log.warning("keys of %s cannot be read: %s", self._site.issuer, str(error)[:200])

    async def _document(self, address: str) -> dict[str, Any]:
        async with self._connect().get(address, allow_redirects=False) as answer:
            return await _read_object(answer, address)

    def _connect(self) -> aiohttp.ClientSession:
        if self._session is None:
            trusted = ssl.create_default_context(cafile=self._ca_file)
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted))
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


async def _read_object(answer: aiohttp.ClientResponse, address: str) -> dict[str, Any]:
    if answer.status != 200:
        raise ValueError(f"{address} answers {answer.status}")
    body = b""
    async for part in answer.content.iter_any():
        body += part
        if len(body) > DOCUMENT_MAX:
            raise ValueError(f"{address} answers with more than {DOCUMENT_MAX} bytes")
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError(f"{address} is no JSON object")
    return document


def _keys_of(document: Mapping[str, Any]) -> Mapping[str, jwt.PyJWK]:
    """Return the signing keys by id, without those of an unsupported kind."""
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise ValueError("the provider lists no keys")
    keys = {}
    for entry in listed[:KEYS_MAX]:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK(entry)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        if key.algorithm_name in ALGORITHMS:
            keys[str(entry.get("kid", ""))] = key
    return keys


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    value: Any = claims.get(path)
    if value is None:  # a claim's own name may have dots; otherwise they lead into objects
        value = claims
        for word in path.split("."):
            value = value.get(word) if isinstance(value, dict) else None
    return value
