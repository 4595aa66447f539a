"""flint, mlxconfig, mlxfwreset, mlxfwmanager, mlxreg, mlnx_qos and bfb-install, as they print."""

from __future__ import annotations

import itertools
import json
import sys
import time

from standin_state import card, fail, misc, reset, state


def flint(words):
    """`-d DEVICE q`, `-i IMAGE q`, `-d DEVICE -i IMAGE -y burn`."""
    options = dict(itertools.pairwise(words))
    with state() as content:
        faults = content["faults"]
        if words[-1] == "q" and "-i" in options:
            version, psid = image(options["-i"])
            print(query(version, version, psid))
            return
        facts = card(content, options["-d"])
        if faults.get("flint_garbled"):
            print("-E- Flash gw is locked")
            return
        if words[-1] == "q":
            print(query(facts["flash"], facts["running"], facts["psid"]))
            return
        version, psid = image(options["-i"])
    print(f"    Current FW version on flash:  {facts['flash']}\n    New FW version:  {version}\n")
    time.sleep(faults.get("flint_s", 0))
    with state() as content:
        facts = card(content, options["-d"])
        if faults.get("flint_fails"):
            fail("-E- Burning FS4 image failed: Rejected authentication")
        facts["flash"] = version
        content["burns"] += 1
    print("Burning FS4 image - OK\nRestoring signature - OK")
    print("-I- To load new FW run mlxfwreset or reboot machine.")


def image(path):
    """Version and PSID that a stand-in image names in its first line."""
    try:
        with open(path) as file:
            version, psid = file.readline().split()
    except (OSError, ValueError):
        fail(f"-E- Cannot open {path}: not a firmware image")
    return version, psid


def query(flash, running, psid):
    """The head of `flint q`; the running version is there only if it is another."""
    lines = ["Image type:            FS4", f"FW Version:            {flash}"]
    if running != flash:
        lines.append(f"FW Version(Running):   {running}")
    lines += [
        "FW Release Date:       16.2.2025",
        f"Product Version:       {flash}",
        "Rom Info:              type=UEFI version=14.37.14 cpu=AMD64,AARCH64",
        "                       type=PXE version=3.7.500 cpu=AMD64",
        "Description:           UID                GuidsNumber",
        "Base GUID:             c470bd0300ed56ae        32",
        "Image VSD:             N/A",
        "Device VSD:            N/A",
        f"PSID:                  {psid}",
        "Security Attributes:   secure-fw",
    ]
    return "\n".join(lines)


def mlxconfig(words):
    """`-d DEVICE -e -j /dev/stdout q` and `-d DEVICE -y set NAME=VALUE...`."""
    with state() as content:
        device = words[words.index("-d") + 1] if "-d" in words else ""
        if "set" in words:
            facts = card(content, device)
            for pair in words[words.index("set") + 1 :]:
                name, _, value = pair.partition("=")
                if name not in facts["config"]:
                    fail(f"-E- The Device doesn't support {name} parameter")
                facts["config"][name]["next_value"] = spelled(facts["config"][name], value)
            print("\nDevice #1:\n----------\n\nApplying... Done!")
            print("-I- Please reboot machine to load new configurations.")
            return
        chosen = [device] if device else list(content["cards"])
        document = {}
        for number, name in enumerate(chosen, start=1):
            facts = card(content, name)
            document[f"Device #{number}"] = {
                "description": facts["description"],
                "device": name.removeprefix("0000:"),
                "device_type": facts["type"],
                "name": facts["part"],
                "tlv_configuration": facts["config"],
            }
        print(json.dumps(document, indent=2))


def spelled(entry, value):
    """A value as the tool prints it: in the style of its default."""
    default = str(entry["default_value"])
    if default in ("True(1)", "False(0)"):
        return {"0": "False(0)", "1": "True(1)"}[value]
    if "(" in default:
        return f"VALUE_{value}({value})"
    return int(value)


def mlxfwreset(words):
    """`-d DEVICE --level 3 -y reset`."""
    with state() as content:
        if content["faults"].get("reset_too_weak"):
            print("-I- FW reset was done.")
            return
        reset(card(content, words[words.index("-d") + 1]))
    print("\nThe reset level for device is:\n\n3: Driver restart and PCI reset")
    print("-I- Stopping Driver               -Done\n-I- Resetting PCI                 -Done")
    print("-I- Starting Driver               -Done\n-I- FW was loaded successfully.")


def mlxreg(words):
    """`-d DEVICE --reg_name ROCE_ACCL --get`."""
    fields = {
        "roce_adp_retrans_en": "adaptive-retransmission",
        "roce_tx_window_en": "tx-window",
        "roce_slow_restart_en": "slow-restart",
        "roce_slow_restart_idle_en": "slow-restart-idle",
        "adaptive_routing_forced_en": "adaptive-routing-force",
    }
    with state() as content:
        runtime = card(content, words[words.index("-d") + 1])["runtime"]
    print("Sending access register...\n\nField Name                                     | Data")
    print("=" * 60)
    for field, word in fields.items():
        on = any(p.endswith("roce/config/" + word) and v == "true" for p, v in runtime.items())
        print(f"{field:<46} | 0x{int(on):08x}")
    print("=" * 60)


def mlnx_qos(words):
    """`-i INTERFACE`, and `--trust=MODE` or `--pfc=0,0,0,1,0,0,0,0`."""
    name = words[words.index("-i") + 1]
    with state() as content:
        for one in (c["runtime"] for c in content["cards"].values() if c["net"] == name):
            for word in words:
                option, _, value = word.partition("=")
                if option in ("--trust", "--pfc") and not content["faults"].get("qos_forgets"):
                    path = {"--trust": "/qos/trust-mode", "--pfc": "/qos/pfc"}[option]
                    one[path] = value.replace(",", "")
        runtimes = [c["runtime"] for c in content["cards"].values() if c["net"] == name]
    if not runtimes:
        fail(f"Interface {name} does not exist")
    found = {path.rpartition("/")[2]: value for path, value in runtimes[0].items()}
    print("DCBX mode: OS controlled")
    print("Priority trust state:", found.get("trust-mode", "pcp"))
    print("PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7")
    print("\tenabled     " + "   ".join(found.get("pfc", "00000000")))


def setpci(words):
    """`-s ADDRESS REGISTER` and `-s ADDRESS REGISTER=VALUE[:MASK]`."""
    address, change = words[words.index("-s") + 1], words[-1]
    register, _, value = change.partition("=")
    with state() as content:
        registers = content["registers"].get(address, {})
        if register not in registers:
            fail(f"setpci: {address}: Instance #0 of Extended Capability 000d not found", 1)
        if not value:
            print(registers[register])
            return
        bits, _, mask = value.partition(":")
        keep = int(registers[register], 16) & ~int(mask or "ffff", 16)
        registers[register] = f"{keep | int(bits, 16):04x}"


def lspci(words):
    """`-Dn -d ::0604`: the bridges."""
    if words != ["-Dn", "-d", "::0604"]:
        fail(f"lspci: invalid option {words}")
    with state() as content:
        for address in content["bridges"]:
            print(f"{address} 0604: 1000:c030 (rev b0)")


def bfb_install(words):
    """`--rshim rshim0 --bfb FILE`: the image names bundle and NIC firmware in its first line.

    As since rshim 2.0.34 (Mellanox/rshim-user-space, commit a4a9b9c): what it has read and printed
    is gone from the card's log, and its exit code is 0 however the installation ended.
    """
    device = words[words.index("--rshim") + 1]
    with open(words[words.index("--bfb") + 1]) as file:
        bundle, version = file.readline().split()
    with state() as content:
        name = next(n for n, c in content["cards"].items() if f"rshim{c['rshim']}" == device)
        facts = content["cards"][name]
        log = ["INFO[BL2]: start", "INFO[UEFI]: eMMC probed", "INFO[MISC]: Installation started"]
        if content["faults"].get("bfb_fails"):
            log += ["ERR[MISC]: Failed to update NIC firmware", "INFO[MISC]: Linux up"]
        else:
            facts["flash"], facts["bundle"] = version, f"bf-bundle-{bundle}_ubuntu-22.04_prod"
            log += ["INFO[MISC]: Installation finished", "INFO[MISC]: DPU is ready"]
        with open(f"/dev/{device}/misc", "w") as file:
            file.write(misc(name, facts, []))
    sys.stdout.write("Pushing bfb\nCollecting BlueField booting status. Press Ctrl+C to stop\n")
    print("\n".join(" " + text for text in log))


def release(words):
    """The card's own system, asked for its bundle: stands for ssh over tmfifo_net0."""
    with state() as content:
        print(card(content, words[0])["bundle"])
