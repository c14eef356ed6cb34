"""The response objects of OpenAI's and Anthropic's SDKs come back as themselves when their class is named."""

from __future__ import annotations

from typing import Any

import keepstep
import pytest

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

from anthropic.types import Message  # noqa: E402
from openai.types.chat import ChatCompletion  # noqa: E402

# As a server gives them: fields that the SDK does not know, values that it does not know, and fields that are not there.
COMPLETION = {
    "id": "c-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m-7b",
    "provider_field": {"cached": True},
    "choices": [
        {
            "index": 0,
            "finish_reason": "a_new_reason",
            "message": {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "t-1", "type": "function", "function": {"name": "buy", "arguments": '{"what": 1}'}}
                ],
            },
            "logprobs": {
                "content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}],
                "refusal": None,
            },
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}
MESSAGE = {
    "id": "m-1",
    "type": "message",
    "role": "assistant",
    "model": "m-7b",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "hello", "new_field": 1},
        {"type": "tool_use", "id": "t-1", "name": "buy", "input": {"what": [1, 2]}},
        {"type": "a_block_of_the_future", "what": "?"},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 2},
}


def completion(model: str, messages: list[Any]) -> ChatCompletion:
    """As the SDK makes it of what a server gave: without validation."""
    return ChatCompletion.construct(**COMPLETION)


def message() -> Message:
    return Message.construct(**MESSAGE)


# The SDK itself warns when a block of the future is dumped.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("fn, args", [(completion, {"model": "m-7b", "messages": []}), (message, {})])
def test_an_answer_of_an_sdk_comes_back_as_itself(
    run: keepstep.Run, fn: Any, args: dict[str, Any], compacted: bool
) -> None:
    """By the annotation of the function, whatever the server added: live and resumed, all of it."""
    original = fn(**args)
    with pytest.warns(RuntimeWarning):
        with run.episode("t") as episode:
            live = episode.call("llm", fn, **args)
    where, name = run.store.where, run.name
    if compacted:
        import outside

        run.store.close()
        outside.command("compact", where)
    with keepstep.open(where) as store, store.run(name).episode("t") as episode:
        again = episode.call("llm", lambda **_: pytest.fail("asked again"), returns=type(original), **args)
        episode.end("finished")
    for came in (live, again):
        assert type(came) is type(original) and came.model_dump() == original.model_dump()
        assert came.to_json() == again.to_json()
    assert came.model_dump(exclude_unset=True).keys() <= original.model_dump(exclude_unset=True).keys()


def test_the_parts_are_of_the_classes_of_the_sdk(run: keepstep.Run) -> None:
    """Attributes all the way down, as code of users' has them."""
    with run.episode("t") as episode:
        came = episode.call("llm", completion, "m-7b", [])
        assert came.choices[0].message.tool_calls[0].function.name == "buy"
        assert came.choices[0].message.reasoning_content == "hm" and came.usage.total_tokens == 3
        # What goes back to the server has none of the fields that it did not give.
        assert "function_call" not in came.choices[0].message.model_dump(exclude_unset=True)
        came = episode.call("llm", message)
        assert [type(block).__name__ for block in came.content[:3]] == [
            "ThinkingBlock",
            "TextBlock",
            "ToolUseBlock",
        ]
        assert came.content[2].input == {"what": [1, 2]}
        episode.end("finished")
