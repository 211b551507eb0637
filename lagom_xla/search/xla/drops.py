# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Drops: options that a search may take back, one at a time.

What gained when it was added may cost once others are beside it: a pipelined
all-reduce in a loop that is double-buffered, for one. A search that only ever
adds options keeps them all. So where nothing more gains by being added, the
best config is compiled without each of its options.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses

from lagom_xla.compile import config as config_lib
from lagom_xla.search.xla import candidates

# Drops that are compiled in a round, those of the first options first.
MOST = 4


def of(so_far: candidates.Search) -> Iterator[tuple[str, config_lib.XlaConfig]]:
  """The best config without each of its options, and a label for each.

  Args:
    so_far: the search; what its default sets is never dropped.
  """
  config = so_far.best.config
  added = [n for n in config.options if n not in so_far.default.config.options]
  for name in added[:MOST]:
    others = {n: value for n, value in config.options.items() if n != name}
    label = f"without {name.removeprefix('xla_gpu_')}"
    yield label, dataclasses.replace(config, options=others)
