"""`provisioner log witness`: witnesses cosign the log's head, so that no reader gets another log.

A witness is a service of others that cosigns a checkpoint only if the log grew from the last one it
saw (c2sp.org/tlog-witness). It gets the head alone: how many entries, their root, our signature.
"""

from __future__ import annotations

import asyncio
import json
import re
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import typer

from provisioner.cli.client.connection import (
    CaOption,
    Connection,
    ContextOption,
    DataOption,
    NoAnswer,
    ServerOption,
    TokenOption,
    open_connection,
)
from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import open_console
from provisioner.integrations.signed_files.witnessing import (
    BadPolicy,
    Policy,
    parse_policy,
    read_own_lines,
    write_submission,
)
from provisioner.model.input_error import InputError
from provisioner.model.integrations.partition import is_loopback
from provisioner.runtime.shipped import read_text
from provisioner.runtime.whole_files import replace_file

ANSWER_MAX = 64 * 1024  # bytes; a cosignature has some 200
LIMIT_S = 20.0  # for one request
TRIES = 3  # rounds in which the log may have grown, and sizes that one witness may name
CONFLICT = 409
PolicyOption = Annotated[
    Path, typer.Option("--policy", help="Witnesses, keys and quorum: a c2sp.org/tlog-policy.")
]


class Head(NamedTuple):
    """The log's head now, and the proof that it grew from an older size, each hash in hex."""

    size: int
    note: str
    path: tuple[str, ...]

    @property
    def body(self) -> str:
        """The text that is signed."""
        return self.note.rpartition("\n\n")[0]


class NotCosigned(Exception):
    """A witness did not cosign; `str` says why and what would help."""


class Moved(Exception):
    """The log grew while witnesses were asked: they have to be asked about one head."""


def witness(
    policy: PolicyOption,
    out: Annotated[
        Path | None, typer.Option("--out", help="File for the cosigned checkpoint; else printed.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show who would get what; nothing is sent to them.")
    ] = False,
    as_json: JsonOption = False,
    context: ContextOption = "",
    data: DataOption = None,
    server: ServerOption = "",
    token_file: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Have the log's head cosigned by the witnesses of a policy that have a URL.

    They get the number of entries, the root and the site's signature, nothing else. Exit code 1 if
    the policy's quorum is not reached; nothing is written then.

    Example: provisioner log witness --policy witnesses.txt --out checkpoint.txt
    """
    known = read_policy(policy)
    asked = {name: w.url for name, w in known.witnesses.items() if w.url}
    if not asked:
        remedy = "Add the submission prefix: witness NAME KEY https://witness.example/prefix"
        raise InputError(str(policy), "", "none of its witnesses has a URL", remedy)
    for name, url in asked.items():
        _check_url(f"{policy}: {name}", url)
    daemon = open_connection(
        context=context, data=data, server=server, token_file=token_file, ca_file=ca
    )
    if dry_run:
        head = asyncio.run(_read_newest(daemon))
        for name, url in asked.items():
            typer.echo(f"{name}: POST {url.rstrip('/')}/add-checkpoint")
        typer.echo(f"would send:\n{head.note}")
        return
    head, lines, problems = asyncio.run(_ask_all(daemon, known, asked))
    met = known.is_met(dict.fromkeys(lines, 1))
    note = head.note + "".join(lines.values())
    if as_json:
        told = {"size": head.size, "cosigned": sorted(lines), "problems": problems, "quorum": met}
        typer.echo(json.dumps({**told, "checkpoint": note if met else ""}))
    else:
        for name, problem in problems.items():
            open_console().print(f"{name}: {problem}", style="yellow", markup=False)
        state = "the quorum is reached" if met else "NOT the quorum: nothing is written"
        names = ", ".join(sorted(lines)) or "nobody"
        open_console().print(f"{head.size} entries, cosigned by {names}; {state}", markup=False)
    if met and out is not None:
        _write(out, note)
    elif met and not as_json:
        typer.echo(note)
    raise typer.Exit(0 if met else 1)


def read_policy(file: Path) -> Policy:
    """Return the policy of a file. Raises InputError."""
    try:
        return parse_policy(read_text(file))
    except BadPolicy as error:
        remedy = "Write it as c2sp.org/tlog-policy says, with the keys that the witnesses publish."
        raise InputError(str(file), "", str(error), remedy) from None


def read_head(daemon: Connection, since: int = 0) -> Head:
    """Return the log's head with the growth since a size. Raises NotCosigned, NoAnswer."""
    answer = daemon.send_request("GET", "/log", {"since": str(since)})
    told: Any = answer.document
    if not answer.good or not isinstance(told, dict):
        title = told.get("title") if isinstance(told, dict) else ""
        raise NotCosigned(f"the daemon gives no head ({answer.status}): {title or 'no reason'}")
    growth = told.get("since") or {}
    return Head(int(told["size"]), str(told["checkpoint"]), tuple(growth.get("path") or ()))


async def _ask_all(
    daemon: Connection, policy: Policy, asked: dict[str, str]
) -> tuple[Head, dict[str, str], dict[str, str]]:
    """Return one head, the lines of the witnesses that cosigned it, and the problems of others.

    They are asked at once: a slow one holds up no other.
    """
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for _ in range(TRIES):
            head = await _read_newest(daemon)

            async def ask(name: str, url: str, head: Head = head) -> str:
                answer = await _submit(daemon, session, url, head)
                if lines := read_own_lines(answer, head.note, policy, name):
                    return lines
                raise NotCosigned("its answer has no cosignature by the policy's key")

            told = await asyncio.gather(*starmap(ask, asked.items()), return_exceptions=True)
            if any(isinstance(one, Moved) for one in told):
                continue
            lines: dict[str, str] = {}
            problems: dict[str, str] = {}
            for name, one in zip(asked, told, strict=True):
                if isinstance(one, str):
                    lines[name] = one
                elif isinstance(one, NotCosigned | BadPolicy):
                    problems[name] = str(one)
                else:
                    raise one
            return head, lines, problems
    raise NoAnswer("the log grew again and again while witnesses were asked; run it again")


async def _read_newest(daemon: Connection) -> Head:
    try:
        return await asyncio.to_thread(read_head, daemon)
    except NotCosigned as error:
        raise NoAnswer(str(error)) from None


async def _submit(daemon: Connection, session: aiohttp.ClientSession, url: str, head: Head) -> str:
    """Return the signature lines of one witness. Raises NotCosigned, Moved."""
    old = 0
    path: tuple[str, ...] = ()
    for _ in range(TRIES):
        status, text = await _post(session, url, write_submission(old, path, head.note))
        if status == 200:
            return text
        if status != CONFLICT:
            raise NotCosigned(_MEANINGS.get(status, f"it answered {status}"))
        size = re.fullmatch(r"(0|[1-9][0-9]{0,17})\n?", text)
        if size is None:
            raise NotCosigned("it answered 409 and named no size")
        old = int(size[1])
        if old > head.size:
            raise NotCosigned(
                f"it cosigned {old} entries, and the log has {head.size}: the database is another "
                "one, or was restored; see docs/evidence-log.md"
            )
        grown = await asyncio.to_thread(read_head, daemon, old)
        if grown.body != head.body:
            raise Moved
        path = grown.path
    raise NotCosigned("it names another size at each request")


_MEANINGS = {
    400: "it cannot read the request (400)",
    403: "it trusts another key for this log (403): give it `verifier_key` of `log head`",
    404: "it does not know this log (404): give it `verifier_key` of `log head`",
    422: "it saw another log under this name (422): compare checkpoints with its operator at once",
}


async def _post(session: aiohttp.ClientSession, url: str, body: bytes) -> tuple[int, str]:
    address = f"{url.rstrip('/')}/add-checkpoint"
    headers = {"Content-Type": "application/octet-stream"}
    try:
        async with session.post(
            address, data=body, headers=headers, allow_redirects=False
        ) as answer:
            content = await answer.content.read(ANSWER_MAX + 1)
            while len(content) <= ANSWER_MAX and (more := await answer.content.read(ANSWER_MAX)):
                content += more
            if len(content) > ANSWER_MAX:
                raise NotCosigned(f"its answer is larger than {ANSWER_MAX} bytes")
            return answer.status, content.decode("utf-8", "replace")
    except TimeoutError:
        raise NotCosigned(f"it gave no whole answer within {LIMIT_S:.0f} s") from None
    except (aiohttp.ClientError, OSError) as error:
        words = str(error) or type(error).__name__
        raise NotCosigned(f"it cannot be reached: {words[:200]}") from None


def _check_url(where: str, url: str) -> None:
    """Check that a witness is asked over https, or at this machine. Raises InputError."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise InputError(where, url[:100], "this is no URL", "Correct it.") from None
    if parts.scheme == "https" and host and not parts.username:
        return
    if parts.scheme != "http" or not is_loopback(host):
        remedy = "Name the https address that the witness publishes."
        raise InputError(where, url[:100], "a witness is asked over https", remedy)


def _write(file: Path, note: str) -> None:
    try:
        replace_file(file, note, mode=0o666)  # it is published
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError(str(file), "", problem, "Check its folder.") from None
