"""How the schema came to be: one file in `versions/` for each change, never edited afterwards."""
