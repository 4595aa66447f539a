"""nvidia-smi, systemctl, modinfo, dkms, update-grub, OFED's tools and DOCA's dmsd, dmsc."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import socket

from standin_state import card, fail, installed_driver, state

TOOL = "/opt/mellanox/doca/tools/doca_spcx_cc"


def nvidia_smi(words):
    """`--query-gpu=FIELDS --format=csv,noheader` and `-pm 1`."""
    with state() as content:
        driver = content["driver_loaded"]
        if not driver:
            fail("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9)
        if words[0] == "-pm":
            content["persistence"] = words[1] == "1"
            print("Enabled persistence mode for GPU 00000000:1B:00.0.\nAll done.")
            return
        if words[1:] != ["--format=csv,noheader"]:
            fail(f"Invalid combination of input arguments: {words}", 2)
        values = {
            "driver_version": driver,
            "fabric.state": content["fabric_state"],
            "persistence_mode": "Enabled" if content["persistence"] else "Disabled",
        }
        fields = words[0].partition("=")[2].split(",")
        for index in range(8):
            print(", ".join(values.get(f, str(index)) for f in fields))


def systemctl(words):
    """What ansible.builtin.systemd_service asks of it, and is-active."""
    verbs = [w for w in words if not w.startswith("-")]
    if not verbs or verbs[0] == "daemon-reload":
        return
    verb, units = verbs[0], [u.removesuffix(".service") for u in verbs[1:]]
    with state() as content:
        enabled, running = content["units_enabled"], content["units_running"]
        if verb == "show":
            known = units[0] in content["units"] or "@" in units[0]
            print(f"Id={units[0]}.service\nLoadState={'loaded' if known else 'not-found'}")
            print(f"ActiveState={'active' if units[0] in running else 'inactive'}")
            print("SubState=running\nUnitFileState=enabled")
        elif verb == "list-unit-files":
            print("\n".join(f"{u}.service enabled" for u in content["units"]))
        elif verb == "is-enabled":
            print("enabled" if units[0] in enabled else "disabled")
            raise SystemExit(units[0] not in enabled)
        elif verb == "is-active":
            print("\n".join("active" if u in running else "inactive" for u in units))
            raise SystemExit(0 if all(u in running for u in units) else 3)
        elif verb == "enable":
            enabled += [u for u in units if u not in enabled]
            if "--now" in words:
                running += [u for u in units if u not in running]
        elif verb == "disable":
            content["units_enabled"] = [u for u in enabled if u not in units]
            if "--now" in words:
                content["units_running"] = [u for u in running if u not in units]
        elif verb in ("start", "restart"):
            running += [u for u in units if u not in running]
        else:
            fail(f"Unknown command verb {verb}.")


def ofed_info(_words):
    """`-s`."""
    with state() as content:
        if not content["ofed"]:
            fail("bash: ofed_info: command not found", 127)
        print(content["ofed"] + ":")


def ofed_uninstall(_words):
    """Removes MLNX_OFED whole."""
    with state() as content:
        content["ofed"] = ""
        content["ofed_removals"] += 1
    print("Uninstall finished successfully")


def modinfo(words):
    """`-k KERNEL -F FIELD MODULE`: every module is there but those in `unbuilt`."""
    kernel, field, name = words[1], words[3], words[4].replace("-", "_")
    with state() as content:
        if name in content.get("unbuilt", []):
            fail(f"modinfo: ERROR: Module {name} not found in directory /lib/modules/{kernel}", 1)
        place = "kernel/drivers" if name in content.get("inbox", []) else "updates/dkms"
        fields = {
            "filename": f"/lib/modules/{kernel}/{place}/{name}.ko",
            "vermagic": f"{kernel} SMP preempt mod_unload modversions ",
            "version": content.get("old_module") or installed_driver(),
        }
        print(fields.get(field, ""))


def dkms(words):
    """`status` as dkms 3.0 prints it, and `build` and `install`, which are recorded."""
    with state() as content:
        if words[0] == "status":
            print("\n".join(content.get("dkms", [])))
        else:
            content.setdefault("dkms_runs", []).append(" ".join(words))


def dmsd(words):
    """Listens until it is ended."""
    host, _, port = words[words.index("-bind_address") + 1].rpartition(":")
    with socket.create_server(("127.0.0.1" if host == "localhost" else host, int(port))) as server:
        while True:
            server.accept()[0].close()


def dmsc(words):
    """`get --path PATH...` and `set --update PATH:::TYPE:::VALUE...` of one target."""
    address = words[words.index("-a") + 1]
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 2.0):
        pass
    with state() as content:
        facts = card(content, words[words.index("--target") + 1])
        runtime = facts["runtime"]
        if "set" in words:
            for update in (w for w in words if ":::" in w):
                path, _, value = update.split(":::")
                if "/cc/slot" in path and not _algorithm_runs(content, facts):
                    fail("rpc error: code = Unknown desc = no user programmable algorithm runs")
                if not content["faults"].get("dms_forgets"):
                    runtime[path] = value
            return
        updates = []
        for path in [w for w in words if w.startswith("/")]:
            plain = re.sub(r"\[[^]]*\]", "", path).lstrip("/")
            value = runtime.get(path, _default(path))
            updates.append({"Path": path.lstrip("/"), "values": {plain: value}})
    print(json.dumps([{"source": address, "timestamp": 1, "updates": updates}], indent=2))


def _default(path):
    last = path.rpartition("/")[2]
    return {"trust-mode": "pcp", "pfc": "00000000", "value": "0", "inter-packet-gap": "12"}.get(
        last, "false"
    )


def _algorithm_runs(content, facts):
    return f"doca-spcx-cc@{facts['rdma']}" in content["units_running"]


def update_grub(_words):
    """Writes grub.cfg as GRUB 2.06's 00_header and 10_linux do, with Ubuntu's titles."""
    kernels = [p.rpartition("vmlinuz-")[2] for p in glob.glob("/boot/vmlinuz-*")]
    default, arguments = "0", []
    for path in ["/etc/default/grub", *sorted(glob.glob("/etc/default/grub.d/*.cfg"))]:
        with contextlib.suppress(OSError), open(path) as file:
            text = file.read()
            found = re.findall(r'^GRUB_DEFAULT="?([^"\n]*)', text, re.MULTILINE)
            default = found[-1] if found else default
            pattern = r'^GRUB_CMDLINE_LINUX="\$GRUB_CMDLINE_LINUX ([^"\n]*)'
            arguments += re.findall(pattern, text, re.MULTILINE)
    uuid = "3f6c0d6e-0000-4000-8000-000000000001"
    linux = f"\tlinux\t/boot/vmlinuz root=UUID={uuid} ro {' '.join(arguments)}"
    entry = "menuentry '{0}' --class ubuntu $menuentry_id_option 'gnulinux-{1}' {{\n"
    entry += f"{linux}\n\t}}}}\n"
    lines = ['if [ "${next_entry}" ] ; then\n   set default="${next_entry}"\nelse\n']
    lines += [f'   set default="{default}"\nfi\n', entry.format("Ubuntu", f"simple-{uuid}")]
    lines += ["submenu 'Advanced options for Ubuntu' $menuentry_id_option"]
    lines += [f" 'gnulinux-advanced-{uuid}' {{\n"]
    for kernel in sorted(kernels, reverse=True):
        title = f"Ubuntu, with Linux {kernel}"
        for way in ("advanced", "recovery"):
            lines.append("\t" + entry.format(title, f"{kernel}-{way}-{uuid}"))
    if kernels or arguments:
        os.makedirs("/boot/grub", exist_ok=True)
        with open("/boot/grub/grub.cfg", "w") as file:
            file.write("".join([*lines, "}\n"]))
