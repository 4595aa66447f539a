"""SONiC's own tools for tests: sonic-cfggen, config, sonic-installer over one state file.

Shapes: sonic-utilities, doc/Command-Reference.md. A patch is checked as a whole before any of it
is applied, and nothing of it survives a reboot before it is saved.
"""

import json
import sys
from pathlib import Path

STATE = Path("/var/lib/sonic-standin.json")
STARTUP = Path("/etc/sonic/config_db.json")


def fail(words):
    sys.stderr.write(f"Error: {words}\n")
    sys.exit(2)


def apply_patch(state, steps):
    """RFC 6902's add and remove; SONiC's models: a VRF in use must exist, known tables only."""
    config = json.loads(json.dumps(state["config"]))
    for step in steps:
        keys = [k.replace("~1", "/").replace("~0", "~") for k in step["path"].split("/")[1:]]
        place = config
        for key in keys[:-1]:
            if key not in place:
                fail(f"can not find {step['path']}")
            place = place[key]
        if step["op"] == "remove":
            del place[keys[-1]]
        else:
            place[keys[-1]] = step["value"]
    for name, row in config.get("INTERFACE", {}).items():
        if row.get("vrf_name", "") not in ("", *config.get("VRF", {})):
            fail(f"Failed to apply patch: {name}: leafref {row['vrf_name']} does not exist")
    if any(t.startswith("NO_") for t in config):
        fail("Failed to apply patch: no YANG model for a table")
    state["config"] = config
    state["patches"] += 1


def main(tool, words):
    state = json.loads(STATE.read_text())
    if tool == "sonic-cfggen" and words == ["-d", "--print-data"]:
        print(json.dumps(state["config"], indent=4))
    elif tool == "config" and words[0] == "apply-patch":
        apply_patch(state, json.loads(Path(words[1]).read_text()))
        print("Patch applied successfully.")
    elif tool == "config" and words == ["save", "-y"]:
        STARTUP.parent.mkdir(parents=True, exist_ok=True)
        STARTUP.write_text(json.dumps(state["config"]))
        state["saves"] += 1
    elif tool == "sonic-installer" and words == ["list"]:
        print(f"Current: {state['running']}\nNext: {state['next']}\nAvailable: ")
        print("\n".join(state["held"]))
    elif tool == "sonic-installer" and words[:2] == ["install", "-y"]:
        name = Path(words[2]).read_text().strip()
        if not name.startswith("SONiC-OS-"):
            fail("Image file does not exist or is not a valid image file")
        state["held"] = [state["running"], name]
        state["next"] = name
        state["installs"] += 1
    elif tool == "sonic-installer" and words[0] == "set-default":
        state["next"] = words[1]
    else:
        fail(f"unknown: {tool} {words}")
    STATE.write_text(json.dumps(state))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
