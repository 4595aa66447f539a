"""Reads what is: inventories, cables, identities, events. Changes no firmware and no network."""
