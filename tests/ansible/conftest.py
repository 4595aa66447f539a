"""Throw-away hosts for every test here; skipped with the reason where the machine forbids them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import role_lab
from hosts import Host, hosts, why_not


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """Two bare hosts, shared by a module's tests."""
    if reason := why_not():
        pytest.skip(reason)
    with hosts(2, tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """Three hosts with stand-in tools and a package mirror: one lab for all roles."""
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("lab")
    role_lab.make_mirror(folder / "mirror")
    with hosts(3, folder, disk_mib=64) as made:
        for host in made:
            role_lab.furnish(host, folder / "mirror")
        yield made
