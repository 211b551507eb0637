# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles up to code generation: the module that runs, and its memory.

Of a compile to the end most of the time goes into code for kernels, which
nobody runs where there is no GPU. Before that XLA has recomputed what memory
is too short for, has assigned buffers, and writes both down if asked to dump.
Then it opens its cache of kernels: one that cannot be read ends the compile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
import dataclasses
import pathlib
import re
from typing import Any

from lagom_xla.compile.xla import memory_stats
from lagom_xla.compile.xla import options_set
from lagom_xla.passes import hlo_pb2

_KERNEL_CACHE = "xla_gpu_kernel_cache_file"
_WRITTEN = "*_gpu_after_optimizations.hlo.pb"
# No protocol buffer begins with a tag of wire type 7.
_UNREADABLE = b"\x07"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assigned:
  """A module whose buffers are assigned.

  Attributes:
    module: that runs.
    peak_bytes: device memory at the peak of a step.
  """

  module: hlo_pb2.HloModuleProto
  peak_bytes: int


def is_possible(options: Collection[str]) -> bool:
  """Whether compiles with these XLA options can end before code generation.

  XLA_FLAGS may ask for dumps: those are the job's.
  """
  return not (
    options_set.may_name([_KERNEL_CACHE], options)
    or any(options_set.DUMPS in name for name in options)
  )


def options(name: str, folder: pathlib.Path) -> dict[str, bool | str]:
  """XLA options with which the compile of a module ends there.

  Args:
    name: of the module.
    folder: where XLA writes; nothing else is in it.
  """
  cache = folder / "kernels"
  cache.write_bytes(_UNREADABLE)
  return {
    "xla_dump_to": str(folder),
    "xla_dump_hlo_as_proto": True,
    "xla_dump_compress_protos": False,
    options_set.DUMPED_MODULES: f"^{re.escape(name)}$",
    _KERNEL_CACHE: str(cache),
  }


def run(folder: pathlib.Path, compile_fn: Callable[[], Any]) -> Assigned:
  """Runs a compile that has these options.

  Args:
    folder: where it writes.
    compile_fn: compiles.

  Raises:
    Exception: XLA refused before it came there.
  """
  refusal: Exception | None = None
  try:
    compile_fn()
  except Exception as error:
    refusal = error
  written = list(folder.glob(_WRITTEN))
  if len(written) != 1:
    raise refusal or FileNotFoundError(f"XLA wrote no {_WRITTEN}")
  proto = hlo_pb2.HloProto.FromString(written[0].read_bytes())
  return Assigned(
    module=proto.hlo_module,
    peak_bytes=memory_stats.peak_bytes_of(proto.buffer_assignment),
  )
