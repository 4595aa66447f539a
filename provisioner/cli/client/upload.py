"""`provisioner image upload`: digest, then a dry run, then the bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from provisioner.cli.client.connection import (
    Answer,
    CaOption,
    ContextOption,
    DataOption,
    ServerOption,
    TokenOption,
    open_connection,
)
from provisioner.cli.client.following import follow_operation
from provisioner.cli.client.output import show_problem
from provisioner.cli.options.checked_options import JsonOption
from provisioner.model.input_error import InputError

CHUNK_BYTES = 1024 * 1024
WAITS = 3  # exit code: another person has to approve it


def upload_image(
    file: Annotated[Path, typer.Argument(help="File to upload.", show_default=False)],
    name: Annotated[
        str, typer.Option(help="Name in the store; by default the file's own.", show_default=False)
    ] = "",
    note: Annotated[str, typer.Option(help="What it is, in a sentence.", show_default=False)] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only ask whether it would be taken.")
    ] = False,
    as_json: JsonOption = False,
    context: ContextOption = "",
    data: DataOption = None,
    server: ServerOption = "",
    token_file: TokenOption = None,
    ca_file: CaOption = None,
) -> None:
    """Upload a file into the artifact store, verified by its SHA-256.

    Nothing is sent before the daemon answered that it takes a file of this length and digest. No
    node gets the file by that: pin it in the matrix by the digest that is printed.

    Example: provisioner image upload ubuntu-22.04-hgx-7.qcow2 --note 'with DOCA 3.1'
    """
    reach = open_connection(
        context=context, data=data, server=server, token_file=token_file, ca_file=ca_file
    )
    path = f"/images/{quote(name or file.name, safe='')}"
    try:
        size_bytes = file.stat().st_size
        digest = hashlib.sha256()
        for chunk in _read_chunks(file, size_bytes, "reading", shown=not as_json):
            digest.update(chunk)
        query = {"sha256": digest.hexdigest(), "size_bytes": str(size_bytes), "note": note}
        asked = reach.send_request("PUT", path, {**query, "dry_run": "true"})
        there = asked.good and asked.document["result"].get("there") and not note
        if dry_run or there or not asked.good or asked.document["blockers"]:
            _finish(asked, query, as_json=as_json)
            return
        chunks = _read_chunks(file, size_bytes, "sending", shown=not as_json)
        answer = reach.send_file(path, query, size_bytes, chunks)
    except FileNotFoundError:
        raise InputError("FILE", str(file), "there is no such file", "Check its path.") from None
    except OSError as error:
        problem = f"it cannot be read ({error.strerror or error})"
        raise InputError("FILE", str(file), problem, "Check its owner and mode.") from None
    _finish(follow_operation(reach, answer, to_the_end=False), query, as_json=as_json)


def _read_chunks(file: Path, size_bytes: int, word: str, *, shown: bool) -> Iterator[bytes]:
    """Yield the file's bytes, with a bar on a terminal's standard error."""
    stream = typer.get_text_stream("stderr")
    hidden = not (shown and stream.isatty())
    with (
        file.open("rb") as opened,
        typer.progressbar(length=size_bytes, label=word, file=stream, hidden=hidden) as bar,
    ):
        while chunk := opened.read(CHUNK_BYTES):
            yield chunk
            bar.update(len(chunk))


def _finish(answer: Answer, query: dict[str, str], *, as_json: bool) -> None:
    """Print an answer and end with its exit code."""
    document: Any = answer.document
    if not answer.good:
        show_problem(document, answer.status, "json" if as_json else "table")
        raise typer.Exit(2 if answer.status in (400, 413, 422) else 1)
    from provisioner.cli.client.output import show_blockers, show_document

    def write() -> None:
        for line in (document.get("result") or {}).get("lines", ()):
            typer.echo(line)
        show_blockers(document["blockers"])
        if document["state"] != "dry_run":
            typer.echo(f"{document['subject']}: {document['state']} ({document['id']})")
        typer.echo(f"sha256: {query['sha256']}")

    show_document(document, "json" if as_json else "table", write)
    if document["blockers"] or document["state"] == "failed":
        raise typer.Exit(1)
    if document["state"] == "waiting":
        raise typer.Exit(WAITS)
