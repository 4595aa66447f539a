# A site in one file: docs/integrations/terraform.md
terraform {
  required_providers {
    provisioner = { source = "provisioner.internal/gpu/provisioner" }
  }
}

variable "server" { type = string }
variable "token_file" { type = string }
variable "ca" { type = string }
variable "secret_file" { type = string }
variable "until" { type = string }
variable "nodes" { default = 2 }
variable "receiver" { default = "https://billing.example/events" }
variable "run" { default = "draft" }

provider "provisioner" {
  server     = var.server
  token_file = var.token_file
  ca         = var.ca
}

resource "provisioner_tenant" "green" {
  name        = "green"
  nodes       = var.nodes
  spread      = true
  quota_nodes = 4
}

resource "provisioner_campaign" "winter" {
  name    = "winter-firmware"
  release = "spectrum-x-2.1.2"
  select  = "kind=host"
  policy  = jsonencode({ canary = { size = 1 } })
  run     = var.run
}

resource "provisioner_pin" "pilot" {
  name    = "node:su0-n04"
  release = "spectrum-x-1.3.0"
  reason  = "a pilot"
  until   = var.until
}

resource "provisioner_webhook" "billing" {
  name        = "billing"
  url         = var.receiver
  secret_file = var.secret_file
  tenant      = provisioner_tenant.green.name
}
