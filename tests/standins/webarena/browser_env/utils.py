from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

Observation = str | npt.NDArray[np.uint8]


@dataclass
class DetachedPage:
    url: str
    content: str


class StateInfo(TypedDict):
    observation: dict[str, Observation]
    info: dict[str, Any]
