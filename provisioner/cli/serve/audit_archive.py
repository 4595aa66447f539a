"""`provisioner audit archive`, `check-archive` and `prune`: the journal's past in files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.options.confirmation import (
    ActorOption,
    DryRunOption,
    YesOption,
    confirm_change,
    name_actor,
)
from provisioner.cli.options.data_options import DataOption, with_data
from provisioner.cli.options.showing import JsonOption
from provisioner.daemon.data import Data
from provisioner.model.events.request_events import JournalArchived
from provisioner.model.input_error import InputError
from provisioner.ports import StaleWrite
from provisioner.store.database.data_directory import prepare_directory
from provisioner.store.database.journal_archive import (
    ROWS_MAX,
    Archive,
    compare_archive,
    read_archive,
    read_directory,
    read_lines,
    read_span,
    write_archive,
)
from provisioner.store.rows.journal import ChainCheck
from provisioner.store.rows.journal_base import Base, read_base
from provisioner.store.rows.journal_needs import read_needs
from provisioner.store.rows.journal_prune import Removal, Span, find_removal, prune_unneeded
from provisioner.store.rows.signing_key_rows import believed
from provisioner.store.signing import keys_of

DAY_S = 86_400.0
DIRECTORY = "archives"  # of the data directory, by default
ArchivesOption = Annotated[
    Path | None, typer.Option("--archives", help="Directory of archives; by default DATA/archives.")
]


def archive(
    until: Annotated[str, typer.Option(help="Rows up to this time: 2026-01-31T00:00:00Z.")] = "",
    older_than: Annotated[
        float | None, typer.Option("--older-than", min=0, help="Rows older than so many days.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory to write; by default DATA/archives.")
    ] = None,
    by: ActorOption = "",
    dry_run: DryRunOption = False,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Write the journal's older rows into signed files that continue those in the directory.

    It removes nothing: `audit prune` does. The newest row always remains.

    Example: provisioner audit archive --older-than 90
    """
    directory = out or data / DIRECTORY
    actor = name_actor(by)

    async def write_files(opened: Data) -> list[dict[str, object]]:
        now = opened.clock.now()
        limit = _limit(until, older_than, now)
        keys = await opened.store.read(believed)
        end = await _end(opened, directory, keys)
        first, last = await opened.store.read(partial(read_span, base=end, until=limit))
        made: list[dict[str, object]] = []
        if dry_run:
            return [{"first": first, "last": last}] if last >= first else []
        prepare_directory(directory)
        previous = end.head
        for begin in range(first, last + 1, ROWS_MAX):
            stop = min(begin + ROWS_MAX - 1, last)
            lines = await opened.store.read(partial(read_lines, first=begin, last=stop))
            written = write_archive(
                directory,
                lines,
                previous,
                opened.signer,
                (actor, now),
                version("gpu-provisioner"),
            )
            previous = written.statement.head
            made.append(_describe(written))
            statement = written.statement
            event = JournalArchived(
                by=actor,
                file=str(written.file),
                first=statement.first,
                last=statement.last,
                head=statement.head,
                sha256=written.sha256,
            )
            await opened.store.journal.append(event, now)
        return made

    made = with_data(data, write_files)
    if as_json:
        typer.echo(json.dumps({"archives": made, "dry_run": dry_run}))
    elif not made:
        typer.echo("No row is old enough that no archive holds yet.")
    for one in () if as_json else made:
        consequence = "would be archived" if dry_run else f"are in {one['file']}"
        typer.echo(f"rows {one['first']} to {one['last']} {consequence}")


def check_archive(
    files: Annotated[list[Path], typer.Argument(help="Archives, in any order.")],
    keys: Annotated[
        Path | None, typer.Option(help="Public keys (PEM), where there is no data directory.")
    ] = None,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Verify archives alone: their signature, and the chain of their rows. Exit code 1: invalid.

    Example: provisioner audit check-archive archives/*.tar.gz --key keys.pem
    """
    if keys is not None:
        try:
            believed_keys = keys_of(keys.read_text())
        except (OSError, ValueError) as error:
            remedy = "Give the file that `provisioner certificate keys` printed."
            raise InputError(str(keys), "", f"no public keys ({error})", remedy) from None
    else:
        believed_keys = with_data(data, lambda opened: opened.store.read(believed))
    results = []
    for file in files:
        try:
            results.append({**_describe(read_archive(file, believed_keys)), "problem": ""})
        except InputError as error:
            results.append({"file": str(file), "problem": error.problem})
    if as_json:
        typer.echo(json.dumps(results))
    for one in () if as_json else results:
        good = f"intact: rows {one.get('first')} to {one.get('last')}, head {one.get('head')}"
        typer.echo(
            f"{one['file']}: {'NOT INTACT: ' + str(one['problem']) if one['problem'] else good}"
        )
    raise typer.Exit(1 if any(one["problem"] for one in results) else 0)


def prune_rows(
    archives: ArchivesOption = None,
    by: ActorOption = "",
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Remove archived rows from the database; the rows that live decisions need stay.

    The live journal and every archive are verified first. Each archive is one transaction, so that
    a stop in between leaves a whole journal. Keep the archives: they are the only copy.

    Example: provisioner audit prune --dry-run
    """
    directory = archives or data / DIRECTORY
    actor = name_actor(by)
    survey = with_data(data, lambda opened: _survey(opened, directory))
    going, staying = sum(len(r.going) for r in survey), sum(len(r.staying) for r in survey)
    reasons: Counter[str] = Counter()
    for removal in survey:
        reasons.update(removal.reasons)
    lines = [
        f"{going} rows are removed; {len(survey)} archives in {directory} hold them.",
        f"{staying} rows stay, since live decisions need them.",
        *(f"  {count}: {why}" for why, count in sorted(reasons.items())),
    ]
    confirm_change(lines, yes=yes, dry_run=dry_run, as_json=as_json)

    async def remove_rows(opened: Data) -> int:
        removed, signer, now = 0, opened.signer, opened.clock.now()
        keys = await opened.store.read(believed)
        for one in read_directory(directory, keys):
            step = partial(prune_unneeded, span=build_span(one), signer=signer, by=actor, now=now)
            removed += len((await opened.store.write(step)).going)
        return removed

    try:
        removed = with_data(data, remove_rows)
    except StaleWrite as error:
        raise _refusal(directory, str(error)) from None
    if as_json:
        typer.echo(json.dumps({"removed": removed, "kept": staying}))
    else:
        typer.echo(f"{removed} rows were removed.")


async def _survey(opened: Data, directory: Path) -> list[Removal]:
    """Return the rows that each archive allows to remove, after all was verified.

    Raises InputError.
    """
    _ = opened.signer  # without the master key nothing is removed
    check = await opened.store.journal.verify()
    if not check.intact:
        raise _refusal(directory, f"the live journal is not intact at row {check.broken_at}")
    needs = await opened.store.read(partial(read_needs, now=opened.clock.now()))
    keys, removals = await opened.store.read(believed), []
    base = await opened.store.read(read_base)
    for one in read_directory(directory, keys):
        if one.statement.first > base.through + 1:
            raise _refusal(directory, f"the archive of row {base.through + 1} is missing")
        if why := await opened.store.read(partial(compare_archive, archive=one, base=base)):
            raise _refusal(directory, why)
        step = partial(find_removal, span=build_span(one), needs=needs, base=base)
        try:
            removals.append(await opened.store.read(step))
        except StaleWrite as error:
            raise _refusal(directory, str(error)) from None
        if one.statement.last > base.through:
            base = Base(one.statement.last, one.statement.head)
    return removals


async def check_with_archives(
    opened: Data, directory: Path, known: tuple[int, str] | None
) -> ChainCheck:
    """Verify the live journal and the archives, and that they join.

    Raises InputError for an archive that is not trusted.
    """
    keys, base = await opened.store.read(believed), await opened.store.read(read_base)
    reached, matched = 0, known is None
    for one in read_directory(directory, keys):
        statement = one.statement
        if reached == 0 and statement.first != 1:
            return ChainCheck(0, "", 1, f"the archive of row 1 is missing in {directory}")
        if why := await opened.store.read(partial(compare_archive, archive=one, base=base)):
            return ChainCheck(reached, "", statement.first, why)
        if known is not None and statement.first <= known[0] <= statement.last:
            if one.digests[known[0] - statement.first] != known[1]:
                return ChainCheck(0, "", known[0], "not the known journal")
            matched = True
        reached = statement.last
    if reached < base.through:
        return ChainCheck(0, "", reached + 1, f"the archive of row {reached + 1} is missing")
    return await opened.store.journal.verify(None if matched else known)


def build_span(one: Archive) -> Span:
    """Return the rows of an archive in the store's form."""
    return Span(one.statement.first, one.statement.previous, one.digests, one.sha256)


async def _end(opened: Data, directory: Path, keys: Mapping[str, bytes]) -> Base:
    """Return the last archived row: of the files that exist, or else of those that were pruned."""
    base = await opened.store.read(read_base)
    end = base
    for one in read_directory(directory, keys):
        if why := await opened.store.read(partial(compare_archive, archive=one, base=base)):
            raise _refusal(directory, why)
        if one.statement.last > end.through:
            if one.statement.first > end.through + 1:
                raise _refusal(directory, f"the archive of row {end.through + 1} is missing")
            end = Base(one.statement.last, one.statement.head)
    return end


def _limit(until: str, older_than: float | None, now: float) -> float:
    if bool(until) == (older_than is not None):
        raise InputError("--until", until, "give --until or --older-than", "Give one of them.")
    if older_than is not None:
        return now - older_than * DAY_S
    try:
        at = datetime.fromisoformat(until)
    except ValueError:
        remedy = "Write 2026-01-31T00:00:00Z."
        raise InputError("--until", until[:80], "this is no time", remedy) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _describe(one: Archive) -> dict[str, object]:
    statement = one.statement
    return {
        "file": str(one.file),
        "first": statement.first,
        "last": statement.last,
        "head": statement.head,
        "sha256": one.sha256,
    }


def _refusal(directory: Path, problem: str) -> InputError:
    remedy = "Nothing more was removed. Run `provisioner audit verify --archives DIR`."
    return InputError(str(directory), "", problem, remedy)
