"""Reads inventories, cables, identities and events. Changes no firmware and no network."""
