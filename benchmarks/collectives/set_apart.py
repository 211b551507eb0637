# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What measurements of lone collectives hold that is not the collective.

lagom_xla/costs/fitted/collective.json has the figures beside the parameters
that they are fitted with (fit_paths.py).
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import json
import pathlib

PATH = (
  pathlib.Path(__file__).resolve().parents[2]
  / "lagom_xla/costs/fitted/collective.json"
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SetApart:
  """Launches, in microseconds, and how an older NCCL differs.

  Attributes:
    module_us: of a module of XLA's, in its table, by the system's name.
    own_reduce_steps: what stands for wire.Path.own_reduce_steps in rows of
      XLA's table that were made with an older NCCL, by device.
    launch_us: of one GPU's part of a collective, by the single thread that
      launches those of all GPUs in nccl-tests on one node.
  """

  module_us: Mapping[str, float]
  own_reduce_steps: Mapping[str, float]
  launch_us: float

  def having(self, field: str, key: str, value: float) -> SetApart:
    """The same with another value of `module_us` or `own_reduce_steps`."""
    by_key = {**getattr(self, field), key: value}
    if field == "module_us":
      return dataclasses.replace(self, module_us=by_key)
    return dataclasses.replace(self, own_reduce_steps=by_key)


@functools.cache
def seen_systems() -> frozenset[str]:
  """The systems of nccl-tests that the fitted figures come from."""
  return frozenset(json.loads(PATH.read_text(encoding="utf-8"))["tests"])


@functools.cache
def fitted() -> SetApart:
  """The fitted figures."""
  raw = json.loads(PATH.read_text(encoding="utf-8"))
  return SetApart(**raw["set_apart"])
