"""`provisioner sign-in` and `sign-out`: the command line's sign-in at the site's OIDC provider."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

import typer

from provisioner.cli.client.connection import NoAnswer, Place, connect, find_file, find_place
from provisioner.cli.options.checked_options import JsonOption
from provisioner.model.input_error import InputError
from provisioner.runtime.whole_files import replace_file

# ------------------------------------------------------------------------------
# Sign-in of the command line at the site's OIDC provider: the device flow.
#
# The person opens the provider's page in any browser and types a short code there; the command asks
# the provider now and then whether that is done. No password and no token passes the terminal. Only
# the standard library is used, so that a command that refreshes its token starts fast.
#
# Sources: RFC 8628 (device authorization grant); RFC 6749 section 6 (refresh); RFC 7009
# (revocation); OpenID Connect Discovery 1.0 section 4.


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


# ------------------------------------------------------------------------------
# Sign-ins of the command line, one file for each daemon: the provider's tokens, mode 0600.
#
# A command takes its token from here where no token file is named, and refreshes it when it is
# about to expire. Two commands at once refresh it once: the file is locked meanwhile.


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
        replace_file(path, json.dumps(asdict(signed_in)))
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError(str(path), "", problem, "Check its owner and mode.") from None
    return path


def remove_sign_in(server: str) -> None:
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
