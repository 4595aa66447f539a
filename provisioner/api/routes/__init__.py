"""The routes of the API: one module for each noun, with its records, handlers and `ROUTES`."""
