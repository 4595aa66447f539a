"""A rack's elevation as an SVG: what stands where, what is wet, off or not proved."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.membership import RackVerdict, UnitVerdict, Water

UNIT_PX = 18
WIDTH_PX = 560
TEXT_MAX = 40  # characters of a text that a machine chose
_FILLS = {
    Kind.COMPUTE_TRAY: "#dbe9f6",
    Kind.NVLINK_SWITCH: "#e2f0d9",
    Kind.POWER_SHELF: "#f0e6d2",
    Kind.OTHER: "#eeeeee",
}
_WET = {Water.WET: "#c00000", Water.UNKNOWN: "#b0b0b0", Water.DRY: "#2e75b6", Water.NONE: "none"}


def draw_elevation(verdict: RackVerdict) -> str:
    """Return the SVG, the highest unit at the top; every text of a machine is escaped."""
    highest = max(one.unit.u for one in verdict.units)
    height = (highest + 4) * UNIT_PX
    proof = "proved" if verdict.proved else "not proved"
    title = f"{verdict.rack.name}, chassis {verdict.rack.chassis_serial}: {proof}"
    size = f'width="{WIDTH_PX}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        f"<title>{_clean(title)}</title>",
        f'<text x="8" y="{UNIT_PX}" font-size="13">{_clean(title)}</text>',
    ]
    for u in range(1, highest + 1):
        y = (highest - u + 2) * UNIT_PX
        lines.append(f'<text x="8" y="{y + 13}" fill="#808080">{u}</text>')
        lines.append(
            f'<rect x="32" y="{y}" width="{WIDTH_PX - 40}" height="{UNIT_PX}" fill="none" '
            'stroke="#e0e0e0"/>'
        )
    for one in sorted(verdict.units, key=lambda each: -each.unit.u):
        lines.extend(_draw_unit(one, (highest - one.unit.u + 2) * UNIT_PX))
    legend = "left bar: blue dry, red wet, grey unknown; red frame: not as planned; dashed: off"
    lines.append(f'<text x="32" y="{height - 8}" fill="#808080">{legend}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _draw_unit(one: UnitVerdict, y: int) -> Iterator[str]:
    reading = one.reading
    power = reading.power if reading is not None else "Unknown"
    frame = "#404040" if one.member else "#c00000"
    dash = "" if power == "On" else ' stroke-dasharray="4 3"'
    why = "; ".join(finding.detail for finding in one.findings) or "as planned"
    yield f"<g><title>{_clean(f'{one.unit.name}: {why}', 400)}</title>"
    yield (
        f'<rect x="34" y="{y + 1}" width="{WIDTH_PX - 44}" height="{UNIT_PX - 2}" '
        f'fill="{_FILLS[one.unit.kind]}" stroke="{frame}"{dash}/>'
    )
    yield f'<rect x="34" y="{y + 1}" width="6" height="{UNIT_PX - 2}" fill="{_WET[one.water]}"/>'
    water = "" if one.water is Water.NONE else f", {one.water}"
    serial = reading.serial if reading is not None else ""
    for x, told in (
        (48, one.unit.name),
        (170, one.unit.kind.value),
        (280, f"{power}{water}"),
        (400, serial),
    ):
        yield f'<text x="{x}" y="{y + 13}">{_clean(told)}</text>'
    yield "</g>"


def _clean(told: str, size: int = TEXT_MAX * 2) -> str:
    """Return a text for XML: printable, short, escaped."""
    shown = "".join(c if c.isprintable() else "?" for c in told)
    return escape(shown if len(shown) <= size else f"{shown[: size - 1]}…")
