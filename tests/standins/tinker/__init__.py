"""Stand-in of tinker."""

from . import types as types
from .types import EncodedTextChunk as EncodedTextChunk
from .types import ModelInput as ModelInput
from .types import StopReason as StopReason
