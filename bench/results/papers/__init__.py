"""Headline tables and figures of the five papers, and the figures of ours that come closest."""
