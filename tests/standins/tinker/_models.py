"""Stand-in: the base of tinker's types."""

import pydantic


class StrictBase(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")
