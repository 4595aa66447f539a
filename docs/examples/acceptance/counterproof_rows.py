"""The list of counter-proofs: suite, step, breakage, about, and the ids that are proved by it.

`about` is a setting of the demonstration for the step's --node or --rack, or a literal; `-`: none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One counter-proof."""

    suite: str
    step: str
    breaks: str  # name of the breakage
    about: str
    test_ids: tuple[str, ...]


def _read_rows(table: str) -> tuple[Row, ...]:
    """Return the rows of a table."""
    rows = []
    for line in table.split("\n"):
        if line:
            suite, step, breaks, about, *ids = line.split()
            rows.append(Row(suite, step, breaks, about.strip("-"), tuple(ids)))
    return tuple(rows)


# before the suite, when nothing has happened yet
BEFORE = _read_rows("""
bare_metal launch_instance other_key - BMAAS03-01 BOOT02-01
own crud_tenant_key key - AUTH01-01
own launch_with_key other_key - AUTH02-01
bare_metal query_maintenance_events empty - BFX02-01
bare_metal query_retirement_notices empty - BFX02-02
bare_metal query_repair_history empty - BFX02-03
bare_metal query_planned_notifications empty - BFX05-01
bare_metal query_failure_notifications empty - BFX06-01
bare_metal verify_ingestion absent - HWING01-01
bare_metal query_governance_metrics stranger - CAP01-01
bare_metal query_fleet_inventory stranger - CAP02-01
bare_metal query_resource_discovery stranger - CAP03-01
bare_metal query_health_aggregation stranger - CAP05-02
bare_metal query_stable_ips stranger - STG03-01
bare_metal query_oob_health stranger - STG04-01
bare_metal query_topology stranger - STG05-01
bare_metal query_serial_numbers stranger - BFX03-01
bare_metal query_switch_firmware stranger - BFX03-02
bare_metal return_node_maintenance key machine_id BFX01-02
bare_metal return_rack_maintenance key rack_id BFX01-03
bare_metal request_host_replacement key replaced_id BFX01-05
bare_metal topology_placement key machine_id CNP01-04
bare_metal verify_tags untagged retired_id CNP05-01
bare_metal reinstall_instance key machine_id CNP08-02
control-plane check_api key - CP03-01
control-plane test_access_key bad_key - CP05-01
control-plane verify_key_rejected good_key - CP06-01
control-plane create_tenant key - CP07-01
control-plane list_tenants none acceptance-none CP08-01
control-plane get_tenant none acceptance-none CP09-01
control-plane delete_tenant none acceptance-none CP10-01
iam test_credentials bad_key - IAM01-01 IAM03-01
iam delete_user key acceptance-none IAM02-01
network vpc_crud key - SDN01-01 SDN01-02 SDN01-04
network nvlink_domain stranger machine_id NET02-02
security sa_credential_test key - SEC03-01
security least_privilege_test rights machine_id SEC04-02
security capacity_reservation_grouping key - CAP04-01
security topology_block_atomic_allocation key - CAP04-02
security short_lived_credentials_test long - SEC06-01
security insecure_protocols_test old_TLS - SEC13-02
security api_endpoint_isolation outside - SEC14-01
observability telemetry_delivery_latency stranger - OBS05-01
observability bmc_sel_logs stranger - OBS17-01
observability general_switch_logs unsent - OBS14-01
observability switch_syslogs unsent - OBS15-01
observability switch_kernel_logs unsent - OBS16-01
observability host_syslogs unsent - OBS18-01
observability fabric_manager_logs unsent - OBS11-01
own reset_gpus key replaced_id BFX01-01
image-registry crud_install_config key - BOOT01-02
image-registry upload_image taken - BOOT01-01
image-registry crud_image taken - BOOT03-02
own query_api key - CTRL01-01
own add_tenant_user rights - CP11-01
own query_resources absent - RESDB01-01
own query_switches stranger - NETMGMT01-01
own query_versions stranger - ATTEST01-01 CNP09-01 ATTEST02-01 SEC22-03
own query_install_config image - IMG02-01
security least_privilege_policy stranger - SEC04-01
security audit_logging_test other_program - SEC08-01
security audit_logging_test key - SEC08-02
image-registry install_config_bm key - BOOT01-04
own query_image image - IMG01-01
own query_control_log key - OBS02-01
own tenant_subnets stranger - SDN04-01
own node_lifecycle key - CNP01-01 CNP01-02 CNP01-03 HSS05-01
bare_metal serial_console forgotten machine_id CNP06-02
bare_metal query_key_access foreign machine_id AUTH03-01
bare_metal query_ib_tenant_isolation partition - SDN04-04
bare_metal query_ib_keys no_M_Key - SDN04-05
own read_console_only foreign machine_id TELEM02-01
security oidc_user_auth_test audience - SEC01-01
security mfa_enforcement factor - SEC07-01
security kms_encryption_options_test opened - SEC09-02
security centralized_kms_test opened - SEC09-03
security customer_managed_key_test opened - SEC09-04
own query_collector uncollected - OBS01-01
observability east_west_network_telemetry stranger - OBS07-01
network sdn_latency_perf_logging stranger - SDN09-02
security tenant_isolation_test rights - SEC11-01
security cert_rotation_test year - SEC09-01
observability management_network_telemetry stranger - OBS08-01
own query_cross_tenant_probes stranger - SDN04-03
network sdn_hardware_fault_logging stranger - SDN09-01
""")
# after it, since these break something
AFTER = _read_rows("""
bare_metal query_attestation implanted - SEC22-01 CNP09-02
bare_metal query_sanitization unwiped - SEC21-02 STG02-01
bare_metal query_memory_sanitization unwiped - SEC21-04
bare_metal query_gpu_sanitization unwiped - SEC21-05
bare_metal query_firmware_sanitization unwiped - SEC21-06
bare_metal query_host_health damaged - CAP05-01
bare_metal check_dpu_health card - BMAAS05-01
bare_metal query_bmc_kernel_logs silent - BFX03-03
bare_metal verify_image silent retired_id BOOT01-03
bare_metal reboot_instance silent retired_id CNP01-05 CNP08-01
bare_metal power_cycle_instance silent retired_id CNP01-06
bare_metal stop_instance silent retired_id CNP01-07
bare_metal start_instance silent retired_id CNP01-08
network stable_ip_test silent retired_id SDN11-01
network vpc_isolation leaf - SDN04-02
bare_metal serial_console silent retired_id CNP06-01
bare_metal host_status_log silent retired_id BMAAS07-01
observability gpu_nvlink_telemetry silent retired_id TELEM07-01
observability switch_nvlink_telemetry silent retired_id TELEM08-01
observability nvswitch_fabric_telemetry silent retired_id OBS09-01
network sg_crud leaf - SDN02-01 SDN02-02 SDN02-03 SDN02-04
network sg_workload_scoping leaf - SDN02-05
network sg_node_scoping leaf - SDN02-06
network sg_subnet_scoping leaf - SDN02-07
network sg_policy_propagation leaf - SDN02-08
network sg_service_scoping leaf - SDN02-09
network sg_port_security_policy leaf - SDN02-10
network sdn_filter_audit_trail leaf - SDN09-03
""")
