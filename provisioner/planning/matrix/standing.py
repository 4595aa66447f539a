"""What is public about versions beside the pins: notices, and minimums of libraries. Pure.

A version is compared with a notice by the component's own grammar. Where the two cannot be compared
the notice is told too: unread is not fine.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

from provisioner.model.matrix import LIBRARIES, UNKNOWN, LibraryName, Matrix, Pin, Profile, Release
from provisioner.model.tenant import LibraryMinimum
from provisioner.planning.path.conditions import grammar_of, parse_terms, satisfies_term


@lru_cache(maxsize=8192)  # a fleet has few distinct versions, and each is asked of each node
def _concerns(kind: str, version: str, conditions: tuple[str, ...]) -> bool:
    grammar = grammar_of(kind)
    for text in conditions:
        each = [satisfies_term(grammar, version, term) for term in parse_terms(text)]
        if False not in each:  # None, which cannot be compared, concerns it too
            return True
    return False


def find_notices(matrix: Matrix, kind: str, version: str) -> tuple[str, ...]:
    """Return the security notices that concern a running version; accepted ones are left out."""
    return tuple(
        name
        for name, notice in matrix.security.items()
        if not notice.accepted
        and kind in notice.affected
        and _concerns(kind, version, notice.affected[kind])
    )


def list_pin_notices(matrix: Matrix, kind: str, pin: Pin) -> tuple[str, ...]:
    """Return the notices that concern a pinned version, also those that the pin names itself."""
    named = (n for n in pin.security if not matrix.security[n].accepted)
    found = find_notices(matrix, kind, pin.version) if pin.known else ()
    return tuple(dict.fromkeys((*named, *found)))


# kinds of components whose pins and rules speak of a library; nothing pins CUDA
_LIBRARY_KINDS: dict[LibraryName, str] = {"nccl": "host.nccl", "doca": "host.doca"}


def list_library_minimums(
    matrix: Matrix, release_name: str, profile_name: str
) -> tuple[LibraryMinimum, ...]:
    """Return the oldest NCCL, DOCA and CUDA that a tenant's software needs on such nodes.

    They come from what the GPUs need, and from rules of the release that hold at its pins; the
    highest counts. What no public document says is UNKNOWN: the version that the release was tested
    with is told beside it, and does not stand for a minimum.
    """
    release = matrix.releases.get(release_name)
    profile = release.profiles.get(profile_name) if release is not None else None
    return tuple(_find_minimum(matrix, library, release, profile) for library in LIBRARIES)


def _find_minimum(
    matrix: Matrix, library: LibraryName, release: Release | None, profile: Profile | None
) -> LibraryMinimum:
    if release is None or profile is None:
        return LibraryMinimum(library=library, minimum=UNKNOWN)
    kind = _LIBRARY_KINDS.get(library, "")
    found = [
        (need.version, need.says, need.evidence)
        for need in matrix.libraries.get(library, ())
        if _is_for_all(need.gpu_models, profile.match.gpu_models)
    ]
    found += _list_ruled(release, profile, kind)
    grammar = grammar_of(kind) if library == "doca" else "dotted"  # without a package's "+cuda"
    best: tuple[str, str, str] | None = None
    for one in found:
        is_higher = best is None or satisfies_term(grammar, one[0], (">", best[0]))
        if is_higher is None and best is not None:
            why = f"{best[0]} and {one[0]} are both asked for, and cannot be compared"
            best = (UNKNOWN, why, one[2])
            break
        best = one if is_higher else best
    pin = profile.pins.get(kind)
    tested = pin.version if pin is not None and pin.known else ""
    sources = (best[2] if best else "", pin.evidence if pin is not None and tested else "")
    return LibraryMinimum(
        library=library,
        minimum=best[0] if best else UNKNOWN,
        tested=tested,
        why=best[1] if best else "",
        evidence=tuple(dict.fromkeys(source for source in sources if source)),
    )


def _is_for_all(models: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Return whether the globs of a need cover every model of a profile, of which there is one."""
    names = [name.replace("*", "").lower() for name in wanted]
    return bool(names) and all(
        any(fnmatchcase(name, model.lower()) for model in models) for name in names
    )


def _list_ruled(release: Release, profile: Profile, kind: str) -> list[tuple[str, str, str]]:
    """Return the lower bounds of a kind in rules that hold while every part runs its pin."""
    found = []
    for rule in release.requires:
        terms = parse_terms(rule.needs[kind]) if kind in rule.needs else ()
        bounds = [version for operator, version in terms if operator == ">="]
        if bounds and all(_holds(profile, part, text) for part, text in rule.when.items()):
            found.append((bounds[0], rule.reason, rule.evidence))
    return found


def _holds(profile: Profile, kind: str, condition: str) -> bool:
    pin = profile.pins.get(kind)
    return (
        pin is not None
        and pin.known
        and all(
            satisfies_term(grammar_of(kind), pin.version, term) for term in parse_terms(condition)
        )
    )


def list_lines(matrix: Matrix) -> tuple[tuple[str, ...], ...]:
    """Return the releases by line, oldest first: those that supersede or follow one another."""
    line_of: dict[str, list[str]] = {}
    for name, release in matrix.releases.items():
        line = line_of.setdefault(name, [name])
        for older in (release.supersedes, release.follows):
            if older and line_of.setdefault(older, [older]) is not line:
                line = [*line_of[older], *line]
                line_of |= dict.fromkeys(line, line)
    lines = {id(line): line for line in line_of.values()}
    return tuple(tuple(sorted(line, key=lambda n: _rank(matrix, n))) for line in lines.values())


def _rank(matrix: Matrix, name: str) -> int:
    """Return how many releases come before one in its line."""
    before: set[str] = set()
    todo = [name]
    while todo:
        release = matrix.releases[todo.pop()]
        older = {n for n in (release.supersedes, release.follows) if n} - before
        before |= older
        todo += older
    return len(before)
