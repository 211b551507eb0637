# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's benchmark modules on H100s, as their step times were published.

openxla/xla#26196 gives Llama 3.1 8B with the scheduler of its time, and with
collectives that start as early as they can. That scheduler is today's
latency-hiding scheduler without the speed-of-light estimator; the early starts
need more than one collective in flight. openxla/xla#34143 gives Mixtral 8x7B
before and after that estimator knew all-to-alls: without it, and with it. The
modules are compiled here for H100s, ahead of time, and replayed.

XLA runs such files by its multihost_hlo_runner, on inputs that it makes up. The
modules count the length of each sequence from its segment ids (the mask of
their fused attention is padded and causal), and ids drawn at random hardly ever
agree: sequences are short, and attention does little more than write its
results. So it is costed here by its memory traffic. With whole sequences it
would take 237 ms of the Llama step, and the step would be predicted 13 to 15 %
too long. Neither pull request says which GPUs and inputs it measured on, so
both are assumptions.
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

_SCHEDULER: Mapping[str, bool | int] = {
  "xla_gpu_enable_latency_hiding_scheduler": True,
  "xla_gpu_enable_analytical_sol_latency_estimator": False,
}
_EARLY: Mapping[str, bool | int] = {
  **_SCHEDULER,
  "xla_gpu_experimental_collective_start_as_early_as_possible": True,
  "xla_gpu_experimental_parallel_collective_overlap_limit": 2,
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
  """A module's step as it was measured under some options."""

  name: str
  options: Mapping[str, bool | int]
  measured_ms: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Published:
  """A module that was measured before and after a change."""

  cluster: str
  before: Variant
  after: Variant


def _early_starts(cluster: str, before_ms: float, after_ms: float) -> Published:
  """A row of openxla/xla#26196."""
  return Published(
    cluster=cluster,
    before=Variant(
      name="late starts", options=_SCHEDULER, measured_ms=before_ms
    ),
    after=Variant(name="early starts", options=_EARLY, measured_ms=after_ms),
  )


# Of hlo_llama31_8b_fp8_2x8 only one time is legible.
_PUBLISHED: Mapping[str, Published] = {
  "hlo_llama31_8b_bf16_1x8": _early_starts("1x8xh100", 1359.0, 1318.3),
  "hlo_llama31_8b_bf16_2x8": _early_starts("2x8xh100", 1366.0, 1321.4),
  "hlo_llama31_8b_fp8_1x8": _early_starts("1x8xh100", 1123.0, 1089.0),
  "hlo_mixtral_8x7b_bf16_2x8": Published(
    cluster="2x8xh100",
    before=Variant(
      name="all-to-alls unknown", options=_SCHEDULER, measured_ms=1128.328
    ),
    after=Variant(
      name="all-to-alls estimated", options={}, measured_ms=1009.397
    ),
  ),
}
# The same step on one node and on two.
_SCALED = ("llama31_8b_bf16_1x8", "llama31_8b_bf16_2x8")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
  """A step that was measured, and what there is to predict it by."""

  variant: Variant
  step: step_lib.Step


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
  """A module's step before and after a change."""

  name: str
  before: Measured
  after: Measured


def pairs(folder: pathlib.Path) -> Iterator[Pair]:
  """The steps of the modules in a folder."""
  for name, published in _PUBLISHED.items():
    path = folder / f"{name}.hlo.xz"
    if not path.exists():
      continue
    module = hlo.load(path)
    before, after = (
      Measured(
        variant=variant,
        step=_scheduled(module, published.cluster, variant.options),
      )
      for variant in (published.before, published.after)
    )
    yield Pair(name=name.removeprefix("hlo_"), before=before, after=after)


def groups(folder: pathlib.Path) -> Iterator[groups_lib.Group]:
  """Step times of the modules in a folder, and what each change gains."""
  steps: dict[str, groups_lib.Comparison] = {}
  for pair in pairs(folder):
    before, after = _comparison(pair.before), _comparison(pair.after)
    steps[pair.name] = before
    label = f"published: {pair.name}"
    yield groups_lib.of_comparisons(f"{label}, steps", [before, after])
    yield _difference(f"{label}, gain", before, after)
  if all(name in steps for name in _SCALED):
    one, two = (steps[name] for name in _SCALED)
    yield _difference("published: llama31_8b_bf16, 1x8 less 2x8", one, two)


def _comparison(measured: Measured) -> groups_lib.Comparison:
  step = measured.step
  return groups_lib.Comparison(
    what=f"{measured.variant.name}, ms",
    measured=measured.variant.measured_ms,
    predicted=step.timeline(step.default).step_time_us / 1e3,
  )


def _difference(
  name: str, first: groups_lib.Comparison, second: groups_lib.Comparison
) -> groups_lib.Group:
  compared = groups_lib.Comparison(
    what=f"{first.what.removesuffix(', ms')} less the other, ms",
    measured=first.measured - second.measured,
    predicted=first.predicted - second.predicted,
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
  module: hlo.Module, cluster: str, options: Mapping[str, bool | int]
) -> step_lib.Step:
  parsed = cluster_lib.parse(cluster)
  target = target_lib.of_module(module, parsed, name=module.name)
  scheduled = target.schedule(config_lib.XlaConfig(options=options))
  analysis = step_lib.of_module(scheduled, parsed).analysis
  return _OnMadeUpInputs(analysis, parsed)
