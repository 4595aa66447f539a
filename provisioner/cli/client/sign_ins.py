"""Sign-ins of the command line, one file for each daemon: the provider's tokens, mode 0600.

A command takes its token from here where no token file is named, and refreshes it when it is about
to expire. Two commands at once refresh it once: the file is locked meanwhile.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from provisioner.cli.client.contexts import Place, find_file
from provisioner.cli.client.device_flow import (
    Endpoints,
    Offer,
    Provider,
    ProviderRefused,
    Tokens,
    read_object,
)
from provisioner.model.input_error import InputError

EARLY_S = 60.0  # a token is refreshed this long before it expires
SIGN_IN = "Run `provisioner sign-in`."


@dataclass(frozen=True)
class SignIn:
    """One sign-in: the daemon's address, its provider, and the tokens that it gave."""

    server: str
    offer: Offer
    endpoints: Endpoints
    tokens: Tokens


def find_sign_in(server: str) -> SignIn | None:
    """Return the sign-in at a daemon; None without one, or with a file that cannot be read."""
    return _read(_find_path(server))


def keep_sign_in(signed_in: SignIn) -> Path:
    """Write a sign-in, for its owner alone; return its file. Raises InputError."""
    path = _find_path(signed_in.server)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(signed_in), file)
        new.replace(path)
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError(str(path), "", problem, "Check its owner and mode.") from None
    return path


def remove_sign_in(server: str) -> None:
    """Remove the sign-in at a daemon."""
    for path in (_find_path(server), _find_path(server).with_suffix(".lock")):
        path.unlink(missing_ok=True)


def read_fresh_token(place: Place) -> str:
    """Return a token for a daemon from its sign-in, refreshed; "" without a sign-in.

    Raises InputError when the person has to sign in again.
    """
    signed_in = find_sign_in(place.server)
    if signed_in is None:
        return ""
    if _is_fresh(signed_in.tokens):
        return signed_in.tokens.access
    with _locked(_find_path(place.server)):
        signed_in = find_sign_in(place.server) or signed_in
        if _is_fresh(signed_in.tokens):  # another command was faster
            return signed_in.tokens.access
        if not signed_in.tokens.refresh:
            raise InputError("sign-in", place.server[:80], "it has expired", SIGN_IN)
        provider = Provider(signed_in.offer, build_trust(place.ca))
        try:
            tokens = provider.refresh(signed_in.endpoints, signed_in.tokens)
        except ProviderRefused as refused:
            raise InputError("sign-in", place.server[:80], str(refused), refused.remedy) from None
        except OSError as error:
            problem = f"the provider does not answer: {error}"
            remedy = "Try again, or name a token file."
            raise InputError("sign-in", signed_in.offer.issuer, problem, remedy) from None
        keep_sign_in(replace(signed_in, tokens=tokens))
        return tokens.access


def build_trust(ca: str) -> ssl.SSLContext:
    """Return a context that trusts the system's CAs, and the one of the place."""
    trust = ssl.create_default_context()
    if ca:
        trust.load_verify_locations(cafile=ca)
    return trust


def _is_fresh(tokens: Tokens) -> bool:
    return not tokens.expires_at or time.time() < tokens.expires_at - EARLY_S


def _find_path(server: str) -> Path:
    digest = hashlib.sha256(server.rstrip("/").encode()).hexdigest()[:32]
    return find_file().parent / "sign-ins" / f"{digest}.json"


def _read(path: Path) -> SignIn | None:
    try:
        with path.open("rb") as file:
            document = read_object(file.read(1024 * 1024))
        offer = dict(document["offer"])
        offer["scopes"] = tuple(offer["scopes"])
        return SignIn(
            str(document["server"]),
            Offer(**offer),
            Endpoints(**document["endpoints"]),
            Tokens(**document["tokens"]),
        )
    except (OSError, TypeError, ValueError, KeyError):
        return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
