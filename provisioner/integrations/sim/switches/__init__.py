"""Simulated switches and their NVUE and SONiC interfaces."""
