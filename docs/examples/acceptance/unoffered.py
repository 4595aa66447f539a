"""Steps that are not answered, each with the reason that the suite prints."""

from __future__ import annotations

NO_LOGIN = "the host with a real system has no GPUs, and no address by DHCP"

OF_BARE_METAL = {
    "query_node_health_agents": "no agent of ours runs in a tenant's system",
    "deploy_nim": NO_LOGIN,
    "teardown_nim": NO_LOGIN,
}

NO_SERVICE = "it is a service for tenants' systems, which this program does not run"
LOOPBACK = (
    "BMCs of the demonstration are on loopback, without a network of tenants: a probe from an "
    "empty namespace would pass whatever the site is"
)
OTHERS = {
    "s3_object_lifecycle": "the program has no storage of objects",
    "vpc_update": "a VRF has neither tags nor settings of DNS",
    "vpc_ip_config": "addresses come from the site's address plan; a tenant sets none",
    "byoip_test": "addresses come from the site's address plan; a tenant sets none",
    "dhcp_ip_test": NO_LOGIN,
    "stable_egress_ip_test": NO_SERVICE,
    "floating_ip_test": NO_SERVICE,
    "dns_test": NO_SERVICE,
    "peering_test": "VRFs of tenants exchange routes with storage only, never with each other",
    "storage_l3_routing": NO_LOGIN,
    "backend_switch_fabric": "the simulated fabric has leaves and spines, and no core switches",
    "bmc_management_network": LOOPBACK,
    "bmc_tenant_isolation": LOOPBACK,
    "bmc_protocol_security": "BMCs keep the daemon's account alone: none with fewer rights is "
    "there to be refused",
    "bmc_bastion_access": LOOPBACK,
    "mutual_tls_test": "callers of the API show a token; certificates of callers are not taken",
}

NO_FABRIC_LOG = "its fabric is Ethernet, and no baseboard of it has a subnet manager of NVLink"
OF_OBSERVABILITY = {
    "north_south_network_telemetry": "no host of the demonstration is cabled north-south",
    "host_nic_network_telemetry": "counters of NICs are read in-band for a certificate only",
    "vpc_flow_logs": "flows of tenants are not recorded by this program",
    "bmc_gpu_telemetry": "no source says which of the BMC's values a host's system lacks",
    "storage_capacity_telemetry": "volumes of tenants are not this program's",
    "storage_performance_telemetry": "volumes of tenants are not this program's",
    "subnet_manager_logs": NO_FABRIC_LOG,
    "ufm_event_logs": "the demonstration has no InfiniBand fabric",
}

REASONS = {**OF_BARE_METAL, **OTHERS, **OF_OBSERVABILITY}

# ids of the suite's plan that have no check in it, and none of ours
LINKS = "this program divides no NVLink domain between tenants"
OF_PLAN = {
    "BFX01-04": "work is scheduled by the tenant; its check in the suite is of Kubernetes",
    "BM01-02": "it wants real GPUs",
    "BMAAS01-01, BMAAS02-01": "drives are listed and erased; no simulated system mounts one",
    "CNP03-01, SDN12-01 to SDN16-01": LINKS,
    "SDN17-01 to SDN27-01": "IMEX domains are the tenant's scheduler's",
    "CNP08-05": "an update of a switch takes a campaign, which this run does not wait for",
    "CP04-01": "the run has one daemon; rolling restarts have tests of their own",
    "HWING02-01": "a retirement is asked for, and its notice is longer than the run",
    "OBS03-01": "a tenant's system sends its log to the tenant",
    "OBS04-01": "alerts are raised and sent; no step of ours breaks a part and waits for one",
    "SDN28-01": "each rail has one leaf by design: other rails carry on",
    "SEC20-01": "whether a drive encrypts itself is read for its erasure, not reported",
    "SEC21-01": "a tenant sees a node no more once it has left; the report is the staff's",
    "SEC22-02": "the simulated BIOS has no attribute of the TPM that a set could pin",
}
