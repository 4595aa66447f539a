"""Resolve the Authorization header of a request, or a session's secret, to a caller (RFC 6750).

Rule: fails closed. An unknown, expired or revoked token, an unreachable provider and an undeclared
role all give no caller; the log has the reason without the token.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from pydantic import ValidationError

from provisioner.access.sessions import SECRET, SessionRepository, caller_of_session, use_is_due
from provisioner.access.tokens import TOKEN, bounds_of, sha256_of
from provisioner.model.access import SCOPED, Bound, Caller, Role, Scope, SessionLimits, Token
from provisioner.ports import Clock

# ------------------------------------------------------------------------------
# Roles that a provider claims for a person, each with the scope that the claim names.
#
# `operator` is for the whole site. `operator@rack=su0-*,tenant=red` is for nodes of the tenant red
# in
# these racks; names of one noun are alternatives. Several claims of one role add up. Rule: a
# scope that cannot be read gives no role, since the rest of the claim would be too much.


log = logging.getLogger(__name__)

FIELDS = {"rack": "racks", "release": "releases", "tenant": "tenants"}


def read_claims(claimed: frozenset[str]) -> tuple[frozenset[Role], tuple[Bound, ...]]:
    """Return the roles of these claims, and the scopes of those that are for a part of the site."""
    whole: set[Role] = set()
    bounds: list[Bound] = []
    for claim in sorted(claimed):
        name, at, text = claim.partition("@")
        role = next((r for r in Role if r.value == name), None)
        if role is None:
            continue
        if not at:
            whole.add(role)
            continue
        scope = read_scope(text) if role in SCOPED else None
        if scope is None:
            log.warning("a claim of %s gives no role: its scope cannot be read", role.value)
        else:
            bounds.append(Bound(role=role, scope=scope))
    kept = tuple(b for b in bounds if b.role not in whole)
    return frozenset(whole | {b.role for b in kept}), kept


def read_scope(text: str) -> Scope | None:
    """Return the scope of "rack=su0-*,tenant=red"; None: it names no part of a site."""
    lists: defaultdict[str, list[str]] = defaultdict(list)
    for word in text.split(","):
        noun, _, glob = word.partition("=")
        if noun not in FIELDS:
            return None
        lists[FIELDS[noun]].append(glob)
    try:
        return Scope.model_validate(dict(lists))
    except ValidationError:
        return None


HEADER_MAX = 8000  # characters; an OIDC token with many groups has some 4,000

FindToken = Callable[[str], Awaitable[Token | None]]
IsShutOut = Callable[[Collection[str]], Awaitable[bool]]


class Provider(Protocol):
    """A reader of tokens that another system issued: OIDC."""

    async def identify_caller(self, token: str) -> Caller | None: ...

    async def close(self) -> None: ...


class Identity:
    """Identification by local tokens first; other tokens go to the OIDC provider, if any."""

    def __init__(
        self,
        find: FindToken,
        clock: Clock,
        provider: Provider | None = None,
        sessions: SessionRepository | None = None,
        limits: SessionLimits | None = None,
        issuer: str = "",
        is_shut_out: IsShutOut | None = None,
    ) -> None:
        """`is_shut_out` tells whether a directory has shut out a person; None: there is none."""
        self._find = find
        self._clock = clock
        self._provider = provider
        self._sessions = sessions
        self._limits = limits
        self._issuer = issuer
        self._is_shut_out = is_shut_out

    async def identify_caller(self, authorization: str) -> Caller | None:
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or len(token) > HEADER_MAX:
            return None
        if TOKEN.fullmatch(token):
            return await self._admit(await self._local(token))
        if self._provider is not None and token.count(".") == 2:  # a JWS has three parts
            return await self._admit(await self._provider.identify_caller(token))
        return None

    async def _admit(self, caller: Caller | None) -> Caller | None:
        """Return the caller, or None where the directory has deactivated or deleted it."""
        if caller is None or self._is_shut_out is None:
            return caller
        if not await self._is_shut_out((caller.subject, *caller.also)):
            return caller
        log.info("%s (%s) is not active in the directory", caller.subject, caller.via)
        return None

    async def _local(self, token: str) -> Caller | None:
        token_row = await self._find(sha256_of(token))
        if token_row is None:
            return None
        if not token_row.is_valid(self._clock.now()):
            log.info("token %s of %s is no longer good", token_row.id, token_row.subject)
            return None
        return Caller(
            subject=token_row.subject,
            roles=frozenset({token_row.role}),
            tenant=token_row.tenant,
            bounds=bounds_of(token_row),
            via=f"token {token_row.id}",
            token=token_row.id,
        )

    async def identify_session(self, secret: str, *, attended: bool) -> Caller | None:
        """Return the holder of a session, or None; `attended` counts as its use."""
        if self._sessions is None or self._limits is None or not SECRET.fullmatch(secret):
            return None
        stored = await self._sessions.find_session(sha256_of(secret))
        if stored is None:
            return None
        now = self._clock.now()
        session, token = stored
        caller = caller_of_session(session, token, self._limits, self._issuer, now)
        caller = await self._admit(caller)
        if caller is None:
            log.info("session %s of %s is no longer good", session.id, session.subject)
        elif attended and use_is_due(session, self._limits, now):
            await self._sessions.use_session(session.id, now)
        return caller

    async def close(self) -> None:
        if self._provider is not None:
            await self._provider.close()


def caller_of(subject: str, claimed: frozenset[str], tenant: str, via: str) -> Caller | None:
    """Return a caller with those of its claimed roles that exist here, or None.

    None without a role or a subject, and where roles contradict. The role tenant stands alone: a
    caller that is staff and tenant at once would see both sides.
    """
    roles, bounds = read_claims(claimed)
    if not roles or not subject:
        return None
    if Role.TENANT in roles:
        if len(roles) > 1 or not tenant:
            return None
        return Caller(subject=subject, roles=roles, tenant=tenant, via=via)
    return Caller(subject=subject, roles=roles, bounds=bounds, via=via)
