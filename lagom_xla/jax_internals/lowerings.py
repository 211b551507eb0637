# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lowered steps of JAX: which module each has, for whom, and what it shares."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import jax
from jaxlib.mlir import ir

from lagom_xla import errors


def client_of(lowered: jax.stages.Lowered) -> Any:
  """The client of the backend that a step was lowered for."""
  return lowered._lowering.compile_args["backend"]


def with_module(
  lowered: jax.stages.Lowered, module: ir.Module
) -> jax.stages.Lowered:
  """A lowered step with another module in place of its own.

  Shardings, donation and the trees of arguments and results are kept, so the
  module must take and return what its own one does.

  Raises:
    UnsupportedError: JAX lowers in another way.
  """
  if getattr(lowered._lowering, "_hlo", None) is None:
    raise errors.UnsupportedError(
      f"JAX {jax.__version__} keeps a lowered step's module where this"
      " lagom_xla does not know, and cannot be given another one."
    )
  return _changed(lowered, _hlo=module)


def with_client(lowered: jax.stages.Lowered, client: Any) -> jax.stages.Lowered:
  """A lowered step that is compiled by another client."""
  known = lowered._lowering.compile_args
  return _changed(lowered, compile_args={**known, "backend": client})


def _changed(
  lowered: jax.stages.Lowered, **attributes: Any
) -> jax.stages.Lowered:
  """A lowered step whose lowering has other attributes, and is not compiled."""
  lowering: Any = copy.copy(lowered._lowering)
  for name, value in {**attributes, "_executable": None}.items():
    setattr(lowering, name, value)
  changed = copy.copy(lowered)
  changed._lowering = lowering
  return changed


def copied(lowered: jax.stages.Lowered) -> jax.stages.Lowered:
  """A lowered step with a copy of its module.

  JAX remembers executables by module and options, whatever passes took part.
  """
  module: Any = lowered.compiler_ir("stablehlo")
  with module.context, ir.Location.unknown():
    cloned = ir.Module.create()
    for name, attribute in module.operation.attributes.items():
      cloned.operation.attributes[name] = attribute
    for operation in module.body.operations:
      cloned.body.append(operation.operation.clone())
  return with_module(lowered, cloned)


def serialized_hlo(lowered: jax.stages.Lowered) -> bytes:
  """The HloModuleProto of a lowered step, serialized."""
  computation: Any = lowered.compiler_ir("hlo")
  return computation.as_serialized_hlo_module_proto()


def identity_of(lowered: jax.stages.Lowered) -> object:
  """What signatures share that jit would compile only once."""
  return lowered._lowering, lowered.in_tree, lowered.out_tree


def changes_refs(lowered: jax.stages.Lowered) -> bool:
  """Whether a step works on refs, which it takes or was traced with."""
  return lowered._lowering.compile_args.get("mut") is not None


def digest(module: ir.Module) -> str:
  """A hash of what a module computes, and how, but for source lines."""
  text = str(
    module.operation.get_asm(enable_debug_info=False, assume_verified=True)
  )
  return hashlib.sha256(text.encode()).hexdigest()
