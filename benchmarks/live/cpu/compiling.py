# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles a lowered step for CPUs, in different ways.

XLA calls passes in every compile of the process, and the user's own compiles
run in other threads. Only the name identifies a module, so the module of a way
has its own name, which profiles also show.

A group has all-reduces that are ready at about the same time, up to a size,
because a collective starts when its last array is ready. The order is that of
the longest chain of products before each; in a backward pass, this is the
layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import dataclasses
import hashlib
import json
from typing import Annotated, Any

import jax
from jaxlib.mlir import ir
import pydantic

from benchmarks.live.cpu import behind_products
from benchmarks.live.cpu import end_to_end
from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.compile import rewriting
from lagom_xla.jax_internals import caches
from lagom_xla.jax_internals import lowerings
from lagom_xla.passes import collectives
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.combine import combinable
from lagom_xla.passes.combine import table
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program.slices import chains


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Way:
  """How a step is compiled for CPUs.

  All-reduces are concatenated up to `group_bytes`, and larger ones stay alone;
  0 leaves all alone, and None keeps XLA's one tuple of all. `is_ordered` puts
  collectives behind products. Every chain of collectives and products is cut
  into `num_pieces`, if possible.
  """

  __pydantic_config__ = validation.STRICT

  group_bytes: Annotated[int, pydantic.Field(ge=0, le=2**63 - 1)] | None = None
  is_ordered: bool = False
  strands: form_lib.Strands = "none"
  num_pieces: validation.Count = 1

  @property
  def has_passes(self) -> bool:
    """Whether it needs passes in XLA's pipeline."""
    return self.is_ordered or self.group_bytes is not None

  @property
  def is_as_written(self) -> bool:
    """Whether its program is the one written."""
    return self.strands == "none" and self.num_pieces == 1


AS_XLA_DOES = Way()


def to_bytes(way: Way) -> bytes:
  """The payload of a proposal; equal ways have equal payloads."""
  return json.dumps(validation.write(way), sort_keys=True).encode()


def from_bytes(payload: bytes) -> Way:
  """The way in a payload."""
  return validation.read(Way, json.loads(payload))


def in_words(way: Way) -> str:
  """A way in a few words, such as "strands paired, all-reduces one by one"."""
  parts = []
  if way.strands != "none":
    parts.append(f"strands {way.strands}")
  if way.num_pieces > 1:
    parts.append(f"chains in {way.num_pieces} pieces")
  if way.group_bytes:
    kib = way.group_bytes / 1024
    parts.append(f"all-reduces end to end up to {kib:,.0f} KiB")
  elif way.group_bytes is not None:
    parts.append("all-reduces one by one")
  if way.is_ordered:
    parts.append("collectives behind products")
  return ", ".join(parts) or "as XLA does"


_KIND = "all-reduce"


def all_reduces(module: hlo.Module) -> list[combinable.Candidate]:
  """All-reduces of a module at PRE_SCHEDULER, in the order they become ready.

  Each has one array.
  """
  apart = end_to_end.split_apart(module)
  depth = _multiplications_before(apart)
  found = combinable.find(apart).values()
  reduced = [candidate for candidate in found if candidate.kind == _KIND]
  return sorted(
    reduced, key=lambda one: (one.computation_id, depth[one.instruction.id])
  )


def groups(
  candidates: Iterable[combinable.Candidate], group_bytes: int
) -> combine.Groups:
  """Groups of `all_reduces` up to a size, with at least two members."""
  open_groups: dict[table.Traits, list[combinable.Candidate]] = {}
  closed: list[list[combinable.Candidate]] = []
  for candidate in candidates:
    group = open_groups.setdefault(candidate.traits, [])
    num_bytes = sum(member.num_bytes for member in group)
    is_after = any(candidate.after & member.bit for member in group)
    if is_after or num_bytes + candidate.num_bytes > group_bytes:
      closed.append(group)
      group = open_groups[candidate.traits] = []
    group.append(candidate)
  return tuple(
    tuple(member.label for member in group)
    for group in (*closed, *open_groups.values())
    if len(group) > 1
  )


def _multiplications_before(module: hlo.Module) -> Mapping[int, int]:
  """Multiplications in the longest chain up to each instruction that runs."""
  depth: dict[int, int] = {}
  for computation_id in module.executions:
    computation = module.computations[computation_id]
    for instruction in computation.instructions:
      before = (depth[id_] for id_ in instruction.operand_ids)
      depth[instruction.id] = max(
        before, default=0
      ) + behind_products.num_multiplications(module, computation, instruction)
  return depth


_NAME = "sym_name"


def compiled(lowered: jax.stages.Lowered, way: Way) -> jax.stages.Compiled:
  """Compiles a step in a way; raises LagomError if that is impossible."""
  check_donation(lowered, way)
  program = _program(lowered, way)
  with (
    caches.persistent_off(),
    _grouped(program, way),
    _ordered(program, way),
  ):
    return program.compile()


def check_donation(lowered: jax.stages.Lowered, way: Way) -> None:
  """Raises DonationLostError if inputs would not stay donated in a way."""
  if not way.has_passes or registry.keeps_donation():
    return
  if any(info.donated for info in jax.tree.leaves(lowered.args_info)):
    raise errors.DonationLostError(
      f"{name(lowered)} donates inputs, and JAX {jax.__version__} forgets"
      " that if a pass groups or orders collectives: its executable would"
      " need memory for both the old and the new state. Use JAX 0.11 or newer"
      " (Python 3.12)."
    )


def schedule(lowered: jax.stages.Lowered, way: Way) -> hlo.Module:
  """The scheduled module of a step in a way, without generating code."""
  program = _program(lowered, way)
  with _grouped(program, way):
    module = _module_at(registry.Stage.POST_SCHEDULER, program)
  return (ordered(module) if way.is_ordered else None) or module


def ordered(module: hlo.Module) -> hlo.Module | None:
  """A scheduled module with collectives behind products; None if impossible."""
  rewritten = behind_products.rewrite(module)
  if rewritten is None:
    return None
  return hlo.Module(type(module.proto).FromString(rewritten))


def before_grouping(lowered: jax.stages.Lowered) -> hlo.Module:
  """The module of a step before its all-reduces are grouped."""
  program = _program(lowered, AS_XLA_DOES)
  return _module_at(registry.Stage.PRE_SCHEDULER, program)


def _module_at(
  stage: registry.Stage, program: jax.stages.Lowered
) -> hlo.Module:
  """The module of a program at a stage, where XLA's compile ends."""
  with caches.persistent_off():
    proto = in_compile.run_to(
      stage, program.compile, name(program), platform="cpu"
    )
  if proto is None:
    raise _no_passes(program)
  return hlo.Module(proto)


def digest(compiled: jax.stages.Compiled) -> str:
  """A hash of a module's collectives, in execution order."""
  found = [
    (one.kind, one.array_bytes, one.element_type, one.groups, one.executions)
    for one in collectives.find(hlo.load(compiled))
  ]
  return hashlib.sha256(repr(found).encode()).hexdigest()


def order_of(module: hlo.Module) -> str:
  """A hash of a scheduled module's instructions in order, without names."""
  found = [
    (i.opcode, i.shape.SerializeToString(deterministic=True))
    for computation_id in module.executions
    for i in module.computations[computation_id].instructions
  ]
  return hashlib.sha256(repr(found).encode()).hexdigest()


def _program(lowered: jax.stages.Lowered, way: Way) -> jax.stages.Lowered:
  """The step in the way's form, with a unique name."""
  form = form_lib.Form(
    strands=way.strands, slices=_slices(lowered, way.num_pieces)
  )
  formed, outcome = rewriting.step(lowered, form)
  rewriting.check(name(lowered), form, outcome)
  program = lowerings.copied(formed)
  module: Any = program.compiler_ir("stablehlo")
  payload = to_bytes(way)
  own = f"{name(lowered)}_{hashlib.sha256(payload).hexdigest()[:8]}"
  with module.context:
    module.operation.attributes[_NAME] = ir.StringAttr.get(own)
  return program


def _slices(lowered: jax.stages.Lowered, num_pieces: int) -> dict[str, int]:
  """All chains that can be cut into this many pieces, with that number."""
  if num_pieces == 1:
    return {}
  program: Any = lowered.compiler_ir("stablehlo")
  found = {
    chain.label: num_pieces
    for chain in chains.find(program)
    if num_pieces in chain.pieces
  }
  if not found:
    raise errors.ProgramError(
      f"{name(lowered)} has no chain of collectives and products that can be"
      f" cut into {num_pieces} pieces: leave the program as it is written."
    )
  return found


@contextlib.contextmanager
def _grouped(program: jax.stages.Lowered, way: Way) -> Iterator[None]:
  group_bytes = way.group_bytes
  if group_bytes is None:
    yield
    return

  def rewrite(module: hlo.Module) -> bytes:
    found = groups(all_reduces(module), group_bytes)
    return end_to_end.rewrite(module, found)

  with in_compile.rewritten(
    name(program), rewrite, registry.Stage.PRE_SCHEDULER, "cpu"
  ):
    yield


@contextlib.contextmanager
def _ordered(program: jax.stages.Lowered, way: Way) -> Iterator[None]:
  if not way.has_passes:
    yield
    return
  shown: list[str] = []

  def rewrite(module: hlo.Module) -> bytes | None:
    shown.append(module.name)
    return behind_products.rewrite(module) if way.is_ordered else None

  with in_compile.rewritten(
    name(program), rewrite, registry.Stage.POST_SCHEDULER, "cpu"
  ):
    yield
  if not shown:
    raise _no_passes(program)


def name(lowered: jax.stages.Lowered) -> str:
  """The name of a step's module."""
  program: Any = lowered.compiler_ir("stablehlo")
  return program.operation.attributes[_NAME].value


def _no_passes(program: jax.stages.Lowered) -> errors.CompileError:
  return errors.CompileError(
    f"XLA compiled {name(program)} without running the passes that group and"
    " order its collectives; keep the step as it is."
  )
