"""The database itself: connections, transactions, the lock, the seat, migrations."""
