# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The train steps that the tables are about, by name.

Perceptrons (benchmarks/workloads), the Llama example in several sizes and
layouts, and XLA's own benchmark modules where the folder with them is at hand.
All are compiled by XLA for the GPUs of their cluster, up to the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import dataclasses
import pathlib
import sys

from benchmarks.workloads import perceptrons as perceptrons_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import load as load_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib

_EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/llama"

_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"


def say(what: str) -> None:
  """Progress, on stderr."""
  print(f"search: {what}", file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Module:
  """A train step on a cluster.

  Attributes:
    name: what the tables call it.
    cluster: as on the command line.
    load: makes the target; takes the folder with data, if there is one.
    file: what it needs of that folder; "" if nothing.
    options: XLA options that it is scheduled with.
  """

  name: str
  cluster: str
  load: Callable[[pathlib.Path | None], target_lib.Target]
  file: str = ""
  options: Mapping[str, bool | int] = dataclasses.field(default_factory=dict)

  def overlapping(self, num_collectives: int) -> Module:
    """The module with this many collectives in flight.

    XLA's scheduler keeps to one on GPUs that it has cost tables for, so that
    hardly any two collectives meet in one overlap.
    """
    return dataclasses.replace(
      self,
      name=f"{self.name}, {num_collectives} at a time",
      options={**self.options, _LIMIT: num_collectives},
    )


def llama(name: str, cluster: str, **arguments: str) -> Module:
  """The Llama example with these keyword arguments of its `train_step`."""

  def load(data: pathlib.Path | None) -> target_lib.Target:
    del data
    return load_lib.load(
      f"{_EXAMPLE}/train.py:train_step",
      cluster_lib.parse(cluster),
      arguments=arguments,
    )

  return Module(name=name, cluster=cluster, load=load)


def perceptrons(
  name: str,
  cluster: str,
  *,
  layout: perceptrons_lib.Layout,
  hidden: Sequence[int],
  rows_per_device: int = 4096,
  forward_only: bool = False,
  options: Mapping[str, bool | int] | None = None,
) -> Module:
  """A stack of perceptrons."""

  def load(data: pathlib.Path | None) -> target_lib.Target:
    del data
    parsed = cluster_lib.parse(cluster)
    lowered = perceptrons_lib.lower(
      devices_lib.devices(parsed),
      layout=layout,
      hidden=hidden,
      rows_per_device=rows_per_device,
      forward_only=forward_only,
    )
    return target_lib.of_step(lowered, parsed, name=name)

  return Module(name=name, cluster=cluster, load=load, options=options or {})


def published(name: str, cluster: str, file: str) -> Module:
  """One of XLA's benchmark modules, from the folder with data."""

  def load(data: pathlib.Path | None) -> target_lib.Target:
    assert data is not None
    return load_lib.load(str(data / file), cluster_lib.parse(cluster))

  return Module(name=name, cluster=cluster, load=load, file=file)


MODULES: Mapping[str, Module] = {
  module.name: module
  for module in (
    perceptrons("mlp-fsdp", "1x8xh100", layout="fsdp", hidden=(4096,) * 4),
    perceptrons("mlp-fsdp-a40", "1x8xa40", layout="fsdp", hidden=(4096,) * 4),
    perceptrons("mlp-tp", "1x8xh100", layout="tp", hidden=(8192,) * 4),
    perceptrons("mlp-ep", "1x8xh100", layout="ep", hidden=(4096,) * 4),
    llama("llama-1b-fsdp", "1x8xh100", model="1b"),
    llama("llama-3b-fsdp-a40", "2x8xa40", model="3b"),
    llama("llama-8b-fsdp-a100", "4x8xa100", model="8b"),
    llama("llama-8b-tp", "1x8xh100", model="8b", mesh="fsdp:1,tp:8"),
    llama("llama-8b-tp-a40", "1x8xa40", model="8b", mesh="fsdp:1,tp:8"),
    llama("llama-8b-fsdp-tp", "2x8xh100", model="8b", mesh="fsdp:2,tp:8"),
    llama("llama-70b-fsdp-tp", "4x8xb200", model="70b", mesh="fsdp:8,tp:4"),
    published("llama-70b-16x8", "16x8xh100",
              "hlo/hlo_llama31_70b_bf16_16x8.hlo.xz"),
    published("llama-8b-cp", "1x4xh100",
              "hlo/hlo_llama3_8b_cp_bf16_1x4.hlo.xz"),
    published("llama-8b-1x8", "1x8xh100",
              "hlo/hlo_llama31_8b_bf16_1x8.hlo.xz"),
    published("mixtral-2x8", "2x8xh100",
              "hlo/hlo_mixtral_8x7b_bf16_2x8.hlo.xz"),
  )
}  # fmt: skip


def named(name: str) -> Module:
  """The module with this name, as `Module.name` has it."""
  base, _, overlapping = name.partition(", ")
  module = MODULES[base]
  if not overlapping:
    return module
  return module.overlapping(int(overlapping.split()[0]))


class Shelf:
  """Modules, each loaded and scheduled at most once.

  What needs a folder that is not there is left out, and named on stderr.

  Attributes:
    data: the folder; None if there is none.
  """

  def __init__(self, data: pathlib.Path | None):
    self.data = data
    self._targets: dict[Callable[..., object], target_lib.Target] = {}
    self._steps: dict[str, step_lib.Step] = {}

  def available(self, modules: Iterable[Module]) -> Iterator[Module]:
    """Those of these modules that can be loaded here."""
    for module in modules:
      path = self.data / module.file if self.data else None
      if module.file and (path is None or not path.is_file()):
        say(f"{module.name} left out: it needs --data with {module.file}")
        continue
      yield module

  def target(self, module: Module) -> target_lib.Target:
    """What is tuned."""
    if module.load not in self._targets:
      self._targets[module.load] = module.load(self.data)
    return self._targets[module.load]

  def step(self, module: Module) -> step_lib.Step:
    """The step as XLA schedules it with the module's options."""
    if module.name not in self._steps:
      say(f"scheduling {module.name} for {module.cluster}")
      target = self.target(module)
      config = config_lib.XlaConfig(options=module.options)
      self._steps[module.name] = step_lib.of_module(
        target.schedule(config), target.cluster
      )
    return self._steps[module.name]
