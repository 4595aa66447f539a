# Agent of OpenBao or Vault on the machine where `provisioner intake` is run: it logs in by AppRole
# and writes factory passwords from KV (version 2) to files that the expected-hardware list names.
#   bao agent -exit-after-auth -config=agent.hcl

vault {
  address = "https://bao.example:8200"
  ca_cert = "/etc/provisioner/bao-ca.pem"
}

auto_auth {
  method "approle" {
    config = {
      role_id_file_path                   = "/etc/provisioner/role-id"
      secret_id_file_path                 = "/etc/provisioner/secret-id"
      remove_secret_id_file_after_reading = false
    }
  }
}

template {
  contents             = "{{ with secret \"secret/data/bmc/nvidia_openbmc\" }}{{ .Data.data.password }}{{ end }}"
  destination          = "/run/provisioner/factory-nvidia"
  perms                = "0600"
  error_on_missing_key = true
}
