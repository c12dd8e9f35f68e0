"""Answers: what goes into the pot for one, the steps that decode it, what it recalls and names."""
