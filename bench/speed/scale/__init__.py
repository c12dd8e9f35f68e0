"""Many documents: what a batch costs beside a plain loop, and what becomes of it when something is killed."""
