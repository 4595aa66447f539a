"""Throw-away hosts for every test here; skipped with the reason where the machine forbids them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hosts import Host, hosts, why_not


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """Two bare hosts, shared by a module's tests."""
    if reason := why_not():
        pytest.skip(reason)
    with hosts(2, tmp_path_factory.mktemp("hosts")) as made:
        yield made
