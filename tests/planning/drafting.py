"""A small matrix, and drafts of overlays for it from files in makers' formats."""

from __future__ import annotations

from provisioner.integrations.published_versions.deciding.overlay_draft import (
    Draft,
    Place,
    draft_overlay,
)
from provisioner.integrations.published_versions.deciding.reading import read_import
from provisioner.integrations.published_versions.deciding.statements import Import
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.matrix_text import parse_located

SHA = "a" * 64
OTHER_SHA = "b" * 64
RELEASE = "r"
MATRIX = """
schema: 1
releases:
  r:
    profiles:
      h100:
        match: {gpu_models: ["*H100*"]}
        pins:
          bluefield.bundle: {version: 3.2.1-42_25.11, evidence: published}
          nic.cx7: {version: 28.43.2026, optional: true}
          host.bios: {version: unknown}
          host.driver: {version: unknown}
          hgx.bundle: {version: unknown}
      h200:
        like: h100
        match: {gpu_models: ["*H200*"]}
"""
HERE = Place(release=RELEASE, profiles=("h100",))


def read(name: str, content: bytes, **maps: str) -> Import:
    return read_import(name, content, sha256=SHA, maps=maps, systems=("XE9680",))


def draft(*imports: Import, place: Place | None = None, matrix: str = MATRIX) -> Draft:
    pinned, located = parse_located([("matrix", matrix)])
    return draft_overlay(pinned, located, imports, place or Place())


def apply(drafted: Draft, matrix: str = MATRIX) -> Matrix:
    return parse_located([("matrix", matrix), ("draft", drafted.text)])[0]


def verdicts(drafted: Draft) -> list[tuple[str, str]]:
    return [(c.verdict, c.kind) for c in drafted.changes]
