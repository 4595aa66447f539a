"""`provisioner sign-in` and `sign-out`: the command line's sign-in at the site's OIDC provider."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from provisioner.cli.client.connection import NoAnswer, connect
from provisioner.cli.client.contexts import Place, find_place
from provisioner.cli.client.device_flow import (
    LIMIT_S,
    Offer,
    Provider,
    ProviderRefused,
    read_object,
)
from provisioner.cli.client.sign_ins import (
    SignIn,
    build_trust,
    find_sign_in,
    keep_sign_in,
    remove_sign_in,
)
from provisioner.cli.options.showing import JsonOption
from provisioner.model.input_error import InputError

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
