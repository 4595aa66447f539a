"""The pinned matrix: parsed, checked, compared, drawn. Pure."""
