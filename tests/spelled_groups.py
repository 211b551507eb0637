# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Groups of devices, read from the text of a module with one collective."""

from __future__ import annotations

import hlo_text
from lagom_xla.passes import collectives

Groups = tuple[tuple[int, ...], ...]


def groups_of(spelled: str, num_devices: int, *, kind: str = "") -> Groups:
  """The groups of one all-reduce, or of a collective of another kind."""
  operation = kind or (
    "all-reduce(p), channel_id=1, use_global_device_ids=true, to_apply=add"
  )
  module = hlo_text.load(
    f"p = f32[8] parameter(0)\nROOT out = f32[8] {operation}{spelled}",
    header=f"num_partitions={num_devices}",
  )
  (collective,) = collectives.find(module)
  return collective.groups


def replica_groups_of(spelled: str, num_devices: int) -> Groups:
  return groups_of(f", replica_groups={spelled}", num_devices)
