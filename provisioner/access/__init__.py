"""Identification of callers by local tokens and OIDC; each route declares the permissions it needs.

Law: a token is read from a header, never stored and never logged. A caller with an invalid token
gets the same answer for every cause.
"""
