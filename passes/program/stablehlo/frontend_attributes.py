# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Frontend attributes: text on an operation that XLA hands on with it."""

from __future__ import annotations

from collections.abc import Mapping

from jaxlib.mlir import ir

# XLA's combiners take collectives together only where theirs are equal.
COMBINER_KEY = "combiner_key"

_NAME = "mhlo.frontend_attributes"


def is_on(operation: ir.Operation, name: str) -> bool:
  """Whether there is a frontend attribute of this name on an operation."""
  return _NAME in operation.attributes and name in ir.DictAttr(
    operation.attributes[_NAME]
  )


def set_on(operation: ir.Operation, added: Mapping[str, str]) -> None:
  """Gives an operation frontend attributes beside those that it has."""
  attributes = {}
  if _NAME in operation.attributes:
    for named in ir.DictAttr(operation.attributes[_NAME]):
      attributes[named.name] = named.attr
  for name, text in added.items():
    attributes[name] = ir.StringAttr.get(text)
  operation.attributes[_NAME] = ir.DictAttr.get(attributes)
