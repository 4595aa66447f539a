"""Converts a command's options before the request; secrets are made here and shown once.

A token never leaves this program; the daemon gets its SHA-256. A function may return a second one
that runs once the daemon agreed: it shows the secret.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from provisioner.model.input_error import InputError

if TYPE_CHECKING:
    from provisioner.model.expected import Expected


# ------------------------------------------------------------------------------
# Builds the parameters and the body of a request from the options and files of a command.


# fields of the answer that hold the file, where --out or a pipe asks for one
FILED: Mapping[str, str] = {
    "certificate export": "envelope",
    "certificate revocations": "envelope",
    "node erasure": "envelope",
    "usage statement": "envelope",
    "log head": "checkpoint",
    "log export": "bundle",
}
FILE_IS_A_LIST = ("intake", "case factory")  # --file is the expected-hardware list, not the body
Spec = Mapping[str, Any]
Given = dict[str, Any]


def format_text(option: Spec, given: Given) -> str:
    value = _value(option, given[option["name"]])
    return str(value).lower() if isinstance(value, bool) else str(value)


def build_body(command: str, spec: Spec, given: Given) -> dict[str, Any]:
    """Return the body: the file's content with the options laid over it."""
    file = given.get("file") if command not in FILE_IS_A_LIST else None
    body: Any = {} if file is None else _document(Path(file), "--file")
    if not isinstance(body, dict):
        raise InputError("--file", str(file), "it is no mapping", "Write lines of `name: value`.")
    for option in spec["body"]:
        value = given.get(option["name"])
        if value not in (None, [], ""):
            body[option["name"]] = _value(option, value)
    missing = [o["name"] for o in spec["body"] if o.get("required") and o["name"] not in body]
    if missing:
        names = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise InputError(names, "", "it is not given", f"Example: provisioner {spec['example']}")
    return body


def _value(option: Spec, value: Any) -> Any:
    flag = "--" + option["name"].replace("_", "-")
    if option["kind"] == "time":
        return parse_time(flag, value)
    if option["kind"] == "document" and isinstance(value, str | Path):
        return _document(Path(value), flag)
    if option["kind"] == "file" and isinstance(value, Path):
        return _read(value, flag)
    return value


def _document(path: Path, flag: str) -> Any:
    """Return the content of a YAML or JSON file; `-` is the standard input."""
    from provisioner.planning.matrix.located_yaml import load

    return load(str(path), _read(path, flag)).tree


def _read(path: Path, flag: str) -> str:
    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", "") or "not UTF-8"
        problem = f"it cannot be read ({cause})"
        raise InputError(flag, str(path), problem, "Check the path.") from None


def parse_time(option: str, value: Any) -> str:
    """Return a time, of UTC unless it names an offset, as the API takes it. Raises InputError."""
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        problem = f"{value!r:.40} is no time"
        raise InputError(option, "", problem, "Write it like 2026-12-24T18:00.") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


TOKEN_PREFIX = "prv_"  # noqa: S105 (how tokens begin)
SECRET_PREFIX = "whsec_"  # noqa: S105 (how secrets begin)
TOKEN_BYTES = 32
SECRET_BYTES = 32
After = Callable[[Any], None]


def make_token(given: Given) -> After:
    """Make a token and send its digest; show the token once the daemon stored it."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    given["sha256"] = hashlib.sha256(token.encode()).hexdigest()

    def show(document: Any) -> None:
        result = document.get("result") or {}
        if given.get("as_json") or given.get("output") in ("json", "yaml"):
            document["token"] = token
            return
        typer.echo(token)
        label = f"{result.get('token', document['id'])}: {given['role']} {given['subject']}"
        waits = ", once another person approved it" if document["state"] == "waiting" else ""
        typer.echo(label + waits, err=True)

    return show


def make_webhook_secret(given: Given) -> After | None:
    """Make a webhook's secret where no file has one; show it once it is in use."""
    if given.get("secret") is not None:
        given["secret"] = _read_secret(given["secret"])
        return None
    secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    given["secret"] = secret

    def show(document: Any) -> None:
        if given.get("as_json") or given.get("output") in ("json", "yaml"):
            document["secret"] = secret
        else:
            typer.echo(secret)

    return show


def make_next_secret(given: Given) -> After | None:
    """Make the next secret of a webhook, unless the receiver has it already."""
    return None if given.get("done") else make_webhook_secret(given)


def _read_secret(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        problem = f"it cannot be read ({type(error).__name__})"
        raise InputError("--secret-file", str(file), problem, "Check the path.") from None


def read_user_data(given: Given) -> None:
    """Read the file of a user data: it can hold secrets, which a command line would show."""
    file: Path = given["user_data"]
    try:
        given["user_data"] = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        problem = f"it cannot be read ({type(error).__name__})"
        raise InputError("--user-data-file", str(file), problem, "Check the path.") from None


def read_policy(given: Given) -> None:
    """Read a campaign's policy file, with the shorthands that it may have."""
    path = given.get("policy")
    if path is None:
        return
    from provisioner.planning.campaigns.campaign_policy_text import parse_policy
    from provisioner.runtime.shipped import read_text

    given["policy"] = parse_policy(str(path), read_text(path)).model_dump(mode="json")


def read_list(given: Given) -> None:
    """Read the expected-hardware list and resolve the passwords that it refers to."""
    if given.get("expected") is None:
        raise InputError("--file", "", "it is not given", "Name the expected-hardware list.")
    given["expected"] = json.dumps(_resolved(given["expected"]))


def read_adoption(given: Given) -> None:
    """Read the list of serving nodes, with the logins that it refers to.

    With `--from` it is made of another system's hosts, and nothing is carried out without
    `--apply`. Rows that cannot be used are added to the answer's refusals.
    """
    path = Path(given["expected"])
    if not given.get("from_"):
        for field in ("apply", "ports", "tenant", *(f for f in given if f.startswith("source"))):
            if given.get(field):
                remedy = "Name the system too: --from netbox, ironic, nico or csv."
                raise InputError(f"--{field.replace('_', '-')}", "", "it needs --from", remedy)
        given["expected"] = json.dumps(_resolved(path))
        return
    from provisioner.runtime.integrations import find_adoption_sources

    listed = find_adoption_sources()(path, given)
    given["expected"] = json.dumps(_resolve(listed.expected))
    given["recorded_tenants"] = dict(listed.tenants)
    given["dry_run"] = given.get("dry_run") or not given.get("apply")
    given["refused_rows"] = [b.model_dump(mode="json") for b in listed.refused]


def read_factory_logins(given: Given) -> None:
    tree = _resolved(given["file"])
    forget = given.get("forget")
    logins = {
        vendor: None if forget else {"username": c["username"], "password": c["password"]}
        for vendor, c in (tree.get("factory_credentials") or {}).items()
    }
    if not logins:
        raise InputError("--file", str(given["file"]), "it has no factory credentials", "Add them.")
    given["logins"] = logins


def _resolved(path: Path) -> dict[str, Any]:
    """Return a file's list with every password in it. Raises InputError."""
    from provisioner.daemon.data import read_expected

    return _resolve(read_expected(path))


def _resolve(expected: Expected) -> dict[str, Any]:
    from provisioner.daemon.data import read_secrets

    secrets = read_secrets(expected, os.environ)
    tree: dict[str, Any] = expected.model_dump(mode="json")
    logins = [(tree["factory_credentials"][v], s) for v, (_, s) in secrets.factory.items()]
    named = {n["name"]: n for n in tree["nodes"]}
    logins += [(named[n], s) for n, (_, s) in secrets.switches.items()]
    for place, secret in logins:
        place |= {"password": secret.reveal(), "password_env": "", "password_file": ""}
    return tree
