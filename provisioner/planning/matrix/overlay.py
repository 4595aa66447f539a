"""Lay a site's matrix file over the shipped one without changing a published value silently.

An overlay may add anything, close an unknown pin, and fill empty fields (file names, digests,
evidence). A pin with a published version changes only if the overlay has `override: true` and a
`reason`; the old version's file, digest and evidence are then dropped. A rule is known by its name
and an edge by its start and end: with `override: true` the overlay's takes the place of the earlier
one, and an edge needs a `reason` too. No other value of an earlier file may change.
"""

from __future__ import annotations

from provisioner.model.matrix import UNKNOWN
from provisioner.planning.matrix.located_yaml import Located, Path, Tree
from provisioner.planning.matrix.matrix_rules import spell

OVERRIDE_KEYS = ("override", "reason")
_OF_A_VERSION = ("version", "also", "artifact", "sha256", "evidence", "sought")


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
        before = old.get("version")
        after = new.get("version", old.get("version"))
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
            twin = next((i for i, o in enumerate(old) if _is_twin(at, o, item)), None)
            replaces = isinstance(item, dict) and item.get("override") == "true"
            if replaces and (twin is None or not isinstance(item, dict)):
                raise self.over.build_error(
                    (*source, "override"),
                    "no earlier file has this one",
                    "Remove `override`, or write the name or the versions of the earlier one.",
                )
            if twin is None:
                result.append(self._take(item, (*at, len(result)), source))
            elif replaces:
                result[twin] = self._replace(item, (*at, twin), source)
            elif at[-1:] == ("requires",) and old[twin] != item:
                raise self.over.build_error(
                    (*source, "name"),
                    "an earlier file has another rule of this name",
                    "Add `override: true` to replace it, or give this one a name of its own.",
                )
            else:
                result[twin] = self.merge_values(old[twin], item, (*at, twin), source)
        return result

    def _replace(self, item: Tree, at: Path, there: Path) -> Tree:
        """Return an edge or a rule that takes the place of an earlier one."""
        assert isinstance(item, dict)
        if not item.get("reason"):
            raise self.over.build_error(
                there, "an override without a reason", "Add `reason`: why it differs."
            )
        for path in [p for p in self.merged.places if p[: len(at)] == at]:
            del self.merged.places[path]
        fields = dict(item)
        if at[0] == "edges":
            fields.setdefault("evidence", f"override: {item['reason']}")
        return self._take(fields, at, there)

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


def _is_twin(at: Path, old: Tree, new: Tree) -> bool:
    """Return whether two rules have one name, or two edges are one move in any spelling."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    if at[-1:] == ("requires",):
        return isinstance(new.get("name"), str) and old.get("name") == new.get("name")
    kind = str(at[1])
    same_via = _spell_all(kind, old.get("via")) == _spell_all(kind, new.get("via"))
    if not same_via and new.get("override") != "true":
        return False
    return all(
        _spell_all(kind, old.get(key)) == _spell_all(kind, new.get(key)) for key in ("from", "to")
    )


def _spell_all(kind: str, value: Tree) -> object:
    """Return a version, or a list of them in any order, so that spellings compare equal."""
    if isinstance(value, list):
        return frozenset(spell(kind, str(v)) for v in value)
    return spell(kind, value) if isinstance(value, str) else value


def _short(value: Tree) -> str:
    return value if isinstance(value, str) and len(value) < 80 else type(value).__name__
