# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The train steps for comparing searches over XLA's options.

The first ones compile in at most a second, the last ones, with unrolled layers,
in ten or more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import functools
import pathlib
import sys

from benchmarks.recipes import cases as recipes_lib
from benchmarks.strands import modules as strands_lib
from benchmarks.workloads import cases as cases_lib

_example = cases_lib.of_example


def _published(module: str, cluster: str = "") -> cases_lib.Case | None:
  return next(
    (
      case
      for case in recipes_lib.all_cases()
      if (case.module, case.cluster) == (module, cluster)
    ),
    None,
  )


@functools.cache
def _all() -> Mapping[str, cases_lib.Case]:
  layers = {"fsdp-tp": "fsdp:2,tp:8", "tp": "fsdp:1,tp:8", "70b": "fsdp:4,tp:8"}
  found = (
    *recipes_lib.SCANNED,
    _example("mlp", "mlp", "2x8xh100"),
    _example("llama-8b-tp", "llama", "1x8xh100", model="8b", mesh=layers["tp"]),
    _example("llama-8b", "llama", "1x8xh100", model="8b"),
    _example("llama-8b", "llama", "4x8xa100_80", model="8b"),
    _example(
      "llama-8b-fsdp-tp",
      "llama",
      "2x8xh100",
      model="8b",
      mesh=layers["fsdp-tp"],
    ),
    _example("moe", "moe", "1x8xh100"),
    _example(
      "llama-70b-fsdp-tp", "llama", "4x8xb200", model="70b", mesh=layers["70b"]
    ),
    _example("gpt", "gpt", "2x8xb200"),
    # Steps of several micro-batches, which strands need.
    strands_lib.MODULES["llama-8b-tp-1x8-acc4"],
    strands_lib.MODULES["olmoe-ep-1x8-acc4"],
    _published("maxtext", "1x4xh100"),
    _published("deepseek-moe-16b/ep", "1x8xh100"),
    _published("mixtral_8x7b_bf16_2x8", "2x8xh100"),
    _published("llama31_8b_bf16_1x8", "1x8xh100"),
  )
  return {f"{case.module}@{case.cluster}": case for case in found if case}


def chosen(data: pathlib.Path | None, only: str) -> Iterator[cases_lib.Case]:
  """The steps with these names, or all; without data, only those without files.

  Args:
    data: the data folder, if any.
    only: comma-separated names such as gpt@2x8xb200, also of the steps for
      judging recipes; "" for all steps of the race.
  """
  for name in only.split(",") if only else _all():
    case = _all().get(name) or _published(*name.split("@", 1))
    if case is None:
      sys.exit(f"there is no step {name}; there are {', '.join(_all())}")
    if case.file and data is None:
      print(f"{name} needs --data", file=sys.stderr)
    else:
      yield case
