"""Documents kept on disk with their pots, and the index over what they hold."""
