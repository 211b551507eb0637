# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lagom's search with one of its ideas taken out, from outside.

A variation is a searcher that looks after the state of `lagom` between trials:
it narrows the space that the state searches, or rewrites the priorities by
which it takes turns.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import streams
from lagom_xla.search.nccl import lagom
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import space


class _Variation:
  """Lagom's search; what is varied is for subclasses to say."""

  def init(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    *,
    start: problem_lib.Configuration,
    seed: int = 0,
  ) -> lagom.State:
    return self._narrowed(lagom.init(problem, cluster, start=start, seed=seed))

  def ask(self, state: lagom.State) -> problem_lib.Configuration:
    return lagom.ask(state)

  def tell(
    self, state: lagom.State, profile: problem_lib.Profile
  ) -> lagom.State:
    return lagom.tell(self._reordered(state), profile)

  def done(self, state: lagom.State) -> bool:
    return lagom.done(state)

  def best(self, state: lagom.State) -> problem_lib.Configuration:
    return lagom.best(state)

  def _narrowed(self, state: lagom.State) -> lagom.State:
    return state

  def _reordered(self, state: lagom.State) -> lagom.State:
    return state


class RoundRobin(_Variation):
  """Raises the keys in turn, whatever it gains."""

  def _reordered(self, state: lagom.State) -> lagom.State:
    # Ahead of the key that was raised last, whatever its priority will be.
    waiting = tuple((-math.inf, key) for _, key in state.waiting)
    return dataclasses.replace(state, waiting=waiting)


class ChannelsOnly(_Variation):
  """Leaves the chunk size as NCCL has it."""

  def _narrowed(self, state: lagom.State) -> lagom.State:
    def narrowed(
      setting: nccl.Setting, subspace: space.Subspace
    ) -> space.Subspace:
      own = setting.chunk_bytes
      if setting.protocol != subspace.protocol:
        own = subspace.chunk_bytes[-1]
      nearest = min(subspace.chunk_bytes, key=lambda c: abs(c - own))
      return dataclasses.replace(subspace, chunk_bytes=(nearest,))

    return _with_subspaces(state, narrowed)


class ChunksOnly(_Variation):
  """Leaves the channels as NCCL has them."""

  def _narrowed(self, state: lagom.State) -> lagom.State:
    def narrowed(
      setting: nccl.Setting, subspace: space.Subspace
    ) -> space.Subspace:
      own = min(setting.num_channels, subspace.num_channels[-1])
      return dataclasses.replace(subspace, num_channels=(own,))

    return _with_subspaces(state, narrowed)


def _with_subspaces(
  state: lagom.State,
  narrowed: Callable[[nccl.Setting, space.Subspace], space.Subspace],
) -> lagom.State:
  return dataclasses.replace(
    state,
    untried=tuple(
      (key, narrowed(state.start[key], subspace))
      for key, subspace in state.untried
    ),
    fastest={
      key: (narrowed(state.start[key], subspace), time_us)
      for key, (subspace, time_us) in state.fastest.items()
    },
  )


class WithoutContention(step_lib.Step):
  """A step in which kernels and collectives leave each other alone."""

  def costs(self, configuration: step_lib.Configuration) -> streams.Costs:
    """See `step.Step`."""
    costs = super().costs(configuration)
    return dataclasses.replace(costs, beside=_apart)


def _apart(
  kernel: kernel_lib.KernelCost, collective: collective_lib.CollectiveCost
) -> contention.Beside:
  del collective
  return contention.Beside(
    kernel_us=kernel.time_us, collective_factor=1.0, wait_us=0.0
  )
