# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Copies of programs, for a pass to rewrite."""

from __future__ import annotations

from jaxlib.mlir import ir


def copied(module: ir.Module) -> ir.Module:
  """A copy of a program, in the context that is current and the module's."""
  copy = ir.Module.create()
  for name, attribute in module.operation.attributes.items():
    copy.operation.attributes[name] = attribute
  for operation in module.body.operations:
    copy.body.append(operation.operation.clone())
  return copy


def replace(module: ir.Module, copy: ir.Module) -> None:
  """Puts what became of a copy in the place of what a program has."""
  for operation in list(module.body.operations):
    operation.operation.erase()
  for operation in list(copy.body.operations):
    module.body.append(operation)
