from .actions import Action
from .utils import StateInfo

Trajectory = list[StateInfo | Action]
