"""The token map: its routes, accounts and views."""
