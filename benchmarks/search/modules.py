# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The train steps for comparing searchers of NCCL settings, by name.

Perceptrons (benchmarks/workloads), the Llama example in several sizes and
layouts, and XLA's own benchmark modules if --data has them. XLA compiles all of
them for the GPUs of their cluster, up to the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import pathlib
from typing import Any

from benchmarks import table
from benchmarks.workloads import cases
from benchmarks.workloads import perceptrons as perceptrons_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import step as step_lib

_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"


def overlapping(case: cases.Case, num_collectives: int) -> cases.Case:
  """A case with this many collectives in flight.

  On GPUs with cost tables, XLA's scheduler allows only one, so that few
  overlaps have two collectives.
  """
  return dataclasses.replace(
    case,
    module=f"{case.module}, {num_collectives} at a time",
    options={**case.options, _LIMIT: num_collectives},
  )


def perceptrons(
  name: str,
  cluster: str,
  *,
  options: Mapping[str, bool | int] | None = None,
  **sizes: Any,
) -> cases.Case:
  """A stack of perceptrons; see `perceptrons.lower` for its sizes."""
  lower = functools.partial(perceptrons_lib.lower, **sizes)
  return cases.of_lowered(name, cluster, lower, **(options or {}))


MODULES: Mapping[str, cases.Case] = {
  case.module: case
  for case in (
    perceptrons("mlp-fsdp", "1x8xh100", layout="fsdp", hidden=(4096,) * 4),
    perceptrons("mlp-fsdp-a40", "1x8xa40", layout="fsdp", hidden=(4096,) * 4),
    perceptrons("mlp-tp", "1x8xh100", layout="tp", hidden=(8192,) * 4),
    perceptrons("mlp-ep", "1x8xh100", layout="ep", hidden=(4096,) * 4),
    *(
      cases.of_example(name, "llama", cluster, **arguments)
      for name, cluster, arguments in (
        ("llama-1b-fsdp", "1x8xh100", {"model": "1b"}),
        ("llama-3b-fsdp-a40", "2x8xa40", {"model": "3b"}),
        ("llama-8b-fsdp-a100", "4x8xa100", {"model": "8b"}),
        ("llama-8b-tp", "1x8xh100", {"model": "8b", "mesh": "fsdp:1,tp:8"}),
        ("llama-8b-tp-a40", "1x8xa40", {"model": "8b", "mesh": "fsdp:1,tp:8"}),
        ("llama-8b-fsdp-tp", "2x8xh100",
         {"model": "8b", "mesh": "fsdp:2,tp:8"}),
        ("llama-70b-fsdp-tp", "4x8xb200",
         {"model": "70b", "mesh": "fsdp:8,tp:4"}),
      )
    ),
    *(
      cases.of_file(name, f"hlo/hlo_{file}.hlo.xz", cluster)
      for name, cluster, file in (
        ("llama-70b-16x8", "16x8xh100", "llama31_70b_bf16_16x8"),
        ("llama-8b-cp", "1x4xh100", "llama3_8b_cp_bf16_1x4"),
        ("llama-8b-1x8", "1x8xh100", "llama31_8b_bf16_1x8"),
        ("mixtral-2x8", "2x8xh100", "mixtral_8x7b_bf16_2x8"),
      )
    ),
  )
}  # fmt: skip


def step(case: cases.Case, data: pathlib.Path | None = None) -> step_lib.Step:
  """The step, scheduled by XLA with the case's options."""
  table.say(f"scheduling {case.module} for {case.cluster}")
  target = case.load(data)
  config = config_lib.XlaConfig(options=case.options)
  return step_lib.of_module(target.schedule(config), target.cluster)
