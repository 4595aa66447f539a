"""Calls of the generated client: run by its own Python, with nothing of ours.

Arguments of the program: a folder with the package `provisioner_client`, and a JSON file with the
site's address, its CA and a token by role.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
import typing
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])
SITE = json.loads(Path(sys.argv[2]).read_text())
client_module = importlib.import_module("provisioner_client")
api = importlib.import_module("provisioner_client.api")
OPERATIONS = {
    name.rpartition(".")[2]: name
    for _, name, package in pkgutil.walk_packages(api.__path__, "provisioner_client.api.")
    if not package
}
PEOPLE = {
    who: client_module.AuthenticatedClient(
        base_url=SITE["url"], token=token, verify_ssl=SITE["ca"], raise_on_unexpected_status=True
    )
    for who, token in SITE["tokens"].items()
}
used: list[str] = []  # the operations of the job that is done now
doers: list[str] = ["operator"]  # its last entry does the job


def ask(name: str, *path: str, who: str = "", body: Any = None, **query: Any) -> Any:
    """Call one generated function; return its parsed answer. A refusal fails the job."""
    call = importlib.import_module(OPERATIONS[name]).sync_detailed
    used.append(name)
    parameters = inspect.signature(call).parameters
    for word, value in query.items():
        default = parameters[word].default  # the generator makes an enumeration of true and false
        query[word] = type(default)(value) if isinstance(default, str) else value
    if body is not None:
        hint = typing.get_type_hints(call)["body"]
        kinds = typing.get_args(hint) or (hint,)
        query["body"] = next(k for k in kinds if hasattr(k, "from_dict")).from_dict(body)
    answer = call(*path, client=PEOPLE[who or doers[-1]], **query)
    status = int(answer.status_code)
    assert status in (200, 202), f"{name}: {status} {answer.content[:300]!r}"
    assert answer.parsed is not None, f"{name}: its answer was not parsed"
    return answer.parsed


def propose(name: str, *path: str, body: Any = None) -> Any:
    """Ask for a dry run, then make the change; return the answer to the dry run."""
    shown = ask(name, *path, body=body, dry_run="true")
    assert shown.state.value == "dry_run", f"{name}: {shown}"
    ask(name, *path, body=body)
    return shown


def save(name: str, path: str) -> bytes:
    """Return a file that the generator has no call for, over the client's own connection."""
    used.append(name)
    answer = PEOPLE[doers[-1]].get_httpx_client().get(path)
    assert answer.status_code == 200, f"{name}: {answer.status_code} {answer.text[:300]}"
    return bytes(answer.content)
