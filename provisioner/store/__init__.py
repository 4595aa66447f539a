"""What is true, durably: schema, migrations, queries."""
