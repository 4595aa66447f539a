"""Makes a role's README from its argument specification; run it after a change: it writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).parents[2] / "ansible" / "roles"


def readme(role: Path) -> str:
    """What the specification and the defaults say, for a person."""
    spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text()) or {}
    main = spec["argument_specs"]["main"]
    lines = [f"# {role.name}", "", main["short_description"] + ".", ""]
    about = main.get("description", [])
    lines += [about if isinstance(about, str) else "\n".join(about), ""] if about else []
    lines += ["| variable | type | default | meaning |", "|---|---|---|---|"]
    for name, option in main["options"].items():
        lines.append(f"| `{name}` | {_type(option)} | {_default(name, option, defaults)} | ")
        lines[-1] += f"{option['description'].replace('|', chr(92) + '|')} |"
    return "\n".join(lines) + "\n"


def _type(option: dict[str, Any]) -> str:
    kind = f"list of {option['elements']}" if option["type"] == "list" else option["type"]
    choices = [repr(c) if c == "" else str(c) for c in option.get("choices", ())]
    return kind + (": " + ", ".join(choices) if choices else "")


def _default(name: str, option: dict[str, Any], defaults: dict[str, Any]) -> str:
    if option.get("required"):
        return "required"
    value = yaml.safe_dump(defaults[name], default_flow_style=True, width=1000).strip()
    return f"`{value.removesuffix('...').strip()}`"


if __name__ == "__main__":
    for found in sorted(ROLES.iterdir()):
        (found / "README.md").write_text(readme(found))
