"""Why a step of the suite, or one of its checks, is not answered from Ironic alone."""

from __future__ import annotations

NO_RAMDISK = "Ironic writes a system by its ramdisk, which simulated hosts cannot boot"
NO_SYSTEM = f"done by Ironic, but it also wants a system that answers SSH: {NO_RAMDISK}"
NO_GPU_LIST = "it stores PCI devices that a BMC lists by system; the simulated ones list none"
NO_BUS = "notices go over oslo.messaging, and no bus was started"
NETWORKS = "networks and addresses are Neutron's"
REASONS = {
    "BmHostRebootedCheck": NO_SYSTEM,
    "BmHostStartedCheck": NO_SYSTEM,
    "BmHostPowerCycledCheck": NO_SYSTEM,
    "launch_instance": NO_RAMDISK,
    "describe_instance": NO_RAMDISK,
    "start_instance": NO_RAMDISK,
    "reboot_instance": NO_RAMDISK,
    "power_cycle_instance": NO_RAMDISK,
    "verify_image": NO_RAMDISK,
    "reinstall_instance": NO_RAMDISK,
    "query_sanitization": "Ironic cleans by its ramdisk, which simulated hosts cannot boot",
    "serial_console": "its serial consoles are of IPMI, which the simulated BMCs do not speak",
    "host_status_log": "the log of a system in use is collected by its operator's own tools",
    "deploy_nim": "it wants GPUs in a real host",
    "check_dpu_health": "a card can be enrolled as a child of its host, which was not tried",
    "query_governance_metrics": f"{NO_GPU_LIST} (and Placement counts what is in use)",
    "query_fleet_inventory": f"{NO_GPU_LIST} (and regions are Keystone's)",
    "query_stable_ips": NETWORKS,
    "query_ib_tenant_isolation": NETWORKS,
    "query_ib_keys": NETWORKS,
    "query_oob_health": "sensors are sent as notifications (ironic-prometheus-exporter): not run",
    "query_attestation": "measured boot was not found in it",
    "query_key_access": "keys of users are Nova's, and consoles are the operator's",
    "query_switch_firmware": "NVSwitch trays were not found in it",
    "query_bmc_kernel_logs": "logs of a BMC were not found in its API",
    "query_node_health_agents": "agents on hosts in use are the operator's",
    "query_planned_notifications": NO_BUS,
    "query_failure_notifications": NO_BUS,
}
