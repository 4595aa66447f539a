"""Breakages of the demonstration's files: images that are away or others, lines that are lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from demonstration import Demonstration
from image_steps import MANAGED, UPLOADED


@contextmanager
def remove_image(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Take the systems' images out of the artifact store while the step runs."""
    images = list((site.directory / "artifacts").glob("*.raw"))
    for image in images:
        image.rename(image.with_suffix(".away"))
    try:
        yield {}
    finally:
        for image in images:
            image.with_suffix(".away").rename(image)


@contextmanager
def take_names(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Put other files by hand under the names that the steps upload."""
    files = [site.directory / "artifacts" / name for name in (UPLOADED, MANAGED)]
    for file in files:
        file.write_bytes(b"put there by hand")
    try:
        yield {}
    finally:
        for file in files:
            file.unlink(missing_ok=True)


@contextmanager
def forget_lines(site: Demonstration) -> Iterator[Mapping[str, str]]:
    """Take the day with the oldest line of a host's console away while the step runs."""
    folder = site.data / "consoles" / site.nodes["machine_id"]
    oldest = min(folder.glob("*.jsonl"), key=lambda day: int(day.stem))
    away = oldest.with_suffix(".away")
    oldest.rename(away)
    try:
        yield {}
    finally:
        away.rename(oldest)
