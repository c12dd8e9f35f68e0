"""EQUIP against copies and gathers."""
