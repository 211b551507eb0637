# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders that XLA dumps into (`--xla_dump_to`): which file of many to name.

Beside the module there are its buffers, kernels, options and more, and small
modules that JAX compiled on its way to the step.
"""

from __future__ import annotations

import pathlib

# What can be tuned comes before what is only read.
_ENDS = (
  *(".before_optimizations.txt", ".before_optimizations.hlo.pb"),
  *(".after_spmd_partitioner.txt", ".after_spmd_partitioner.hlo.pb"),
  *("gpu_after_optimizations.txt", "gpu_after_optimizations.hlo.pb"),
)


def largest(folder: pathlib.Path, module: str = "") -> pathlib.Path | None:
  """The largest module in a folder, in the best form that it is there in.

  Args:
    folder: exists.
    module: what the file's name begins with.
  """
  files = [p for p in folder.iterdir() if p.name.startswith(module)]
  for end in _ENDS:
    found = [p for p in files if p.name.endswith(end) and p.is_file()]
    if found:
      return max(found, key=lambda path: (path.stat().st_size, path.name))
  return None


def of_same_module(file: pathlib.Path) -> pathlib.Path | None:
  """The module that a file of a dump tells something of, if it is one."""
  number, _, rest = file.name.partition(".")
  if not (number.startswith("module_") and file.is_file()):
    return None
  return largest(file.parent, f"{number}.{rest.partition('.')[0]}.")
