"""Figures: their one form, tables and charts made of them, and the machine they come from."""
