"""An operator of Kubernetes: tenants, campaigns and claims of nodes as custom resources.

It is a client of the API and nothing more: it reads custom resources through Kopf and asks the
daemon for the state that they describe. A refusal stands in the resource's conditions with the
remedy.
`python -m provisioner.integrations.kubernetes` runs it: docs/integrations/kubernetes.md.
"""
