"""Routes of what is the same for all nodes: releases of the matrix, checks, artifacts, who I am."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic import Field

from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import missing
from provisioner.api.route import ANYBODY, VIEWERS, Route
from provisioner.checks import ALL as CHECKS
from provisioner.control.engine.overload import measured, notices
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.model.access import Caller, Role
from provisioner.model.base import Record
from provisioner.model.matrix import Pin, Release, Requirement
from provisioner.planning.lifecycle.overload import Strain, find_strains, highest_level
from provisioner.planning.matrix.diff import ProfileDiff, compare_releases
from provisioner.planning.matrix.review import Readiness, judge_readiness


class ReleaseLine(Record):
    """A release in a list."""

    name: str
    supersedes: str
    profiles: tuple[str, ...]
    ready: bool = Field(description="Every pin is known, with file, digest and evidence.")


class ReleaseList(Record):
    """All releases of the matrix that the daemon runs."""

    sha256: str = Field(description="Digest of the whole matrix.")
    items: tuple[ReleaseLine, ...]


class ProfileView(Record):
    """What one profile pins."""

    name: str
    pins: dict[str, Pin]
    readiness: Readiness


class ReleaseView(Record):
    """One release."""

    name: str
    supersedes: str
    profiles: tuple[ProfileView, ...]
    requires: tuple[Requirement, ...]


class Moves(Record):
    """What a move between two releases means."""

    older: str
    newer: str
    profiles: tuple[ProfileDiff, ...]


class CheckView(Record):
    """One health check."""

    name: str
    gate: str
    kind: str
    load: bool
    after_load: bool
    on_request: bool
    commands: tuple[str, ...]
    thresholds: tuple[str, ...]


class CheckList(Record):
    """All checks, in the order in which they run."""

    items: tuple[CheckView, ...]


class ArtifactView(Record):
    """A file that the matrix names."""

    name: str
    sha256: str
    pinned_by: tuple[str, ...]
    present: bool = Field(
        description="In the artifact directory of who answers: a cache, where `pulled_from` is set."
    )
    size: int = Field(0, description="Bytes; 0: it is not there.")
    seen_outside: str = Field(
        "",
        description="SHA-256 that the daemon who answers last read at `pulled_from`; empty: none.",
    )
    seen_at: float = Field(0, description="When, seconds since the epoch; 0: not since its start.")


class ArtifactList(Record):
    """All files that the matrix names, by name."""

    items: tuple[ArtifactView, ...]
    pulled_from: str = Field(
        "", description="The server outside; empty: devices pull from daemons."
    )


class Me(Record):
    """Who the caller is, as its token says."""

    subject: str
    roles: tuple[Role, ...]
    tenant: str
    via: str
    now: float = Field(description="The site's clock, in seconds since the epoch.")
    speed: float = Field(1.0, description="Its seconds in a real one: a simulated site runs fast.")


class Health(Record):
    """What strains the process that answers, and what it leaves off because of it."""

    level: str = Field(description="CALM; STRAINED: routine looks wait; SEVERE: new work waits.")
    strained_by: tuple[Strain, ...]
    notices: tuple[str, ...] = Field(
        (),
        description="A time that is in doubt, a clock that differs from the database's, daemons "
        "that work differently.",
    )


async def list_releases(ask: Ask) -> Reply:
    """All of them."""
    matrix = ask.parts.matrix
    states = judge_readiness(matrix)
    items = tuple(
        ReleaseLine(
            name=name,
            supersedes=release.supersedes,
            profiles=tuple(release.profiles),
            ready=all(s.ready for s in states if s.release == name),
        )
        for name, release in matrix.releases.items()
    )
    return Reply(ReleaseList(sha256=matrix.digest(), items=items))


async def show_release(ask: Ask) -> Reply:
    """What it pins."""
    name = ask.word("release")
    release = _release(ask, name)
    states = {s.profile: s for s in judge_readiness(ask.parts.matrix) if s.release == name}
    profiles = tuple(
        ProfileView(name=p, pins=profile.pins, readiness=states[p])
        for p, profile in release.profiles.items()
    )
    told = ReleaseView(
        name=name, supersedes=release.supersedes, profiles=profiles, requires=release.requires
    )
    return Reply(told)


async def moves(ask: Ask) -> Reply:
    """Steps, resets and minutes for each profile."""
    older, newer = ask.word("release"), ask.word("newer")
    _release(ask, older)
    _release(ask, newer)
    production = ask.parts.settings.production
    found = await asyncio.to_thread(
        compare_releases, ask.parts.matrix, older, newer, production=production
    )
    return Reply(Moves(older=older, newer=newer, profiles=tuple(found)))


def _release(ask: Ask, name: str) -> Release:
    found = ask.parts.matrix.releases.get(name)
    if found is None:
        raise missing("release in the matrix")
    return found


async def list_checks(_ask: Ask) -> Reply:
    """What proves health."""
    items = tuple(
        CheckView(
            name=c.name,
            gate=c.gate.value,
            kind=c.kind.value,
            load=c.load,
            after_load=c.after_load,
            on_request=c.on_request,
            commands=tuple(command.line for command in c.commands),
            thresholds=c.thresholds,
        )
        for c in CHECKS
    )
    return Reply(CheckList(items=items))


async def list_artifacts(ask: Ask) -> Reply:
    """What is pinned, and whether it is there."""
    pinned: dict[tuple[str, str], list[str]] = {}
    matrix = ask.parts.matrix
    for name, release in matrix.releases.items():
        for profile, content in release.profiles.items():
            for kind, pin in content.pins.items():
                _add(pinned, pin.artifact, pin.sha256, f"{name}/{profile}: {kind}")
    for kind, edges in matrix.edges.items():
        for edge in edges:
            _add(pinned, edge.artifact, edge.sha256, f"edge of {kind} to {edge.to}")
    for image, pin in matrix.images.items():
        _add(pinned, pin.artifact, pin.sha256, f"image {image}")
    sizes = await asyncio.to_thread(_sizes, ask.parts.artifacts, {name for name, _ in pinned})
    items = tuple(
        ArtifactView(
            name=name, sha256=sha256, pinned_by=tuple(by), present=name in sizes,
            size=sizes.get(name, 0), **_outside(ask.parts.outside, name),
        )
        for (name, sha256), by in sorted(pinned.items())
    )  # fmt: skip
    pulled_from = "" if ask.parts.outside is None else ask.parts.outside.url
    return Reply(ArtifactList(items=items, pulled_from=pulled_from))


def _outside(files: OutsideArtifacts | None, name: str) -> dict[str, Any]:
    seen = None if files is None else files.get_reading(name)
    return {} if seen is None else {"seen_outside": seen.sha256, "seen_at": seen.at}


def _add(pinned: dict[tuple[str, str], list[str]], name: str, sha256: str, by: str) -> None:
    if name:
        pinned.setdefault((name, sha256), []).append(by)


def _sizes(directory: Path, names: set[str]) -> dict[str, int]:
    own = {n for n in names if Path(n).name == n}
    return {n: (directory / n).stat().st_size for n in own if (directory / n).is_file()}


async def me(ask: Ask) -> Reply:
    """The caller."""
    caller: Caller = ask.caller
    told = Me(
        subject=caller.subject,
        roles=tuple(sorted(caller.roles)),
        tenant=caller.tenant,
        via=caller.via,
        now=ask.now,
        speed=getattr(ask.parts.clock, "speed", 1.0),
    )
    return Reply(told)


async def health(ask: Ask) -> Reply:
    """Measured now. The loop's lag is that of one pass."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(0)
    found = find_strains(measured(ask.parts.store, loop.time() - began))
    return Reply(Health(level=highest_level(found).name, strained_by=found, notices=notices()))


ROUTES = (
    Route("GET", "/releases", "list_releases", "releases",
          "Releases of the matrix that is in force.", VIEWERS, list_releases, {200: ReleaseList}),
    Route("GET", "/releases/{release}", "show_release", "releases",
          "What a release pins for each profile, and what nobody published.", VIEWERS,
          show_release, {200: ReleaseView}),
    Route("GET", "/releases/{release}/moves/{newer}", "show_moves", "releases",
          "What a move to another release means: changes, steps, resets, minutes.", VIEWERS, moves,
          {200: Moves}, heavy=True),
    Route("GET", "/checks", "list_checks", "checks", "Health checks, in their order.", VIEWERS,
          list_checks, {200: CheckList}),
    Route("GET", "/artifacts", "list_artifacts", "artifacts",
          "Files that the matrix names, and whether they are there.", VIEWERS, list_artifacts,
          {200: ArtifactList}, heavy=True),
    Route("GET", "/health", "show_health", "access",
          "Whether the daemon is overloaded, and by what.", ANYBODY, health, {200: Health}),
    Route("GET", "/me", "show_me", "access", "Who I am, as my token says.", ANYBODY, me, {200: Me}),
)  # fmt: skip
