"""keepstep keeps every step of an agent's rollout, so that no crash costs more than the step in flight."""

from ._core import __version__

__all__ = ["__version__"]
