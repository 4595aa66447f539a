"""From just cabled to safely in a customer's network: the provisioner.

Floors, top to bottom (a module imports only from floors below its own; import-linter holds it):
cli · daemon / api / control / execution / redfish · playbooks · store · sim / planning · ports /
settings / components · checks · quirks · switches / model.
"""
