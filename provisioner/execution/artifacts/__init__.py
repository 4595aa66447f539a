"""Firmware files and images: found, verified, offered to devices."""
