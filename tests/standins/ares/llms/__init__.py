"""Requests and responses."""

from ares.llms.request import LLMRequest as LLMRequest
from ares.llms.response import LLMResponse as LLMResponse
from ares.llms.response import TextData as TextData
from ares.llms.response import Usage as Usage
