"""Local tokens: each is made and shown once, and stored as a SHA-256.

256 random bits need no slow hash: they cannot be guessed by trial.
"""

from __future__ import annotations

import hashlib
import re
import secrets

from provisioner.model.access import SCOPED, Bound, Role, Scope, Token
from provisioner.model.input_error import InputError

# the prefix makes a token recognisable where it must not be, in a repository or a log
PREFIX = "prv_"
TOKEN = re.compile(r"prv_[A-Za-z0-9_-]{43}")
SUBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")
DAYS_MAX = 366.0  # an older token has usually been forgotten by its holder
DAY_S = 86400.0
WHOLE = Scope()


def sha256_of(token: str) -> str:
    """Return the stored form of a token, in hex."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def make_token() -> str:
    """Return a new token, which is shown once."""
    return PREFIX + secrets.token_urlsafe(32)


def new_token(
    subject: str, role: Role, tenant: str, days: float, now: float, scope: Scope = WHOLE
) -> tuple[str, Token]:
    """Return a token, which is shown once, and its record. Raises InputError."""
    token = make_token()
    return token, new_record(sha256_of(token), subject, role, tenant, days, now, scope)


def new_record(
    sha256: str,
    subject: str,
    role: Role,
    tenant: str,
    days: float,
    now: float,
    scope: Scope = WHOLE,
) -> Token:
    """Return the record of a new token with this SHA-256. Raises InputError."""
    if not SUBJECT.fullmatch(subject):
        remedy = "Name the person or program: letters, digits and . _ @ + -, at most 100."
        raise InputError("--subject", subject[:100], "this is no name", remedy)
    if (role is Role.TENANT) != bool(tenant):
        problem = "a token of the role tenant, and no other, names a tenant"
        raise InputError("--tenant", tenant, problem, "See docs/access.md.")
    if not scope.whole and role not in SCOPED:
        problem = f"a scope bounds changes, and a {role.value} has none of the site's"
        remedy = "Leave the scope out, or name the role operator or approver."
        raise InputError("--role", role.value, problem, remedy)
    if not 0.0 < days <= DAYS_MAX:
        remedy = f"Say at most {DAYS_MAX:.0f} days; make a new one in time."
        raise InputError("--days", f"{days:g}", "a token cannot live that long", remedy)
    return Token(
        id=secrets.token_hex(4),
        sha256=sha256,
        subject=subject,
        role=role,
        tenant=tenant,
        scope=scope,
        made_at=now,
        expires_at=now + days * DAY_S,
    )


def bounds_of(token: Token) -> tuple[Bound, ...]:
    return () if token.scope.whole else (Bound(role=token.role, scope=token.scope),)
