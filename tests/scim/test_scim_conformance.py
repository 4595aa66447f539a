"""The service of SCIM, tried by scim2-tester and scim2-client, which others wrote (Yaal Coop)."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
from served import WIDE, Served, run


def module_of(thing: Any, _filename: str | None = None) -> ModuleType | None:
    """As `inspect.getmodule` of a class or a frame, without a look at each loaded module's file."""
    known = thing.f_globals.get("__name__") if isinstance(thing, FrameType) else thing.__module__
    return sys.modules.get(known)


httpx = pytest.importorskip("httpx2")
with pytest.MonkeyPatch.context() as patched:
    # pydantic asks it for each frame above each of its 59 documented classes: a fifth of the time
    # that all tests take to be collected
    patched.setattr(inspect, "getmodule", module_of)
    scim2_tester = pytest.importorskip("scim2_tester")
    engine = pytest.importorskip("scim2_client.engines.httpx2")

TOKEN = secrets.token_hex(32)


def try_service(tmp_path: Path, work: Callable[[Any], Any]) -> Any:
    """Return what `work` says of the service, with a client of it in a thread."""
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    told: list[Any] = []

    async def scenario(served: Served) -> None:
        base = str(served.client.make_url("/scim/v2"))

        def ask() -> Any:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            with httpx.Client(base_url=base, headers=headers, timeout=30) as client:
                return work(engine.SyncSCIMClient(client))

        told.append(await asyncio.to_thread(ask))

    run(scenario, scim_token_file=str(file), **WIDE)
    return told[0]


def test_the_compliance_tester_finds_no_fault(tmp_path: Path) -> None:
    results = try_service(tmp_path, scim2_tester.check_server)

    bad = [r for r in results if r.status.name in ("ERROR", "CRITICAL", "DEVIATION")]
    assert [(r.title, r.reason) for r in bad] == []
    assert sum(r.status.name == "SUCCESS" for r in results) > 50, results
