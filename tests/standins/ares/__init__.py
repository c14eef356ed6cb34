"""What the adapter and its tests use of ARES (martian-ares), without what that needs. `make test-outside` compares it."""

from ares.environments.base import Environment as Environment
from ares.environments.base import TimeStep as TimeStep
from ares.registry import EnvironmentInfo as EnvironmentInfo
from ares.registry import make as make
from ares.registry import register_env as register_env
from ares.registry import register_preset as register_preset
