# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Published step times of XLA's benchmark modules on H100s.

openxla/xla#26196 gives Llama 3.1 8B with the scheduler of its time (today's
latency-hiding scheduler without the speed-of-light estimator), and with
collectives that start as early as possible, which needs several in flight.
openxla/xla#34143 gives Mixtral 8x7B before and after that estimator supported
all-to-alls; here, without and with the estimator. Modules are compiled here and
replayed.

Neither names its GPUs and inputs. XLA runs such files with generated inputs,
and the modules derive the length of each sequence from segment ids. Random ids
hardly ever agree, so sequences are short. So the cost of attention is that of
its memory traffic here. With whole sequences, it would take 237 ms of the Llama
step, and the prediction would be 13 to 15 % too long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses
import pathlib

from benchmarks import groups as groups_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import overlap as overlap_lib

_SCHEDULER: Mapping[str, bool | int] = {
  "xla_gpu_enable_latency_hiding_scheduler": True,
  "xla_gpu_enable_analytical_sol_latency_estimator": False,
}
_EARLY: Mapping[str, bool | int] = {
  **_SCHEDULER,
  "xla_gpu_experimental_collective_start_as_early_as_possible": True,
  "xla_gpu_experimental_parallel_collective_overlap_limit": 2,
}


# Module -> cluster, and name, options and measured time before and after a
# change, in ms. Of hlo_llama31_8b_fp8_2x8 only one time is legible.
_Variant = tuple[str, Mapping[str, bool | int], float]
_PUBLISHED: Mapping[str, tuple[str, _Variant, _Variant]] = {
  f"llama31_8b_{name}": (
    f"{shape}xh100",
    ("late starts", _SCHEDULER, before_ms),
    ("early starts", _EARLY, after_ms),
  )
  for name, shape, before_ms, after_ms in (
    ("bf16_1x8", "1x8", 1359.0, 1318.3),
    ("bf16_2x8", "2x8", 1366.0, 1321.4),
    ("fp8_1x8", "1x8", 1123.0, 1089.0),
  )
} | {
  "mixtral_8x7b_bf16_2x8": (
    "2x8xh100",
    ("all-to-alls unknown", _SCHEDULER, 1128.328),
    ("all-to-alls estimated", {}, 1009.397),
  )
}
# The same step on one node and on two.
_SCALED = ("llama31_8b_bf16_1x8", "llama31_8b_bf16_2x8")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
  """A step measured under some options, and its prediction."""

  name: str
  measured_ms: float
  step: step_lib.Step


def pairs(
  folder: pathlib.Path,
) -> Iterator[tuple[str, Measured, Measured]]:
  """The modules in a folder: name, and the steps before and after a change."""
  for name, (cluster, *variants) in _PUBLISHED.items():
    path = folder / f"hlo_{name}.hlo.xz"
    if path.exists():
      module = hlo.load(path)
      before, after = (
        Measured(
          name=variant,
          measured_ms=measured_ms,
          step=_scheduled(module, cluster_lib.parse(cluster), options),
        )
        for variant, options, measured_ms in variants
      )
      yield name, before, after


def groups(folder: pathlib.Path) -> Iterator[groups_lib.Group]:
  """Groups of step times of the modules in a folder, and of changes' gains."""
  steps: dict[str, groups_lib.Comparison] = {}
  for name, *measured in pairs(folder):
    before, after = (
      groups_lib.Comparison(
        f"{one.name}, ms",
        one.measured_ms,
        one.step.timeline(one.step.default).step_time_us / 1e3,
      )
      for one in measured
    )
    steps[name] = before
    yield groups_lib.of_comparisons(
      f"published: {name}, steps", [before, after]
    )
    yield _difference(f"published: {name}, gain", before, after)
  if all(name in steps for name in _SCALED):
    one, two = (steps[name] for name in _SCALED)
    yield _difference("published: llama31_8b_bf16, 1x8 less 2x8", one, two)


def _difference(
  name: str, first: groups_lib.Comparison, second: groups_lib.Comparison
) -> groups_lib.Group:
  compared = groups_lib.Comparison(
    f"{first.what.removesuffix(', ms')} less the other, ms",
    first.measured - second.measured,
    first.predicted - second.predicted,
  )
  return groups_lib.of_comparisons(name, [compared])


class _OnMadeUpInputs(step_lib.Step):
  """A step whose sequences all have length 1."""

  def kernel_cost(self, kernel: kernels_lib.Kernel) -> kernel_lib.KernelCost:
    """Cost of a kernel of this step alone."""
    if kernel.category != "attention":
      return super().kernel_cost(kernel)
    written = dataclasses.replace(kernel, flops=0)
    cost = kernel_lib.predict(written, self.cluster.gpu)
    return self.prices.kernel_in_scenario(cost, is_product=False)


def _scheduled(
  module: hlo.Module,
  cluster: cluster_lib.Cluster,
  options: Mapping[str, bool | int],
) -> step_lib.Step:
  target = target_lib.of_module(module, cluster, name=module.name)
  scheduled = target.schedule(config_lib.XlaConfig(options=options))
  return _OnMadeUpInputs(overlap_lib.analyze(scheduled), cluster)
