"""Stands in for NeMo Gym 0.7.0: what the adapter and its fast tests use, checked against the real one."""
