"""The machine below: its memory, its processes, what it is made of."""
