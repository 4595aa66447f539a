"""The REST API: routes to what people may ask, and problems as RFC 9457 has them. It decides
nothing itself."""
