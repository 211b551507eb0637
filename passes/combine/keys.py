# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rewrite pass that has XLA combine given groups, by one key per group.

XLA's combiners join collectives up to a size in bytes (`table`). They also look
at the frontend attribute `combiner_key`, and join only those whose keys are
equal. So a pass that gives each group a key, under thresholds that no module
reaches, decides for each collective on its own.

A key names the group's first member by its label. It stays with the collective
through XLA's own passes (asynchronous pairs, loop unrolling, pipelining, which
may make several copies of it), so `labels` can map each collective of the
scheduled module to those that it holds.

`combinable` says which collectives could be combined, and raises where groups
cannot be. Keys that the program has, such as those of strands
(`program.strands.keys`), give way to a group's. XLA has combiners on
GPUs only.
"""

from __future__ import annotations

from collections.abc import Mapping
import hashlib
from typing import Any

import jax

from lagom_xla import errors
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import combinable
from lagom_xla.passes.combine import table

_KEY = "combiner_key"
# What the keys of groups begin with; those that a program has do not.
_GROUP = "group of "
_PIPELINER = "xla_gpu_enable_pipelined_reduce_scatter"

# Before this version XLA drops the keys of the reduce-scatters that it makes,
# and of combined all-reduces whose arrays it puts end to end. Their channel ids
# stay: those of group n start at _FIRST_CHANNEL + n * _CHANNELS_PER_GROUP.
_KEEPS_KEYS = jax.__version_info__ >= (0, 12)
_FIRST_CHANNEL = 1 << 24
_CHANNELS_PER_GROUP = 1 << 12

# Above what any device holds, and XLA can still add it up.
_THRESHOLD = 1 << 60
OPTIONS: Mapping[str, int] = {
  **dict.fromkeys(table.COMBINERS.values(), _THRESHOLD),
  table.COUNT_OPTION: _THRESHOLD,
}


def options(
  groups: combinable.Groups, others: Mapping[str, Any] | None = None
) -> dict[str, Any]:
  """XLA options for a compile with these groups.

  JAX considers executables with equal options equal, whatever the passes. So
  the threshold on counts, which has room for it, differs for different groups.

  Where `rewrite` has to make reduce-scatters itself, XLA's reduce-scatter
  pipeliner is switched off with it, unless the other options name it: see
  `combinable`. The program's own reduce-scatters in loops are not pipelined
  then either.

  Args:
    groups: what `rewrite` is called with.
    others: options to compile with; their thresholds do not count.
  """
  digest = hashlib.sha256(repr(groups).encode()).digest()
  mark = int.from_bytes(digest[:6], "big")
  pipeliner = {} if _KEEPS_KEYS else {_PIPELINER: False}
  return {
    **pipeliner,
    **(others or {}),
    **OPTIONS,
    table.COUNT_OPTION: _THRESHOLD + mark,
  }


def rewrite(module: hlo.Module, groups: combinable.Groups) -> bytes:
  """The module in which XLA combines these groups and nothing else.

  Args:
    module: as PRE_SCHEDULER shows it; it stays as it is.
    groups: labels to combine; () leaves each collective alone.

  Returns:
    A serialized HloModuleProto.

  Raises:
    CombineError: the module cannot have these groups.
  """
  copy = module.copy()
  candidates = combinable.find(copy)
  combinable.check(candidates, groups)
  key_of = {label: group[0] for group in groups for label in group}
  for label, candidate in candidates.items():
    attributes = candidate.instruction.frontend_attributes.map
    attributes[_KEY] = _GROUP + key_of.get(label, label)
  if not _KEEPS_KEYS:
    for number, group in enumerate(groups):
      first = _FIRST_CHANNEL + number * _CHANNELS_PER_GROUP
      for index, label in enumerate(group):
        if candidates[label].instruction.channel_id:
          channel = first + index % _CHANNELS_PER_GROUP
          candidates[label].instruction.channel_id = channel
    combinable.make_all(copy)
  return copy.proto.SerializeToString()


def labels(
  module: hlo.Module, groups: combinable.Groups = ()
) -> dict[str, tuple[str, ...]]:
  """The collectives of the program that each scheduled one holds.

  Args:
    module: scheduled, from a compile with these groups.
    groups: what it was compiled with, in the same order.

  Returns:
    By name of the instruction that starts it, labels in the group's order.
    Collectives without a group's key are missing, and those that one launch
    runs together.
  """
  group_of = {group[0]: group for group in groups if group}
  by_id = {
    i.id: i for c in module.computations.values() for i in c.instructions
  }
  found = {}
  for collective in collectives.find(module):
    start = by_id[collective.start_id]
    if len(collectives.payloads(module, start)) > 1:
      continue
    key = start.frontend_attributes.map.get(_KEY, "")
    if key.startswith(_GROUP):
      label = key.removeprefix(_GROUP)
      found[collective.name] = group_of.get(label, (label,))
    elif start.channel_id >= _FIRST_CHANNEL:
      number = (start.channel_id - _FIRST_CHANNEL) // _CHANNELS_PER_GROUP
      found[collective.name] = groups[number]
  return found


def check_acted(module: hlo.Module, groups: combinable.Groups) -> None:
  """Checks that a compile with groups ran the pass that sets them.

  Raises:
    CompileError: it did not.
  """
  if not labels(module, groups):
    raise errors.CompileError(
      f"XLA compiled {module.name} without running the pass that sets combine"
      " groups; make the plan without them."
    )
