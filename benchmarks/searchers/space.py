# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search space of NCCL settings, and the profile of a trial.

The space of a key is algorithm A, protocol P, channels NC and chunk size C.
Lagom (arXiv 2602.20656, section 3.2) splits them: A and P (and the transport T)
enumerate *subspaces*; inside one, NC and C are resources that grow. NCCL's
tuner interface sets neither the transport nor the thread count NT, so they are
not part of the space; the paper finds NT negligible (figure 3).

A searcher asks for a configuration and is told the profile of its trial, here
predicted by replays of the programs that the configuration changes.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import settings as settings_lib

Key = step_lib.Key
Configuration = step_lib.Configuration


# The smallest chunk to try; the handshake takes most of the time of smaller
# ones on any link.
_MIN_CHUNK_BYTES = {"ll": 4096, "ll128": 15360, "simple": 32768}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Subspace:
  """All settings of one algorithm and protocol.

  Attributes:
    num_channels: values of NC, rising.
    chunk_bytes: values of C, rising; whole grains of the protocol.
  """

  algorithm: str
  protocol: str
  num_channels: tuple[int, ...]
  chunk_bytes: tuple[int, ...]

  def setting(self, channels_at: int, chunk_at: int) -> nccl.Setting:
    """The setting at these positions of the two axes."""
    return nccl.Setting(
      algorithm=self.algorithm,
      protocol=self.protocol,
      num_channels=self.num_channels[channels_at],
      chunk_bytes=self.chunk_bytes[chunk_at],
    )

  @property
  def settings(self) -> tuple[nccl.Setting, ...]:
    """All settings."""
    return tuple(
      self.setting(channels_at, chunk_at)
      for channels_at in range(len(self.num_channels))
      for chunk_at in range(len(self.chunk_bytes))
    )

  @property
  def most(self) -> nccl.Setting:
    """The setting with the most resources."""
    return self.setting(-1, -1)


def subspaces(
  key: collective_lib.TuningKey, cluster: cluster_lib.Cluster
) -> tuple[Subspace, ...]:
  """The subspaces of a tuning key, in NCCL's order.

  Send/recv collectives have one subspace with only NCCL's default, because they
  have no tuner.
  """
  if key.kind in nccl.SEND_RECV:
    default = collective_lib.default_setting(key, cluster)
    return (
      Subspace(
        algorithm=default.algorithm,
        protocol=default.protocol,
        num_channels=(default.num_channels,),
        chunk_bytes=(default.chunk_bytes,),
      ),
    )
  communicator = key.communicator
  return tuple(
    Subspace(
      algorithm=algorithm,
      protocol=protocol,
      num_channels=tuple(
        range(1, nccl.max_channels(cluster, communicator, algorithm) + 1)
      ),
      chunk_bytes=_chunks(algorithm, protocol),
    )
    for algorithm, protocol in nccl.candidates(cluster, communicator, key.kind)
  )


def _chunks(algorithm: str, protocol: str) -> tuple[int, ...]:
  """Chunk sizes in factors of two, from the smallest to NCCL's own limit."""
  grain = nccl.chunk_grain_bytes(protocol)
  largest = settings_lib.largest_chunk_bytes(algorithm, protocol)
  sizes = {largest}
  size = _MIN_CHUNK_BYTES[protocol]
  while size < largest:
    sizes.add(size // grain * grain)
    size *= 2
  return tuple(sorted(sizes))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
  """The profile of one trial of a configuration, per step.

  A trace shows all of it; nothing needs a collective's time alone. Z = Y + all
  waits.

  Attributes:
    key_us: x_j, the time of each key's collectives as they ran, including their
      slowdown by kernels.
    exposed_us: the time that kernels waited for each key's collectives.
    slowdown_us: the slowdown of kernels by each key's collectives, over their
      fastest runs.
    overlap_us: the time of each of the problem's programs.
    communication_us: X, the sum of `key_us`.
    computation_us: Y, the time of all kernels, with their slowdown.
    total_us: Z, the sum of `overlap_us`.
  """

  key_us: Mapping[Key, float]
  exposed_us: Mapping[Key, float]
  slowdown_us: Mapping[Key, float]
  overlap_us: tuple[float, ...]
  communication_us: float
  computation_us: float
  total_us: float


class Predictor:
  """Predicts trials of a problem; replays only the programs that each changes.

  A prediction depends only on the configuration, not on earlier ones.
  """

  def __init__(self, step: step_lib.Step, problem: problem_lib.Problem):
    self._step = step
    self._problem = problem
    self._before: dict[Key, nccl.Setting] = {}
    self._replayed: dict[int, timeline_lib.Timeline] = {}
    self._executions = dict.fromkeys(problem.keys, 0)
    for program, times in problem.programs:
      for collective, repeats in program_lib.collectives_in(program):
        self._executions[step.key_of[collective.name]] += times * repeats

  def __call__(self, configuration: Configuration) -> Profile:
    """Predicts one trial."""
    step, keys = self._step, self._problem.keys
    changed = {k for k in keys if self._before.get(k) != configuration[k]}
    self._before = {key: configuration[key] for key in keys}
    costs = step.costs(configuration)
    for position, there in enumerate(self._problem.program_keys):
      if changed & there or position not in self._replayed:
        program, _ = self._problem.programs[position]
        self._replayed[position] = timeline_lib.replay(program, costs)
    exposed_us, slowdown_us, key_us = (dict.fromkeys(keys, 0.0) for _ in "123")
    for key in keys:
      alone_us = step.predict(key, configuration[key]).time_us
      key_us[key] = alone_us * self._executions[key]
    overlap_us: list[float] = []
    computation_us = 0.0
    for position, (_, times) in enumerate(self._problem.programs):
      replayed = self._replayed[position]
      overlap_us.append(times * replayed.step_time_us)
      computation_us += times * (
        replayed.kernel_us
        + replayed.total_slowdown_us
        + replayed.total_copy_slowdown_us
      )
      for name, us in replayed.exposed_us.items():
        exposed_us[step.key_of[name]] += times * us
      for (_, name), us in replayed.slowdown_us.items():
        slowdown_us[step.key_of[name]] += times * us
      for name, us in replayed.delay_us.items():
        key_us[step.key_of[name]] += times * us
    return Profile(
      key_us=key_us,
      exposed_us=exposed_us,
      slowdown_us=slowdown_us,
      overlap_us=tuple(overlap_us),
      communication_us=sum(key_us.values()),
      computation_us=computation_us,
      total_us=sum(overlap_us),
    )
