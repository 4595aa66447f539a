"""A world that a test process drives once to where many stories begin, and a fork for each of them.

Of some six CPU seconds from a cabled site to a certified host, each story needs only the end. The
trunk stays as it is: a story lives in a child, and what it returns (or its traceback) comes back
through a pipe, so that it must return what can be pickled. Children share the trunk's folder: who
changes files there takes a copy first (`copy_files`).
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import pickle
import resource
import shutil
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import virtual_time
from rig import World

from provisioner.integrations.demo.site import DemoFiles

Result = TypeVar("Result")
CPU_LIMIT_S = 300  # of a story, beside which it goes in circles
HOST, HOUR_S = "su0-n00", 3600.0


@dataclass(frozen=True)
class Trunk:
    """A world at rest between two stories, and the loop that its daemon's tasks belong to."""

    loop: virtual_time.VirtualLoop
    world: World


_trunks: dict[Callable[[Path], Awaitable[World]], Trunk] = {}
_folders: list[tempfile.TemporaryDirectory[str]] = []  # one, which this process made


def branch(
    grow: Callable[[Path], Awaitable[World]], story: Callable[[World], Awaitable[Result]]
) -> Result:
    """What a story returns that begins where `grow` ended; `grow` runs once in this process."""
    if grow not in _trunks:
        if not _folders:
            _folders.append(tempfile.TemporaryDirectory(prefix="worlds-"))
            atexit.register(_fell)
        folder = Path(_folders[0].name, str(len(_trunks)))
        folder.mkdir()
        loop = virtual_time.VirtualLoop()
        _trunks[grow] = Trunk(loop, loop.run_until_complete(grow(folder)))
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        _live(_trunks[grow], story, theirs)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    if not told:
        raise AssertionError("the story ended without an answer")
    well, answer = pickle.loads(told)
    if not well:
        pytest.fail(answer, pytrace=False)
    result: Result = answer
    return result


def _live(trunk: Trunk, story: Callable[[World], Awaitable[Any]], theirs: int) -> None:
    """In the child: tell the story, answer, and be gone without the parent's clearing up."""
    told = b""
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
        gc.freeze()  # what the parent had is not looked through again, nor copied for it
        told = pickle.dumps((True, trunk.loop.run_until_complete(_tell(story, trunk.world))))
    except BaseException:
        told = pickle.dumps((False, traceback.format_exc()))
    finally:
        with os.fdopen(theirs, "wb") as pipe:
            pipe.write(told)
        os._exit(0)


async def _tell(story: Callable[[World], Awaitable[Result]], world: World) -> Result:
    return await story(world)


def _fell() -> None:
    for trunk in _trunks.values():
        for task in asyncio.all_tasks(trunk.loop):
            task.cancel()
        trunk.loop.run_until_complete(asyncio.sleep(0))
        trunk.loop.close()
    _trunks.clear()
    _folders.pop().cleanup()


async def certified_host(folder: Path) -> World:
    """One host that is certified and idle, since no tenant wants any; its daemon runs."""
    from test_returns import state, want

    from provisioner.model.node import State

    world = World(folder, nodes=1, seed=3)
    await world.take_in()
    await want(world, 0)
    await world.start()
    await state(world, State.CERTIFIED)
    return world


async def restart(world: World, **settings: object) -> None:
    """Replace the daemon by one with other settings."""
    await world.crash()
    change_settings(world, **settings)
    await world.start()


def copy_files(world: World, folder: Path) -> None:
    """Give a story the site's files as its own."""
    shutil.copytree(world.files.overlay.parent, folder, dirs_exist_ok=True)
    names = (world.files.overlay.name, world.files.expected.name, world.files.artifacts.name)
    world.files = DemoFiles(*(folder / name for name in names))


def change_settings(world: World, **settings: object) -> None:
    """Change what the next daemon is started with."""
    world.settings = world.settings.model_validate({**world.settings.model_dump(), **settings})
