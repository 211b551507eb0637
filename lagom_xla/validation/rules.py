# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rules for the fields of dataclasses that are read from JSON.

Most numbers are physical figures: above zero, and small enough for the integers
of the protos and tables that they end up in.
"""

from __future__ import annotations

from typing import Annotated

import pydantic
import pydantic_core

# What a dataclass that is read as a whole has as `__pydantic_config__`; those
# inside it follow.
STRICT = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

# The type of the error of a rule that no JSON schema can state; its message
# completes "it must be".
BROKEN_RULE = "broken_rule"


def _printable(text: str) -> str:
  if not text.isprintable():
    raise pydantic_core.PydanticCustomError(
      BROKEN_RULE, "one line of printable text"
    )
  return text


Count = Annotated[int, pydantic.Field(gt=0, le=2**31 - 1)]
Bytes = Annotated[int, pydantic.Field(gt=0, le=2**63 - 1)]
# In 1e9/s, so that rates fit an int64 too.
Rate = Annotated[float, pydantic.Field(ge=1e-6, le=1e9)]
TimeUs = Annotated[float, pydantic.Field(ge=0)]

# Text that can stand in a comment of a shell script.
Line = Annotated[str, pydantic.AfterValidator(_printable)]
Text = Annotated[
  str, pydantic.Field(min_length=1), pydantic.AfterValidator(_printable)
]
