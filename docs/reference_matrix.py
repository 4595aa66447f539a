"""The page of the shipped matrix: releases, their evidence, and a picture of each line of them."""

from __future__ import annotations

from pathlib import Path

from provisioner import components
from provisioner.integrations.matrix_map.graph import draw_svg, select_releases
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.matrix.standing import list_lines, list_pin_notices
from provisioner.planning.path.hops import Moves

OLD, NEW = "spectrum-x-1.3.0", "spectrum-x-2.1.2"  # the moves of sites that run the older one
FILE = Path(__file__).parents[1] / "firmware_matrix.yaml"


def make_page() -> str:
    """The page, in the order of the file; a line is a chain of releases that follow each other."""
    matrix = parse([(FILE.name, FILE.read_text(encoding="utf-8"))])
    lines = [
        "# The shipped matrix",
        "",
        "Made from `firmware_matrix.yaml`. A version marked ! has a security notice below.",
        "How the file is read and changed is in [matrix.md](../matrix.md).",
    ]
    for names in list_lines(matrix):
        lines += ["", f"## {names[0]}" + (f" to {names[-1]}" if len(names) > 1 else ""), ""]
        lines += [_describe(matrix, name) for name in names]
        lines += ["", *_versions(matrix, names), "", *_evidence(matrix, names)]
        picture = draw_svg(select_releases(matrix, names))
        lines += ["", "```{raw} html", picture.strip(), "```"]
    lines += ["", f"## Moves from {OLD} to {NEW}", ""]
    lines += [
        "A sought move is refused in production, with the document that would vouch for it.",
        "",
    ]
    lines += ["| component | move | in production |", "|---|---|---|"]
    lines += [f"| {kind} | {move} | {said} |" for kind, move, said in list_moves(matrix)]
    lines += ["", "## Security notices", ""]
    lines += ["| notice | severity | CVE | corrected in | source |", "|---|---|---|---|---|"]
    for name, notice in matrix.security.items():
        cves = ", ".join(notice.cves)
        cells = (f"{name}, {notice.published}", notice.severity, cves, notice.fixed)
        lines.append(f"| {' | '.join(cells)} | {notice.evidence} |")
    return "\n".join(lines) + "\n"


def list_moves(matrix: Matrix) -> list[tuple[str, str, str]]:
    """Return each component that moves by itself, its move, and what vouches for it or would."""
    rows = []
    for profile in ("hgx-h100-bf3", "sn5600"):
        before = matrix.releases[OLD].profiles[profile].pins
        after = matrix.releases[NEW].profiles[profile].pins
        moves = Moves(matrix, after, components.ALL, production=True)
        for kind, pin in after.items():
            if not pin.known or kind not in before or not matrix.edges.get(kind):
                continue
            hops = moves.find_hops(kind, before[kind].version)
            last = [hop for hop in hops if hop.to == pin.version]
            if last:  # otherwise it moves with the bundle that carries it
                evidence = next((hop.evidence for hop in last if hop.evidence), "")
                said = f"published: {evidence}" if evidence else f"sought: {last[0].sought}"
                rows.append((kind, f"{before[kind].version} → {pin.version}", said))
    return rows


def _describe(matrix: Matrix, name: str) -> str:
    release = matrix.releases[name]
    dated = release.published or (f"named since {release.seen}" if release.seen else "not dated")
    ends = f"supported until {release.support.ends}" if release.support.ends else ""
    facts = [dated, ends, release.support.says]
    facts += [f"known issue {number}: {i.says}" for number, i in release.issues.items()]
    facts += [f"left to the site: {', '.join(release.leaves)}"] if release.leaves else []
    return f"- **{name}**: {'; '.join(fact for fact in facts if fact)}."


def _versions(matrix: Matrix, names: tuple[str, ...]) -> list[str]:
    """A table: a row for each component, a column for each release."""
    lines = [f"| component | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    profiles = {name: matrix.releases[name].profiles.values() for name in names}
    for kind in dict.fromkeys(k for n in names for p in profiles[n] for k in p.pins):
        cells = []
        for name in names:
            pins = [p.pins[kind] for p in profiles[name] if kind in p.pins]
            mark = " !" if any(list_pin_notices(matrix, kind, pin) for pin in pins) else ""
            cells.append(", ".join(dict.fromkeys(pin.version for pin in pins)) + mark or " ")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def _evidence(matrix: Matrix, names: tuple[str, ...]) -> list[str]:
    """A table: where each version was published, or where it was looked for."""
    rows: dict[tuple[str, str], dict[str, None]] = {}
    for name in names:
        for profile in matrix.releases[name].profiles.values():
            for kind, pin in profile.pins.items():
                said = f"not found: {pin.sought or matrix.sought.get(kind, '')}"
                said += f"; {pin.bounds} by {pin.evidence}" if pin.bounds else ""
                said = pin.evidence if pin.known else said
                rows.setdefault((f"{kind} {pin.version}", said), {})[name] = None
    lines = ["| version | releases | source |", "|---|---|---|"]
    for (version, said), releases in rows.items():
        lines.append(f"| {version} | {', '.join(releases)} | {said} |")
    return lines
