"""Steps that are not answered, each with the reason that the suite prints."""

from __future__ import annotations

NO_LOGIN = "the hosts of the demonstration are simulated: no system with SSH answers there"

REASONS = {
    "serial_console": "the demonstration collects no serial consoles: its BMCs offer none by SSH",
    "host_status_log": "the API has no log of a running host; a case collects the kernel's log",
    "stop_instance": "power is switched for nodes without a tenant only: a tenant's is refused",
    "start_instance": "power is switched for nodes without a tenant only: a tenant's is refused",
    "reboot_instance": "power is switched for nodes without a tenant only: a tenant's is refused",
    "power_cycle_instance": (
        "power is switched for nodes without a tenant only: a tenant's is refused"
    ),
    "check_dpu_health": "the demonstration watches no card: there is no sign of life of its own",
    "query_ib_tenant_isolation": "the demonstration has no InfiniBand fabric",
    "query_ib_keys": "the demonstration has no InfiniBand fabric",
    "query_firmware_sanitization": (
        "BIOS settings are not reset between tenants: the erasure report names them not_done"
    ),
    "query_attestation": "attestation is not required by this profile",
    "query_key_access": "tenants have no SSH keys here that open a console",
    "query_oob_health": "the API does not name the probes of a BMC",
    "query_bmc_kernel_logs": "the simulated BMCs have an event log and dumps, no kernel log",
    "query_node_health_agents": "no agent of ours runs in a tenant's system",
    "deploy_nim": NO_LOGIN,
    "teardown_nim": NO_LOGIN,
}
