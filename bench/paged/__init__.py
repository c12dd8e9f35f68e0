"""The operator-level half of EQUIP 4.4, a pot of pages: only tests and `ondevice bench equip` import it."""
