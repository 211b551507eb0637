# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What XLA is asked to compile, wherever it does."""

from __future__ import annotations

import dataclasses

from lagom_xla.compile import config as config_lib
from lagom_xla.compile.lowering import lowered as lowered_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
  """What XLA is asked to compile.

  Attributes:
    lowered: what to compile, in the config's form.
    config: what XLA gets beside it.
    options: all XLA options; the config's have no part in it.
    words: the beginning of an error message.
    shares_fusion: whether others of the same program may go on from its fused
      module, and it from theirs.
    must_begin: whether it never goes on from another's.
    keeps_names: whether all instructions have the names that a job sees.
    chooses_tiles: whether XLA chooses tiles, though nobody needs them.
  """

  lowered: lowered_lib.Lowered
  config: config_lib.XlaConfig
  options: lowered_lib.Options
  words: str
  shares_fusion: bool = False
  must_begin: bool = False
  keeps_names: bool = False
  chooses_tiles: bool = False
