"""Buckets of a real object store, and the nginx before one, as docs/artifacts.md has them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from card_bench import BFB
from card_bench import NAME as BUNDLE_NAME
from object_store import ObjectStore, object_store
from outside_files import BODY, NAME

PAGE = Path(__file__).parents[2] / "docs" / "artifacts.md"
US, ANOTHER = "127.0.0.1", "127.0.0.2"


def policy(bucket: str, network: str) -> str:
    """The page's, of another bucket and network."""
    (text,) = re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert (text.count(":::firmware/*"), text.count("203.0.113.0/24")) == (1, 1)
    return text.replace(":::firmware/*", f":::{bucket}/*").replace("203.0.113.0/24", network)


def before(store: ObjectStore) -> str:
    """The page's lines of an nginx before a bucket."""
    _, text = re.findall(r"^```nginx\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert (text.count("s3.eu-1.example"), text.count("10.0.0.0/8")) == (1, 1)
    there = text.replace("s3.eu-1.example", f"127.0.0.1:{store.port}")
    return there.replace("10.0.0.0/8", f"{US}/32")


@contextlib.contextmanager
def filled(home: Path) -> Iterator[ObjectStore]:
    """A store with the file in a bucket that we may read, in one that nobody may, and in one
    that is for another network; the first has a card's bundle too."""
    with object_store(home) as running:
        running.bucket("firmware", policy("firmware", f"{US}/32"))
        running.bucket("shut")
        running.bucket("elsewhere", policy("elsewhere", f"{ANOTHER}/32"))
        for bucket in ("firmware", "shut", "elsewhere"):
            running.put(bucket, NAME, BODY)
        running.put("firmware", BUNDLE_NAME, BFB)
        yield running
