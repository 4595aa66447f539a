"""The REST API: routes for people and programs, and problems in the form of RFC 9457.

It decides nothing itself.
"""
