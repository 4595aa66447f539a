"""`provisioner sign-in` and `sign-out`: the command line's sign-in at the site's OIDC provider."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from provisioner.cli.client.connection import NoAnswer, Place, connect, find_file, find_place
from provisioner.cli.client.device_flow import (
    LIMIT_S,
    Endpoints,
    Offer,
    Provider,
    ProviderRefused,
    Tokens,
    read_object,
)
from provisioner.cli.options.checked_options import JsonOption
from provisioner.model.input_error import InputError

# ------------------------------------------------------------------------------
# Sign-ins of the command line, one file for each daemon: the provider's tokens, mode 0600.
#
# A command takes its token from here where no token file is named, and refreshes it when it is
# about
# to expire. Two commands at once refresh it once: the file is locked meanwhile.


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


OFFER = "/console/sign-in-offer"
OFFER_MAX = 64 * 1024  # bytes
ContextOption = Annotated[str, typer.Option("--context", help="The daemon of this context.")]
ServerOption = Annotated[str, typer.Option("--server", help="https://HOST:PORT of a daemon.")]
CaOption = Annotated[
    Path | None, typer.Option("--ca", help="File with the CA of the daemon's certificate.")
]


def sign_in(
    context: ContextOption = "",
    server: ServerOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sign in at the site's OIDC provider: open its page in any browser and type the code.

    Example: provisioner sign-in --server https://lab.example:8443
    """
    place = _find_server(context, server, ca)
    offer = _read_offer(place)
    provider = Provider(offer, build_trust(place.ca))
    try:
        endpoints = provider.find_endpoints()
        code = provider.ask_code(endpoints)
        typer.echo(f"Open {code.whole_page or code.page}", err=True)
        typer.echo(f"and check or type the code {code.user_code}.", err=True)
        typer.echo(f"Waiting, at most {code.expires_s / 60:.0f} minutes …", err=True)
        tokens = provider.await_tokens(endpoints, code)
    except ProviderRefused as refused:
        raise NoAnswer(f"{offer.issuer}: {refused}. {refused.remedy}") from None
    except OSError as error:
        raise NoAnswer(f"{offer.issuer}: {error}") from None
    keep_sign_in(SignIn(place.server, offer, endpoints, tokens))
    me = connect(Place(place.server, ca=place.ca)).send_request("GET", "/me")
    if not me.good:
        remove_sign_in(place.server)
        raise NoAnswer(
            f"{place}: the daemon does not take the provider's token. Let the provider issue JWT "
            "access tokens with the daemon's api_oidc_audience and a role (docs/access.md)."
        )
    if as_json:
        typer.echo(json.dumps(me.document))
    else:
        roles = ", ".join(me.document["roles"])
        typer.echo(f"signed in to {place} as {me.document['subject']} ({roles})")


def sign_out(context: ContextOption = "", server: ServerOption = "", ca: CaOption = None) -> None:
    """End the sign-in at a daemon: its tokens are revoked at the provider and removed here.

    Example: provisioner sign-out
    """
    place = _find_server(context, server, ca)
    signed_in = find_sign_in(place.server)
    if signed_in is None:
        raise InputError(
            "--server", place.server[:80], "there is no sign-in", "Nothing is left to do."
        )
    provider = Provider(signed_in.offer, build_trust(place.ca))
    try:
        revoked = provider.revoke(signed_in.endpoints, signed_in.tokens)
    except (OSError, ProviderRefused):
        revoked = False
    remove_sign_in(place.server)
    note = "" if revoked else "; the provider did not revoke its token, which ends by itself"
    typer.echo(f"signed out of {place}{note}")


def _find_server(context: str, server: str, ca: Path | None) -> Place:
    place = find_place({"context": context, "server": server, "ca_file": ca})
    if not place.server.startswith("https://"):
        remedy = "Give --server https://HOST:PORT. At its own socket a daemon needs no sign-in."
        raise InputError("--server", place.server[:80], "no https address is named", remedy)
    return place


def _read_offer(place: Place) -> Offer:
    parts = urlsplit(place.server)
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port or 443, timeout=LIMIT_S, context=build_trust(place.ca)
    )
    try:
        with closing(connection):
            connection.request("GET", OFFER)
            document = read_object(connection.getresponse().read(OFFER_MAX))
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"{place}: {error}") from None
    offer = document.get("device")
    if not isinstance(offer, dict) or not offer.get("issuer") or not offer.get("client_id"):
        remedy = "Set api_oidc_device_client_id there (docs/access.md), or use a token file."
        raise NoAnswer(f"{place}: command lines cannot sign in at a provider. {remedy}")
    scopes = tuple(str(s) for s in offer.get("scopes") or ("openid",))
    return Offer(str(offer["issuer"]), str(offer["client_id"]), scopes)
