"""Who is asking: local tokens and OIDC. What they may do is declared beside each route.

Law: a token is read from a header, never kept, never logged; whatever is wrong with one, the answer
to its holder is the same.
"""
