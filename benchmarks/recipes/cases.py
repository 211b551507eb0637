# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The steps for judging recipes, each on H100s, B200s and A100s.

XLA's published modules, the examples, and the workloads of Lagom's paper, with
the paper's numbers of nodes (the only difference of its two clusters here), on
other GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
import functools

from benchmarks.paper import cases as paper_cases
from benchmarks.workloads import cases as cases_lib
from benchmarks.workloads import perceptrons

GPUS = ("h100", "b200", "a100_80")

# Name, nodes and GPUs per node, file.
_OF_FILES = (
  ("llama31_70b_bf16_16x8", "16x8", "hlo/hlo_llama31_70b_bf16_16x8.hlo.xz"),
  ("llama3_8b_cp_bf16_1x4", "1x4", "hlo/hlo_llama3_8b_cp_bf16_1x4.hlo.xz"),
  ("llama31_8b_bf16_1x8", "1x8", "hlo/hlo_llama31_8b_bf16_1x8.hlo.xz"),
  ("mixtral_8x7b_bf16_2x8", "2x8", "hlo/hlo_mixtral_8x7b_bf16_2x8.hlo.xz"),
  (
    "maxtext",
    "1x4",
    "maxtext_h100/module_0016.jit_train_step.before_optimizations.hlo.pb.xz",
  ),
)
# Name, example, nodes and GPUs per node, arguments.
_OF_EXAMPLES = (
  ("llama-1b", "llama", "1x8", {"model": "1b"}),
  ("llama-8b", "llama", "4x8", {"model": "8b"}),
  ("llama-8b-tp", "llama", "1x8", {"model": "8b", "mesh": "fsdp:1,tp:8"}),
  ("llama-70b", "llama", "16x8", {"model": "70b", "mesh": "fsdp:128,tp:1"}),
  ("moe", "moe", "1x8", {}),
  ("gpt", "gpt", "2x8", {}),
  ("mlp", "mlp", "2x8", {}),
)


def cases(gpu: str) -> Iterator[cases_lib.Case]:
  """All steps, on one kind of GPU."""
  for name, example, shape, arguments in _OF_EXAMPLES:
    cluster = f"{shape}x{gpu}"
    yield cases_lib.of_example(name, example, cluster, **arguments)
  for name, shape, file in _OF_FILES:
    yield cases_lib.of_file(name, file, f"{shape}x{gpu}")
  for case in paper_cases.table_2():
    if case.cluster == paper_cases.CLUSTERS[0]:
      yield cases_lib.of_workload(
        f"{case.model}/{case.kind}",
        f"{case.num_nodes}x8x{gpu}",
        case.workload,
      )


def all_cases() -> Iterator[cases_lib.Case]:
  """All steps, on every kind of GPU."""
  for gpu in GPUS:
    yield from cases(gpu)


# The smallest steps with all features of large ones; not in the table.
SCANNED = tuple(
  cases_lib.of_lowered(
    module,
    cluster,
    functools.partial(
      perceptrons.lower_scanned,
      data=data,
      num_layers=8,
      width=4096,
      hidden=16384,
      rows_per_device=rows_per_device,
    ),
  )
  for module, cluster, data, rows_per_device in (
    ("fsdp", "1x8xh100", 8, 1024),
    ("fsdp", "2x8xh100", 16, 4096),
    ("fsdp-tp", "2x8xb200", 2, 8192),
  )
)
