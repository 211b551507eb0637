# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tensors: the shapes and sizes of a program's values."""

from __future__ import annotations

import math
from typing import Any

from jaxlib.mlir import ir


def shape_of(value: ir.Value) -> tuple[int, ...] | None:
  """The shape of a tensor; None if it is no tensor or its sizes vary."""
  type_ = value.type
  if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
    return None
  return tuple(type_.shape)


def num_bytes(value: ir.Value) -> int:
  """Bytes of a tensor, as XLA stores it: a byte for each truth value.

  0 of what is no tensor, or has a special type.
  """
  shape: Any = shape_of(value)
  element: Any = getattr(value.type, "element_type", None)
  if shape is None:
    return 0
  num = math.prod(shape)
  if isinstance(element, ir.ComplexType):
    num, element = 2 * num, element.element_type
  width = getattr(element, "width", 0)
  return -(-num * (8 if width == 1 else width) // 8)
