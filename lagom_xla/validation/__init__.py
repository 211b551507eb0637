# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads dataclasses from JSON, validates them, and writes them back.

A field's annotation is its rule. pydantic checks the rule, the JSON schema
publishes it, and the message about an invalid value quotes it:

  @dataclasses.dataclass(frozen=True)
  class Link:
    __pydantic_config__ = validation.STRICT
    num_lanes: validation.Count

  validation.read(Link, {"num_lanes": 0})
  # num_lanes is 0; it must be a whole number above 0, at most 2147483647

These are standard-library dataclasses: constructing one in code is neither
checked nor slowed down.
"""

from __future__ import annotations

from lagom_xla.validation.json_schema import schema as schema
from lagom_xla.validation.reading import STRICT as STRICT
from lagom_xla.validation.reading import Bytes as Bytes
from lagom_xla.validation.reading import Count as Count
from lagom_xla.validation.reading import InvalidError as InvalidError
from lagom_xla.validation.reading import Line as Line
from lagom_xla.validation.reading import MissingError as MissingError
from lagom_xla.validation.reading import Rate as Rate
from lagom_xla.validation.reading import Text as Text
from lagom_xla.validation.reading import TimeUs as TimeUs
from lagom_xla.validation.reading import convert as convert
from lagom_xla.validation.reading import read as read
from lagom_xla.validation.reading import read_file as read_file
from lagom_xla.validation.reading import show as show
from lagom_xla.validation.reading import write as write
