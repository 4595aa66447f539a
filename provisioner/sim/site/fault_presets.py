"""Named faults, each with its number in the fault catalogue and one line of meaning.

S: sessions, T: transport, E: HTTP semantics, U: updates and tasks, V: values, P: power and media
(facts: redfish 4). H: faults of parts, seen in-band; M: maintenance agents; W: switches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from provisioner.sim.agent import agent_faults
from provisioner.sim.faults import load_faults
from provisioner.sim.faults.faults import HUGE_BYTES, BadRule
from provisioner.sim.hardware import curable_faults
from provisioner.sim.site import fault_presets_bmc
from provisioner.sim.site.fault_preset import Preset
from provisioner.sim.site.fault_preset import answer as _answer
from provisioner.sim.site.fault_preset import error_body as _error
from provisioner.sim.site.fault_preset import machine as _machine
from provisioner.sim.site.fault_preset import part as _part
from provisioner.sim.site.fault_preset import switch as _switch
from provisioner.sim.site.fault_preset import trouble as _trouble
from provisioner.sim.site.fault_preset import wire as _wire
from provisioner.sim.site.site import Site

TASKS = "/redfish/v1/TaskService/Tasks/*"
SESSIONS = "/redfish/v1/SessionService/Sessions"
INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory*"
HTML = "<!DOCTYPE html><html><body><h1>{}</h1></body></html>"


def _bfb_never_completes(site: Site, node: str, part: str) -> None:
    site.machines[node].bmcs[part or "DPU_0"].troubles.add("update_hangs")


def _host_keeps_dpu_on(site: Site, node: str, _part: str) -> None:
    for card in site.machines[node].bluefields.values():
        card.host_power_cycles_it = False


def _swap_cables(site: Site, node: str, _part: str) -> None:
    """The cables of rails 0 and 1 are plugged into each other's leaf."""
    view = site.hosts[node]
    first, second, *rest = view.cables
    view.cables = (
        replace(first, switch=second.switch, interface=second.interface),
        replace(second, switch=first.switch, interface=first.interface),
        *rest,
    )
    for cable in view.cables[:2]:
        old = cable.switch.neighbours[cable.interface]
        card = site.machines[node].devices[cable.nic_slot]
        cable.switch.neighbours[cable.interface] = replace(old, mac=card.mac)


def _leak(site: Site, switch: str, part: str) -> None:
    """Routes of the first port also appear in the maintenance VRF."""
    leaf = site.switches[switch]
    for name, entry in leaf.applied["interface"].items():
        for address in entry.get("ip", {}).get("address", {}):
            if not part or name == part:
                network, _, length = address.partition("/")
                head, _, last = network.rpartition(".")
                leaf.leaks[f"{head}.{int(last) & ~1}/{length}"] = "MAINT"


BUSY = _error("Base.1.12.ServiceTemporarilyUnavailable", "Retry in 5 seconds.")
ON_WIRE = (
    _answer("session_table_full", "S1", "no more sessions until one is deleted", 503,
            _error("IDRAC.2.8.RAC0218", "The maximum number of user sessions is reached."),
            path=SESSIONS, method="POST"),
    _answer("token_expires", "S4", "three requests are refused though logged in", 401,
            _error("Base.1.12.NoValidSession", "There is no valid session."),
            path="/redfish/v1/[A-RT-Z]*", method="GET", count=3),
    _answer("root_needs_login", "S6", "the service root wants a login", 401, None,
            path="/redfish/v1", when={"x-auth-token": "", "authorization": ""}),
    _wire("session_without_location", "S7", "a session is created, its address is not told",
          "headers", {"Location": None}, path=SESSIONS, method="POST"),
    _wire("session_elsewhere", "S7", "a session's address names another host", "headers",
          {"Location": "https://192.0.2.1{}"}, path=SESSIONS, method="POST"),
    _answer("locked_out", "S9", "the account is locked after failed logins", 401,
            _error("Base.1.12.ResourceAtUriUnauthorized", "Account temporarily locked out."),
            path=SESSIONS, method="POST"),
    _answer("forbidden_as_html", "S11", "403 comes as XHTML", 403, HTML.format("403 Forbidden"),
            path=INVENTORY),
    _wire("drops_connections", "T1", "every seventh connection ends without an answer", "drop",
          every=7),
    _wire("post_lost_after", "T3", "one POST is carried out, its answer lost", "drop_after",
          method="POST", path="*/Actions/*", count=1),
    _answer("flapping_service", "T4", "every second request meets a service not ready", 503, BUSY,
            every=2, headers={"Retry-After": "5"}),
    _answer("gateway_timeout", "T5", "504 as HTML until the BMC is reset", 504,
            HTML.format("504 Gateway Timeout"), path="/redfish/v1/[A-Z]*"),
    _wire("slow_patch", "T6", "a minute and more until a PATCH is answered", "latency", 65.0,
          method="PATCH"),
    _wire("slow_inventory", "T7", "twenty seconds for the firmware inventory", "latency", 20.0,
          path=INVENTORY),
    _wire("hangs", "T8", "one resource never answers", "latency", 3600.0,
          path="/redfish/v1/Chassis/*/NetworkAdapters*"),
    _wire("truncated_json", "T12", "a complete answer with half of its JSON", "truncate", 200,
          path=INVENTORY, method="GET"),
    _wire("broken_off", "T12", "the connection ends within the body", "break", 100,
          path="/redfish/v1/UpdateService", method="GET"),
    _wire("huge_answer", "T13", "100 MB for one resource", "pad", HUGE_BYTES,
          path="/redfish/v1/UpdateService", method="GET", count=3),
    _wire("empty_body", "T14", "200 with nothing in it", "truncate", 0, path="/redfish/v1/Systems",
          method="GET", count=3),
    _wire("garbage", "T12", "bytes that are no JSON", "garbage", path="/redfish/v1/Chassis*",
          method="GET"),
    _answer("etag_refused", "E1", "the right If-Match is answered with 412", 412,
            _error("Base.1.12.PreconditionFailed", "The ETag does not match."), method="PATCH",
            count=4),
    # as nginx does to an answer that it compresses: the tag stays the same one
    _wire("etag_weak", "E3", "a proxy makes every ETag weak", "headers", {"ETag": "W/{}"},
          method="GET"),
    _wire("etag_empty", "E4", "every ETag is empty", "headers", {"ETag": ""}, method="GET"),
    _answer("busy", "E7", "503 with Retry-After, three times", 503, BUSY, count=3,
            headers={"Retry-After": "5"}),
    _answer("busy_as_400", "E8", "busy is told as a bad request", 400,
            _error("iLO.2.14.UnableToModifyDuringSystemPOST", "Not during POST."), method="P*",
            count=2, when={"x-auth-token": "?*"}),
    _answer("task_late", "E10", "a new task is not found at first", 404,
            _error("Base.1.12.ResourceMissingAtURI", "Not found."), path=TASKS, count=2),
    _answer("info_is_object", "E13", "ExtendedInfo is an object, not a list", 400,
            {"error": {"code": "x", "message": "x",
                       "@Message.ExtendedInfo": {"MessageId": "GeneralError", "Message": "x"}}},
            method="PATCH", count=2),
    _wire("no_task_location", "E14", "202 does not say where the task is", "headers",
          {"Location": None}, method="POST", path="*Update*", status=202),
)  # fmt: skip
IN_ANSWERS = (
    _answer("task_vanishes", "U1", "a task is gone when it has ended", 404,
            _error("Base.1.12.ResourceMissingAtURI", "Not found."), path=TASKS, skip=3),
    _wire("task_new", "U4", "a task says New for a while", "merge", {"TaskState": "New"},
          path=TASKS, count=3, status=200),
    _wire("completed_critical", "U6", "Completed, 100 percent, and Critical", "merge",
          {"TaskState": "Completed", "PercentComplete": 100, "TaskStatus": "Critical"}, path=TASKS,
          status=200),
    _wire("exception_with_ok", "U7", "Exception, but its status is OK", "merge",
          {"TaskState": "Exception", "TaskStatus": "OK"}, path=TASKS, status=200),
    _wire("task_stuck", "U17", "a task says Running for ever", "merge",
          {"TaskState": "Running", "PercentComplete": 40}, path=TASKS, status=200),
    _wire("copy_stuck", "U10", "the background copy never ends", "merge",
          {"Oem": {"Nvidia": {"BackgroundCopyStatus": "InProgress"}}},
          path="/redfish/v1/Chassis/*ERoT*", method="GET", status=200),
    _trouble("update_hangs", "U17", "an update begins and never ends", "update_hangs"),
    _trouble("resets_itself", "U2", "an update ends with a BMC restart; tasks are lost",
             "resets_itself"),
    Preset("bfb_never_completes", "U17", "a BlueField's installation runs for ever", "node",
           act=_bfb_never_completes),
    Preset("dpu_stays_on", "U19", "a host power cycle does not reach the cards", "node",
           act=_host_keeps_dpu_on),
    _wire("numbers_as_strings", "V1", "every number is a string", "stringify", method="GET"),
    _wire("members_null", "V2", "a collection's members are null", "merge", {"Members": None},
          path=INVENTORY.rstrip("*"), method="GET"),
    _wire("member_twice", "V2", "a collection lists a member twice", "repeat_members",
          path=INVENTORY.rstrip("*"), method="GET"),
    _wire("no_vendor", "V3", "the root names no vendor and no product", "merge",
          {"Vendor": None, "Product": None}, path="/redfish/v1", method="GET"),
    _wire("bad_dates", "V5", "a clock that was never set", "substitute",
          ['"DateTime":"', '"LastResetTime":"00:00:00Z","DateTime":"0000-00-00T00:00:00Z '],
          path="/redfish/v1/Managers*", method="GET", status=200),
    _wire("empty_uuid", "V6", "UUID and serial are empty", "merge",
          {"UUID": "", "SerialNumber": ""}, path="/redfish/v1/Systems/*", method="GET", status=200),
    _wire("odd_version", "V7", "a version with blanks around it", "substitute",
          ['"Version":"', '"Version":"  '], path=INVENTORY, method="GET", status=200),
    _trouble("reset_ignored", "P1", "a reset is accepted and nothing happens", "ignores_reset"),
    _trouble("media_sticks", "P2", "ejected media stay inserted", "media_sticks"),
)  # fmt: skip
IN_PARTS = (
    _part("dead_gpu", "H1", "a GPU is not there: seven of eight", "GPU_SXM_5", present=False),
    _part("pcie_gen4", "H2", "a GPU's link trained down to Gen4", "GPU_SXM_3", link_gen=4),
    _part("pcie_narrow", "H3", "a GPU's link has eight lanes of sixteen", "GPU_SXM_7",
          link_width=8),
    _machine("gpu_fell_off", "H4", "a GPU has fallen off the bus"),
    _part("xid_79", "H4", "the log has Xid 79", "GPU_SXM_1", xids="79"),
    _part("xid_48", "H5", "a double-bit error: Xid 48", "GPU_SXM_2", xids="48",
          ecc_uncorrected=1),
    _part("remap_failure", "H6", "row remapping failed: return the part", "GPU_SXM_6",
          remap_failure=1, remap_uncorrectable=8),
    _part("remap_pending", "H7", "a row waits for a GPU reset to be remapped", "GPU_SXM_6",
          remap_pending=1),
    _part("ecc_off", "H8", "ECC is disabled", "GPU_SXM_4", ecc_mode="Disabled"),
    _part("nvlink_down", "H9", "two NVLinks of a GPU are inactive", "GPU_SXM_8", nvlinks_down=2),
    _part("sxid_fatal", "H10", "an NVSwitch reports a fatal SXid", "NVSwitch_1", sxid="20034"),
    _part("slow_host_link", "H11", "a GPU copies at half the bandwidth", "GPU_SXM_2",
          host_gpu_gb_s=27.0),
    _machine("fabric_manager_down", "H12", "Fabric Manager does not run"),
    _machine("persistence_off", "H13", "persistence mode is off: DCGM fails every GPU"),
    _machine("dcgm_skips_memory", "H14", "DCGM skips a plugin, which is no pass"),
    _machine("nccl_slow", "H15", "the all-reduce is below its floor"),
    _machine("nccl_corrupts", "H16", "the all-reduce gives wrong values"),
    _part("rail_down", "H17", "a rail has no carrier", "NIC_3", link_down=1),
    _part("rail_slow", "H18", "a rail runs at 200 Gb/s", "NIC_4", rate="200 Gb/sec (2X NDR)"),
    Preset("cables_swapped", "H19", "two rails are plugged into each other's leaf", "node",
           act=_swap_cables),
    _part("nic_gen4", "H20", "a SuperNIC's link is limited to Gen4", "NIC_6", link_gen=4),
    _part("dpu_locked", "H21", "a DPU does not open for the host", "DPU_1", locked=1),
    _machine("package_install_fails", "H22", "dpkg ends with an error"),
    _machine("nic_burn_fails", "H23", "a card rejects the image"),
    _machine("tools_hang", "H24", "long commands never end"),
    _machine("inband_unreachable", "H25", "the host does not answer SSH"),
    _machine("nvml_mismatch", "H26", "nvidia-smi fails between driver and reboot"),
    _machine("runtime_is_forgotten", "H27", "run-time settings of the NICs do not stay"),
)  # fmt: skip
IN_SWITCHES = (
    _switch("apply_fails", "W1", "a revision ends as invalid, with an issue"),
    _switch("apply_hangs", "W2", "a revision never ends"),
    _switch("moves_ignored", "W3", "applied, but the ports stay where they are"),
    _switch("save_lost", "W4", "a saved configuration is not there after a reboot"),
    Preset("route_leak", "W5", "node prefixes show up in a second VRF", "switch", act=_leak),
    _switch("image_fetch_fails", "W6", "the image cannot be fetched"),
    _switch("image_install_fails", "W7", "the other partition is full"),
    _switch("boot_falls_back", "W8", "the old image boots again"),
    _switch("psu_failed", "W9", "a power supply has failed"),
    _switch("fan_missing", "W10", "a fan is missing"),
    _switch("leaf_drops", "W11", "a leaf drops packets: its rail is slow for all its nodes"),
)


def _curable(row: tuple[str, str, str, str, tuple[str, ...], dict[str, Any]]) -> Preset:
    """A fault of a part that one of the named events cures."""
    name, number, meaning, slot, cured_by, changes = row

    def act(site: Site, node: str, part: str) -> None:
        curable_faults.spoil(site.machines[node], part or slot, cured_by, changes)

    return Preset(name, number, meaning, "node", act=act)


_ROWS = (*agent_faults.ALL, *load_faults.ALL)
IN_AGENTS = (*(_machine(*row) for row in _ROWS), *map(_curable, curable_faults.ALL))
PRESETS = (*ON_WIRE, *IN_ANSWERS, *fault_presets_bmc.ALL, *IN_PARTS, *IN_AGENTS, *IN_SWITCHES)
ALL: dict[str, Preset] = {p.name: p for p in PRESETS}


def inject(site: Site, name: str, subject: str, part: str = "") -> Preset:
    """Put a named fault on a node or switch, or on one of its BMCs or parts.

    Raises `BadRule` if there is no such fault, node, switch or part.
    """
    preset = ALL.get(name)
    if preset is None:
        raise BadRule(f"preset: there is no {name!r:.40}")
    there = site.switches if preset.target == "switch" else site.machines
    if subject not in there:
        raise BadRule(f"node: {subject!r:.60} is no {preset.target} of this site")
    for rule in preset.rules:
        site.faults.add(replace(rule, endpoint=f"{subject}/{part or 'host'}", seen=0, done=0))
    if preset.act is not None:
        try:
            preset.act(site, subject, part)
        except KeyError:
            raise BadRule(f"part: {subject} has no {part!r:.40}") from None
    site.injected.append((f"{subject}/{part}" if part else subject, name))
    return preset
