"""Stands in for WebArena's types: what states and actions are made of, without a browser."""

from .actions import Action, ActionTypes, create_none_action, create_stop_action
from .trajectory import Trajectory
from .utils import DetachedPage, StateInfo

__all__ = [
    "Action",
    "ActionTypes",
    "DetachedPage",
    "StateInfo",
    "Trajectory",
    "create_none_action",
    "create_stop_action",
]
