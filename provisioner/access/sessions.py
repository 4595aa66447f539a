"""Sessions of browsers: opened with a token, identified by a secret that only the browser keeps.

Rule: a session permits less than the token that opened it. It ends with the token, after a while
without use, and when its holder signs out; it makes no destructive change unless the token was
shown shortly before.
"""

from __future__ import annotations

import re
import secrets
from typing import Protocol

from provisioner.access.tokens import bounds_of, sha256_of
from provisioner.model.access import Caller, Session, SessionLimits, Token

PREFIX = "prs_"  # recognisable in a log or a repository; never valid as a bearer token
SECRET = re.compile(r"prs_[A-Za-z0-9_-]{43}")
USED_LATE_S = 60.0  # the use of a session is written once a minute, not at each request


class SessionRepository(Protocol):
    """The store of sessions, which all daemons of a site share."""

    async def find_session(self, digest: str) -> tuple[Session, Token | None] | None: ...

    async def use_session(self, session_id: str, now: float) -> None: ...


def new_session(caller: Caller, limits: SessionLimits, now: float) -> tuple[str, Session]:
    """Return the secret, to be given to the browser once, and the row."""
    assert not caller.session, "a session begins no session"
    secret = PREFIX + secrets.token_urlsafe(32)
    end = now + limits.whole_s
    session = Session(
        id=secrets.token_hex(4),
        sha256=sha256_of(secret),
        subject=caller.subject,
        also=caller.also,
        roles=caller.roles,
        tenant=caller.tenant,
        bounds=caller.bounds,
        token=caller.token,
        issuer=caller.issuer,
        made_at=now,
        used_at=now,
        expires_at=min(end, caller.expires_at) if caller.expires_at else end,
    )
    return secret, session


def caller_of_session(
    session: Session, token: Token | None, limits: SessionLimits, issuer: str, now: float
) -> Caller | None:
    """Return the session's holder with the permissions it has now, or None.

    `token` is the row of the local token that opened it. `issuer` is the provider that the site
    trusts now; sessions of another one have ended.
    """
    if not session.is_valid(limits, now):
        return None
    roles = session.roles
    tenant = session.tenant
    bounds = session.bounds
    if session.token:
        if token is None or token.id != session.token or not token.is_valid(now):
            return None
        roles = frozenset({token.role})
        tenant = token.tenant
        bounds = bounds_of(token)
    elif not issuer or session.issuer != issuer:
        return None
    return Caller(
        subject=session.subject,
        also=session.also,
        roles=roles,
        tenant=tenant,
        bounds=bounds,
        via=f"session {session.id}",
        token=session.token,
        issuer=session.issuer,
        session=session.id,
        signed_in_at=session.made_at,
    )


def is_fresh(caller: Caller, limits: SessionLimits, now: float) -> bool:
    """Return whether a token was shown with the request, or shortly before it."""
    return not caller.session or 0.0 <= now - caller.signed_in_at <= limits.proof_s


def use_is_due(session: Session, limits: SessionLimits, now: float) -> bool:
    return now - session.used_at >= min(USED_LATE_S, limits.idle_s / 10)
