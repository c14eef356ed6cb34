from enum import IntEnum
from typing import TypedDict

import numpy as np
import numpy.typing as npt


class Action(TypedDict):
    action_type: int
    coords: npt.NDArray[np.float32]
    element_role: int
    element_name: str
    text: list[int]
    page_number: int
    url: str
    nth: int
    element_id: str
    direction: str
    key_comb: str
    pw_code: str
    answer: str
    raw_prediction: str


class ActionTypes(IntEnum):
    NONE = 0
    SCROLL = 1
    KEY_PRESS = 2
    MOUSE_CLICK = 3
    KEYBOARD_TYPE = 4
    MOUSE_HOVER = 5
    CLICK = 6
    TYPE = 7
    HOVER = 8
    PAGE_FOCUS = 9
    NEW_TAB = 10
    GO_BACK = 11
    GO_FORWARD = 12
    GOTO_URL = 13
    PAGE_CLOSE = 14
    CHECK = 15
    SELECT_OPTION = 16
    STOP = 17


def create_none_action() -> Action:
    return Action(
        action_type=ActionTypes.NONE,
        coords=np.zeros(2, dtype=np.float32),
        element_role=0,
        element_name="",
        text=[],
        page_number=0,
        url="",
        nth=0,
        pw_code="",
        element_id="",
        key_comb="",
        direction="",
        answer="",
        raw_prediction="",
    )


def create_stop_action(answer: str) -> Action:
    action = create_none_action()
    action["action_type"], action["answer"] = ActionTypes.STOP, answer
    return action
