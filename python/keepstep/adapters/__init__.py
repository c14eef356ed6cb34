"""Adapters for other frameworks, one module each. A module imports its framework only when it is imported itself."""
