"""Routes of the matrix's files: the base and the overlays that are in force, and a trial of others.

Rule: no request brings a matrix. It is read from files of the daemon's machine, at its start and at
a reload, and every daemon of a site has to work by the same ones (docs/decisions/0106). A trial
reads overlays that come in the body as the start would, and shows the pins that would differ.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, build_objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Effect, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.diff import PinChange, find_lost_releases, list_pin_changes
from provisioner.planning.matrix.matrix_text import FILES_MAX, parse
from provisioner.planning.matrix.readiness import judge_readiness

TAG = "releases"
LINES_MAX = 100
TEXT_MAX = 4 * 1024 * 1024  # characters; the shipped matrix has some 100,000


class MatrixFile(Record):
    """A file of the matrix in force."""

    file: int = Field(description="Its number: 0 is the base, each later one lies over the former.")
    name: str = Field(description="Its path at the daemon's start.")
    sha256: str = Field(description="Digest of its text, as it was read.")
    characters: int = Field(description="Length of its text.")


class MatrixFiles(Record):
    """The matrix that the daemon runs, and the files that it was read from."""

    sha256: str = Field(description="Digest of the whole matrix.")
    items: tuple[MatrixFile, ...] = Field(description="The base, then the overlays, in order.")


class MatrixText(MatrixFile):
    """A file of the matrix in force, with its text."""

    text: str = Field(description="Its text, as it was read at the daemon's start.")


class Overlay(Record):
    """An overlay that is tried."""

    name: str = Field(min_length=1, max_length=200, description="Name for messages.")
    text: str = Field(min_length=1, max_length=TEXT_MAX, description="The overlay, as YAML.")


class Trial(Record):
    """The body of a trial."""

    overlays: tuple[Overlay, ...] = Field(
        min_length=1, max_length=FILES_MAX, description="Overlays, in the order of their laying."
    )
    instead: bool = Field(
        default=False, description="true: instead of the overlays in force; false: over them."
    )


class Objection(Record):
    """The first fault of the overlays."""

    source: str = Field(description="File of the fault.")
    where: str = Field(description="Its place in the file.")
    problem: str = Field(description="The fault.")
    remedy: str = Field(description="What to do.")


class TriedMatrix(Record):
    """The result of a trial: a fault, or the pins that would differ."""

    sha256: str = Field(description="Digest of the whole matrix that would be; empty: a fault.")
    objection: Objection | None = Field(description="The first fault; null: there is none.")
    changes: tuple[PinChange, ...] = Field(description="Pins that would differ.")
    gained: tuple[str, ...] = Field(description="Release/profile that production would accept.")
    lost: tuple[str, ...] = Field(description="Release/profile that production would refuse.")


async def show_matrix(ask: Ask) -> Reply:
    items = tuple(_describe(n, name, text) for n, (name, text) in enumerate(_texts(ask)))
    return Reply(MatrixFiles(sha256=ask.parts.matrix.digest(), items=items))


async def show_matrix_file(ask: Ask) -> Reply:
    texts = _texts(ask)
    number = ask.read_word("matrix_file")
    if not number.isdecimal() or not number.isascii() or int(number[:6]) >= len(texts):
        raise refuse_missing("file of the matrix")
    name, text = texts[int(number)]
    return Reply(MatrixText(**dict(_describe(int(number), name, text)), text=text))


async def try_overlays(ask: Ask) -> Reply:
    """Return the matrix that overlays would make. Nothing is changed."""
    texts = _texts(ask)
    if not texts:
        title = "This process does not have the texts of its matrix"
        raise build_refusal(409, "matrix", title, "Ask the daemon (`provisioner serve`).")
    body: Trial = ask.body
    kept = texts[:1] if body.instead else texts
    tried = [*kept, *((o.name, o.text) for o in body.overlays)]
    return Reply(await asyncio.to_thread(_try, ask.parts.matrix, tried))


async def reload_matrix(ask: Ask) -> Reply:
    if ask.parts.reloads is None:
        title = "This daemon reads its matrix at its start alone"
        remedy = "Start each daemon of the site with the new files, one after the other."
        raise build_refusal(409, "matrix", title, remedy)
    return await ask.parts.works.submit_change(ask, ChangeKind.MATRIX_RELOAD, "matrix", "", {})


async def change_matrix(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Read the files again, and work by them; a fault in them leaves all as it is."""
    read = await _read_again(parts, asked.subject)
    if isinstance(read, Outcome):
        return read
    after, texts = read
    changes = list_pin_changes(parts.matrix, after)
    event = RequestCarriedOut(request="reload", by=asked.asked_by, target=after.digest())
    await parts.store.journal.append(event, parts.clock.now())
    assert parts.reloads is not None, "it was read by them"
    parts.reloads.take(after, texts)
    return Outcome(RequestState.DONE, {"sha256": after.digest(), "pins_changed": len(changes)})


async def foresee_matrix(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the pins that would differ, or the fault for which all would stay."""
    read = await _read_again(parts, asked.subject)
    if isinstance(read, Outcome):
        return Forecast(blockers=read.blockers)
    changes = list_pin_changes(parts.matrix, read[0])
    lines = [
        f"{c.release}/{c.profile}: {c.component}: {c.before or 'none'} becomes {c.after or 'none'}"
        for c in changes[:LINES_MAX]
    ]
    if len(changes) > LINES_MAX:
        lines.append(f"and {len(changes) - LINES_MAX} more pins")
    return Forecast(tuple(lines) or ("No pin differs.",))


async def _read_again(
    parts: ApiParts, subject: str
) -> tuple[Matrix, Sequence[tuple[str, str]]] | Outcome:
    """Return the matrix of the files as they are now, or why it cannot be worked by."""
    if parts.reloads is None:
        return build_objection(subject, "it is read at the start alone", "Start the daemon again.")
    try:
        after, texts = await parts.reloads.read()
    except InputError as error:
        where = f"{error.source}, {error.where}" if error.where else error.source
        return build_objection(subject, f"{where}: {error.problem}", error.remedy)
    lost = find_lost_releases(await parts.store.nodes.list(), after)
    if lost:
        name, nodes = next(iter(lost.items()))
        detail = f"it lacks {name}, which is the release of {len(nodes)} nodes, such as {nodes[0]}"
        return build_objection(subject, detail, "Keep that release in the files.")
    return after, texts


def _texts(ask: Ask) -> Sequence[tuple[str, str]]:
    return ask.parts.matrix_texts


def _describe(number: int, name: str, text: str) -> MatrixFile:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return MatrixFile(file=number, name=name, sha256=digest, characters=len(text))


def _try(before: Matrix, texts: Sequence[tuple[str, str]]) -> TriedMatrix:
    try:
        after = parse(texts)
    except InputError as error:
        objection = Objection(
            source=error.source, where=error.where, problem=error.problem, remedy=error.remedy
        )
        return TriedMatrix(sha256="", objection=objection, changes=(), gained=(), lost=())
    was = _list_ready(before)
    would_be = _list_ready(after)
    return TriedMatrix(
        sha256=after.digest(),
        objection=None,
        changes=list_pin_changes(before, after),
        gained=tuple(sorted(would_be - was)),
        lost=tuple(sorted(was - would_be)),
    )


def _list_ready(matrix: Matrix) -> frozenset[str]:
    return frozenset(f"{s.release}/{s.profile}" for s in judge_readiness(matrix) if s.ready)


ROUTES = (
    Route(
        "GET",
        "/matrix",
        "show_matrix",
        TAG,
        "Show the files of the matrix in force: its base and its overlays.",
        VIEWERS,
        show_matrix,
        {200: MatrixFiles},
    ),
    Route(
        "GET",
        "/matrix/files/{matrix_file}",
        "show_matrix_file",
        TAG,
        "Show the text of a base or an overlay, as it was read at the daemon's start.",
        VIEWERS,
        show_matrix_file,
        {200: MatrixText},
    ),
    Route(
        "POST",
        "/matrix/reload",
        "reload_matrix",
        TAG,
        "Read the matrix's files again: the daemon works by them, or says why it keeps the old.",
        OPERATORS,
        reload_matrix,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        site=True,
    ),
    Route(
        "POST",
        "/matrix/trial",
        "try_overlays",
        TAG,
        "Try overlays: the first fault, or the pins that would differ. Nothing is changed.",
        VIEWERS,
        try_overlays,
        {200: TriedMatrix},
        effect=Effect.READS,
        body=Trial,
        body_max=TEXT_MAX,
        example={"overlays": [{"name": "site.yaml", "text": "schema: 1\nreleases: {}\n"}]},
        heavy=True,
    ),
)
