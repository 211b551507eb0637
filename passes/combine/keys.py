# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rewrite pass that makes XLA combine given groups, with one key per group.

XLA's combiners join collectives up to a size in bytes (`table`), and only those
with equal frontend attributes `combiner_key`. So this pass gives each group a
key, and raises the thresholds above any module's size.

A key contains the label of the group's first member. The collective keeps it
through XLA's own passes (asynchronous pairs, loop unrolling, pipelining, which
may copy it), so `labels` can map each collective of the scheduled module to
those that it combines.

`combinable` finds the collectives that could be combined, and raises if groups
are impossible. A group's key replaces any key that the program sets, such as
those of strands (`program.strands.keys`). XLA has combiners on GPUs only.
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
# The prefix of groups' keys, which a program's own keys lack.
_GROUP = "group of "
_PIPELINER = "xla_gpu_enable_pipelined_reduce_scatter"

# Older versions drop the keys of reduce-scatters that XLA makes, and of
# combined all-reduces whose arrays it concatenates. Channel ids stay: those of
# group n start at _FIRST_CHANNEL + n * _CHANNELS_PER_GROUP.
_KEEPS_KEYS = jax.__version_info__ >= (0, 12)
_FIRST_CHANNEL = 1 << 24
_CHANNELS_PER_GROUP = 1 << 12

# More than any device holds, but small enough that XLA's sums do not overflow.
_THRESHOLD = 1 << 60
OPTIONS: Mapping[str, int] = {
  **dict.fromkeys(table.COMBINERS.values(), _THRESHOLD),
  table.COUNT_OPTION: _THRESHOLD,
}


def options(
  groups: combinable.Groups, others: Mapping[str, Any] | None = None
) -> dict[str, Any]:
  """XLA options for a compile with these groups.

  JAX treats executables with equal options as equal, whatever the passes. So
  the threshold on counts encodes the groups.

  If `rewrite` has to make reduce-scatters itself, this also switches off XLA's
  reduce-scatter pipeliner, unless the other options name it: see `combinable`.
  Then the program's own reduce-scatters in loops are not pipelined either.

  Args:
    groups: the groups passed to `rewrite`.
    others: other options to compile with; their thresholds are overridden.
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
  """The module with keys that make XLA combine these groups and nothing else.

  Args:
    module: the module at PRE_SCHEDULER, which is not changed.
    groups: labels to combine; () combines nothing.

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
  """The program's collectives that each scheduled collective combines.

  Args:
    module: scheduled, from a compile with these groups.
    groups: the groups of that compile, in the same order.

  Returns:
    Name of the starting instruction -> labels in the group's order. Excludes
    collectives without a group's key, and those that XLA launches together.
  """
  group_of = {group[0]: group for group in groups if group}
  by_id = {i.id: i for i in module.instructions}
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
  """Checks that a compile with groups ran this pass.

  Raises:
    CompileError: it did not.
  """
  if not labels(module, groups):
    raise errors.CompileError(
      f"XLA compiled {module.name} without running the pass that sets combine"
      " groups; make the plan without them."
    )
