# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The GPUs, machines and clusters that can be asked for by name.

GPUs and clusters are files in specs/, in the format of cluster files
(`read.py`): one per GPU, with the node it usually sits in, and one per cluster.
Its `sources` object tells, for every figure, where it was read. Machines, as
clouds rent them out, are files in machines/: a known GPU and what the machine
joins it with, from one `source`. A new one of any is a new file there; another
name for one is an alias here.
"""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Any

_SPECS = pathlib.Path(__file__).with_name("specs")
_MACHINES = pathlib.Path(__file__).with_name("machines")
_ALIASES = {
  "a100": "a100_80",
  "a100_40gb": "a100_40",
  "a100_80gb": "a100_80",
  "h100_sxm": "h100",
  "h100nvl": "h100_nvl",
  "h100pcie": "h100_pcie",
  "h200_sxm": "h200",
  "rtx_a6000": "a6000",
}


def gpu_names() -> tuple[str, ...]:
  """The GPUs that can be asked for by name."""
  return tuple(n for n in _spec_names() if isinstance(spec(n)["gpu"], dict))


def cluster_names() -> tuple[str, ...]:
  """The clusters that can be asked for by name alone."""
  return tuple(n for n in _spec_names() if isinstance(spec(n)["gpu"], str))


def machine_names() -> tuple[str, ...]:
  """The machines that can be asked for by name, as in 2xp5.48xlarge."""
  return _stems(_MACHINES)


def normal(name: str) -> str:
  """A name as its file has it: in lower case, with "_", and no alias."""
  name = name.strip().lower().replace("-", "_")
  return _ALIASES.get(name, name)


@functools.cache
def spec(name: str) -> dict[str, Any]:
  """What a file in specs/ holds beside sources; callers must not change it."""
  raw = json.loads((_SPECS / f"{name}.json").read_text(encoding="utf-8"))
  return {key: value for key, value in raw.items() if key != "sources"}


@functools.cache
def machine(name: str) -> dict[str, Any]:
  """What a file in machines/ holds but its source; not to be changed."""
  raw = json.loads((_MACHINES / f"{name}.json").read_text(encoding="utf-8"))
  return {key: value for key, value in raw.items() if key != "source"}


def _spec_names() -> tuple[str, ...]:
  return _stems(_SPECS)


@functools.cache
def _stems(folder: pathlib.Path) -> tuple[str, ...]:
  return tuple(sorted(path.stem for path in folder.glob("*.json")))
