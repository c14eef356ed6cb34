"""The captured tokens of model calls."""
