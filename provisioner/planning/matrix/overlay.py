"""Lay a site's matrix file over the shipped one without changing a published value silently.

An overlay may add anything, close an unknown pin, and fill empty fields (file names, digests,
evidence). A pin with a published version changes only if the overlay has `override: true` and a
`reason`; the old version's file, digest and evidence are then dropped. No other value of an earlier
file may change.
"""

from __future__ import annotations

from provisioner.model.matrix import UNKNOWN
from provisioner.planning.matrix.located_yaml import Located, Path, Tree

OVERRIDE_KEYS = ("override", "reason")
_OF_A_VERSION = ("version", "also", "artifact", "sha256", "evidence")


def lay_over(base: Located, over: Located) -> Located:
    """Return one tree from two.

    Raises InputError at the place of a forbidden change in the overlay.
    """
    merged = Located(base.tree, dict(base.places))
    if over.tree is not None:
        merged.tree = _Layer(merged, over).merge_values(base.tree, over.tree, (), ())
    return merged


class _Layer:
    """One pass over the overlay's tree. Paths in `base` and `over` differ only in list indexes."""

    def __init__(self, merged: Located, over: Located) -> None:
        self.merged = merged
        self.over = over

    def merge_values(self, old: Tree, new: Tree, at: Path, there: Path) -> Tree:
        """Return the merged value, with its path `at` in the result and `there` in the overlay."""
        if old is None or old == new:
            return self._take(new, at, there)
        if isinstance(old, dict) and isinstance(new, dict):
            return (
                self._merge_pins(old, new, at, there)
                if is_pin(at)
                else self._merge_dicts(old, new, at, there)
            )
        if isinstance(old, list) and isinstance(new, list):
            return self._merge_lists(old, new, at, there)
        if isinstance(old, str) and isinstance(new, str) and old == "":
            return self._take(new, at, there)
        if "match" in at:
            return self._take(new, at, there)
        raise self.over.build_error(
            there,
            f"this is '{_short(new)}', but an earlier file says '{_short(old)}'",
            "Only a pin's version may change, with `override: true` and a `reason`.",
        )

    def _merge_dicts(
        self, old: dict[str, Tree], new: dict[str, Tree], at: Path, there: Path
    ) -> dict[str, Tree]:
        result = dict(old)
        for key, value in new.items():
            here = (*at, key)
            before = old.get(key) if key in old else self._find_inherited(here)
            if before is not None:
                result[key] = self.merge_values(before, value, here, (*there, key))
            else:
                result[key] = self._take(value, here, (*there, key))
        return result

    def _find_inherited(self, at: Path) -> Tree:
        """Return the pin that a profile inherits by `like`; it counts as published too."""
        if not is_pin(at) or at[0] != "releases":
            return None
        profiles: Tree = self.merged.tree
        for part in at[:3]:
            profiles = profiles.get(str(part)) if isinstance(profiles, dict) else None
        here: Tree = profiles.get(str(at[3])) if isinstance(profiles, dict) else None
        name = here.get("like") if isinstance(here, dict) else None
        source_profile = profiles.get(str(name)) if isinstance(profiles, dict) and name else None
        pins = source_profile.get("pins") if isinstance(source_profile, dict) else None
        return pins.get(str(at[5])) if isinstance(pins, dict) else None

    def _merge_pins(
        self, old: dict[str, Tree], new: dict[str, Tree], at: Path, there: Path
    ) -> Tree:
        fields = {k: v for k, v in new.items() if k not in OVERRIDE_KEYS}
        before, after = old.get("version"), new.get("version", old.get("version"))
        if before == after:
            return self._merge_dicts(old, fields, at, there)
        closes = before in {None, "", UNKNOWN}
        if not closes and after == UNKNOWN:
            raise self.over.build_error(
                (*there, "version"), "a published version becomes unknown", "Leave it out."
            )
        if not closes and not _is_override(new):
            raise self.over.build_error(
                (*there, "version"),
                f"the published version {before} becomes {after}",
                "If that is meant, add `override: true` and a `reason`.",
            )
        unversioned = {k: v for k, v in old.items() if k not in _OF_A_VERSION}
        if not closes and "evidence" not in fields:
            fields["evidence"] = f"override: {new['reason']}"
        for key in fields:
            self._take(fields[key], (*at, key), (*there, key))
        return {**unversioned, **fields}

    def _merge_lists(self, old: list[Tree], new: list[Tree], at: Path, there: Path) -> list[Tree]:
        if at[:1] != ("edges",) and at[-1:] != ("requires",):
            if "match" in at:  # the site decides which nodes belong to a profile
                self._take(new, at, there)
                return new
            raise self.over.build_error(there, "a list of an earlier file changes", "Leave it out.")
        result = list(old)
        for index, item in enumerate(new):
            source = (*there, index)
            twin = next(
                (i for i, o in enumerate(old) if at[0] == "edges" and _is_same_edge(o, item)), None
            )
            if twin is None:
                result.append(self._take(item, (*at, len(result)), source))
            else:
                result[twin] = self.merge_values(old[twin], item, (*at, twin), source)
        return result

    def _take(self, value: Tree, at: Path, there: Path) -> Tree:
        """Return the overlay's value unchanged, and record its places."""
        for path, place in self.over.places.items():
            if path[: len(there)] == there:
                self.merged.places[(*at, *path[len(there) :])] = place
        return value


def is_pin(path: Path) -> bool:
    """Return whether a path is releases.<r>.profiles.<p>.pins.<kind> or images.<name>."""
    if path[:1] == ("images",):
        return len(path) == 2
    return len(path) == 6 and (path[0], path[2], path[4]) == ("releases", "profiles", "pins")


def _is_override(pin: dict[str, Tree]) -> bool:
    return pin.get("override") == "true" and bool(pin.get("reason"))


def _is_same_edge(old: Tree, new: Tree) -> bool:
    """Return whether two edges are the same move from the same versions."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    return all(old.get(key) == new.get(key) for key in ("from", "to", "via"))


def _short(value: Tree) -> str:
    return value if isinstance(value, str) and len(value) < 80 else type(value).__name__
