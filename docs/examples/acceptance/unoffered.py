"""Steps that are not answered, each with the reason that the suite prints."""

from __future__ import annotations

NO_LOGIN = "the hosts of the demonstration are simulated: no system with SSH answers there"

OF_BARE_METAL = {
    "serial_console": "the demonstration collects no serial consoles: its BMCs offer none by SSH",
    "host_status_log": "the API has no log of a running host; a case collects the kernel's log",
    "check_dpu_health": "the demonstration watches no card: there is no sign of life of its own",
    "query_ib_tenant_isolation": "the demonstration has no InfiniBand fabric",
    "query_ib_keys": "the demonstration has no InfiniBand fabric",
    "query_firmware_sanitization": (
        "BIOS settings are not reset between tenants: the erasure report names them not_done"
    ),
    "query_attestation": "attestation is not required by this profile",
    "query_key_access": "tenants have no SSH keys here that open a console",
    "query_bmc_kernel_logs": "the simulated BMCs have an event log and dumps, no kernel log",
    "query_node_health_agents": "no agent of ours runs in a tenant's system",
    "deploy_nim": NO_LOGIN,
    "teardown_nim": NO_LOGIN,
}

NO_FILTER = "a tenant is separated by its VRF; leaves get no filter rules from this program"
NO_SERVICE = "it is a service for tenants' systems, which this program does not run"
LOOPBACK = "BMCs and API of the demonstration are on loopback: no network is there to probe from"
NO_KMS = "the master key is a file or a variable of the daemon; no key service is connected"
OTHERS = {
    "s3_object_lifecycle": "the program has no storage of objects",
    "vpc_update": "a VRF has neither tags nor settings of DNS",
    "sg_crud": NO_FILTER,
    "sg_workload_scoping": NO_FILTER,
    "sg_node_scoping": NO_FILTER,
    "sg_subnet_scoping": NO_FILTER,
    "sg_service_scoping": NO_FILTER,
    "sg_port_security_policy": NO_FILTER,
    "sg_policy_propagation": NO_FILTER,
    "sdn_filter_audit_trail": NO_FILTER,
    "vpc_ip_config": "addresses come from the site's address plan; a tenant sets none",
    "byoip_test": "addresses come from the site's address plan; a tenant sets none",
    "dhcp_ip_test": NO_LOGIN,
    "sdn_hardware_fault_logging": "no route lists the faults of switches apart from other events",
    "sdn_latency_perf_logging": "latency is measured for a certificate, not logged in service",
    "stable_egress_ip_test": NO_SERVICE,
    "floating_ip_test": NO_SERVICE,
    "dns_test": NO_SERVICE,
    "peering_test": "VRFs of tenants exchange routes with storage only, never with each other",
    "storage_l3_routing": NO_LOGIN,
    "backend_switch_fabric": "the simulated fabric has leaves and spines, and no core switches",
    "bmc_management_network": LOOPBACK,
    "bmc_tenant_isolation": LOOPBACK,
    "bmc_protocol_security": LOOPBACK,
    "bmc_bastion_access": LOOPBACK,
    "api_endpoint_isolation": LOOPBACK,
    "mutual_tls_test": "callers of the API show a token; certificates of callers are not taken",
    "insecure_protocols_test": "the suite's own probe of TLS versions has no counter-proof here",
    "mfa_enforcement": "it is the OIDC provider's, and the demonstration has none",
    "oidc_user_auth_test": "the demonstration has no OIDC provider",
    "cert_rotation_test": "the demonstration ends before a certificate is renewed",
    "kms_encryption_options_test": NO_KMS,
    "centralized_kms_test": NO_KMS,
    "customer_managed_key_test": NO_KMS,
    "short_lived_credentials_test": "nodes and work on them get no credentials from this program",
    "least_privilege_policy": "a role holds for the whole site, not for single resources",
    "audit_logging_test": "a change in the journal has no source address and no user agent",
    "tenant_isolation_test": "tenants have no keys and volumes here to be refused",
    "topology_block_atomic_allocation": "a tenant gets nodes one by one, not a block as a whole",
}

REASONS = {**OF_BARE_METAL, **OTHERS}
