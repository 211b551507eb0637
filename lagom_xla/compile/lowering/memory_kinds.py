# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arguments and results in the host's memory, as StableHLO and HLO say it.

JAX writes an attribute to each, of which XLA makes a layout when it compiles.
What turns one into the other elsewhere forgets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir

from lagom_xla.passes import hlo
from lagom_xla.passes import host_copies
from lagom_xla.passes.program.stablehlo import functions

_KIND = "mhlo.memory_kind"
_HOST = "pinned_host"


def into_stablehlo(module: hlo.Module, program: ir.Module) -> None:
  """Says in a program what the module that it was made of has on the host."""
  main = functions.by_name(program.operation)["main"]
  for role, shapes in _shapes(module):
    on_host = [host_copies.is_on_host(shape) for shape in shapes]
    if any(on_host):
      kind = {_KIND: ir.StringAttr.get(_HOST)}
      known = _attributes(main, role) or [{}] * len(shapes)
      main.attributes[role] = ir.ArrayAttr.get(
        [
          ir.DictAttr.get({**of_one, **kind} if is_there else dict(of_one))
          for of_one, is_there in zip(known, on_host, strict=True)
        ]
      )


def into_hlo(program: ir.Module, module: hlo.Module) -> None:
  """Says in a module what the program that it was made of has on the host."""
  main = functions.by_name(program.operation)["main"]
  for role, shapes in _shapes(module):
    for shape, of_one in zip(shapes, _attributes(main, role), strict=False):
      if _KIND in of_one and ir.StringAttr(of_one[_KIND]).value == _HOST:
        host_copies.put_on_host(shape)


def _shapes(module: hlo.Module) -> Iterator[tuple[str, Sequence[hlo.Shape]]]:
  """The layouts that a module takes and returns arrays in."""
  shape = module.proto.host_program_shape
  yield "arg_attrs", shape.parameters
  yield "res_attrs", shape.result.tuple_shapes or [shape.result]


def _attributes(main: ir.Operation, role: str) -> list[Mapping[str, Any]]:
  """Those of each argument or result; empty where none has any."""
  if role not in main.attributes:
    return []
  known: Any = main.attributes[role]
  return [{a.name: a.attr for a in ir.DictAttr(each)} for each in known]
