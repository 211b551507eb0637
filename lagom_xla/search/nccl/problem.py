# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Problems of a step: tuning keys that must be chosen together.

Lagom tunes one overlap at a time. NCCL, however, tells collectives apart only
by communicator, kind and bytes: the same tuning key occurs in many overlaps
(every layer's, say), and all of them get its setting. So overlaps that share a
key, directly or through others, form one *problem*: its unknowns are the keys,
and a trial runs all its overlaps. Overlaps that are alike in keys and kernels
are replayed once and counted as often as they occur. Collectives that overlap
nothing are part of it with no kernels beside them, so their keys are tuned for
speed alone.

The space of a key is algorithm A, protocol P, channels NC and chunk size C.
Lagom (arXiv 2602.20656, section 3.2) splits them: A and P (and the transport T)
enumerate *subspaces*; inside one, NC and C are resources that grow. NCCL's
tuner interface sets neither the transport nor the thread count NT, so they are
not part of the space; the paper finds NT negligible (figure 3).

A searcher asks for a configuration and is told what its trial showed. Here that
is predicted, by a replay of what the trial before did not have.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import itertools
import operator

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import incremental
from lagom_xla.costs.replay import program as program_lib

Key = step_lib.Key
Configuration = step_lib.Configuration
Signature = tuple[object, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
  """Tuning keys that must be chosen together.

  Attributes:
    keys: its unknowns, sorted.
    programs: (program of an overlap, times it runs per step).
    program_keys: the keys of each program's collectives.
    signature: equal for problems in which, on one cluster and with one profile,
      every trial shows the same, in any scenario; () where nobody asks.
  """

  keys: tuple[Key, ...]
  programs: tuple[tuple[program_lib.Program, int], ...]
  program_keys: tuple[frozenset[Key], ...]
  signature: Signature = ()


def problems(step: step_lib.Step) -> tuple[Problem, ...]:
  """The problems of a step, the largest first."""
  programs: dict[Signature, tuple[program_lib.Program, int]] = {}
  for program, times in _overlap_programs(step):
    signature = _signature(step, program)
    _, before = programs.get(signature, (program, 0))
    programs[signature] = (program, before + times)
  grouped = _connected(
    (_keys_in(step, program), (program, times, signature))
    for signature, (program, times) in programs.items()
  )
  found = [
    Problem(
      keys=tuple(sorted(keys)),
      programs=tuple((program, times) for program, times, _ in members),
      program_keys=tuple(_keys_in(step, program) for program, _, _ in members),
      signature=tuple((signature, times) for _, times, signature in members),
    )
    for keys, members in grouped
  ]
  return tuple(sorted(found, key=lambda p: -len(p.programs)))


def _keys_in(
  step: step_lib.Step, program: program_lib.Program
) -> frozenset[Key]:
  return frozenset(
    step.key_of[c.name] for c, _ in program_lib.collectives_in(program)
  )


def _overlap_programs(
  step: step_lib.Step,
) -> Iterator[tuple[program_lib.Program, int]]:
  """Programs that together run each collective as often as the step does.

  The program of an overlap holds what runs inside it, so overlaps in a loop
  inside another overlap, and sync collectives, are there already.
  """
  covered: collections.Counter[str] = collections.Counter()
  for overlap in step.analysis.overlaps:  # Callers before callees.
    times = overlap.executions - covered[overlap.collectives[0].name]
    if times <= 0:
      continue
    program = program_lib.of_overlap(step.analysis, overlap)
    for collective, repeats in program_lib.collectives_in(program):
      covered[collective.name] += times * repeats
    yield program, times
  for collective in step.analysis.collectives:
    times = collective.executions - covered[collective.name]
    if times > 0:
      yield (program_lib.Start(collective), program_lib.Wait(collective)), times


def _signature(step: step_lib.Step, program: program_lib.Program) -> Signature:
  """Equal for programs whose replays are equal under any configuration.

  And in any scenario: those tell products from other kernels.
  """
  order: dict[str, int] = {}
  signature: list[object] = []
  for part in program:
    match part:
      case program_lib.Launch(kernel):
        is_product = kernel.category == "gemm"
        signature.append((step.kernel_cost(kernel), is_product))
      case program_lib.Start(collective):
        order[collective.name] = len(order)
        key, grouped = step.key_of[collective.name], collective.grouped_bytes
        signature.append(("start", key, sum(grouped)))
      case program_lib.Wait(collective):
        signature.append(("wait", order.get(collective.name)))
      case program_lib.StartCopy(copy):
        order[copy.name] = len(order)
        signature.append(("copy", copy.stream, step.copy_cost(copy)))
      case program_lib.WaitCopy(copy):
        signature.append(("wait", order.get(copy.name)))
      case program_lib.Loop(body, num_trips):
        signature.append((num_trips, _signature(step, body)))
      case program_lib.Branch(branches):
        signature.append(tuple(_signature(step, b) for b in branches))
  return tuple(signature)


_Member = tuple[program_lib.Program, int, Signature]


def _connected(
  items: Iterable[tuple[frozenset[Key], _Member]],
) -> list[tuple[set[Key], list[_Member]]]:
  """Merges items that share keys, directly or through others."""
  groups: list[tuple[set[Key], list[_Member]]] = []
  for keys, member in items:
    touching = [g for g in groups if g[0] & keys]
    apart = [g for g in groups if not g[0] & keys]
    merged_keys = set(keys).union(*(g[0] for g in touching))
    merged = [m for g in touching for m in g[1]] + [member]
    groups = [*apart, (merged_keys, merged)]
  return groups


# The smallest chunk that is tried: below it a chunk's handshake is most of its
# time whatever the link.
_MIN_CHUNK_BYTES = {"ll": 4096, "ll128": 15360, "simple": 32768}

# NCCL lets a tuner raise the chunks of NVLS beyond its own; whether the results
# are then right has not been seen on a GPU.
_MOST_NVLS_CHUNK_BYTES = 128 * 1024


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

  Send/recv collectives have one, with only NCCL's default in it: there is no
  tuner for them.
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
  """Chunk sizes in steps of two, from the smallest to NCCL's own limit."""
  grain = nccl.chunk_grain_bytes(protocol)
  largest = nccl.max_chunk_bytes(algorithm, protocol)
  if algorithm.startswith("nvls"):
    largest = min(largest, _MOST_NVLS_CHUNK_BYTES)
  sizes = {largest // grain * grain}
  size = _MIN_CHUNK_BYTES[protocol]
  while size < largest:
    sizes.add(size // grain * grain)
    size *= 2
  return tuple(sorted(sizes))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
  """What one trial of a configuration showed, per step.

  All of it can be read off a trace: nothing says what a collective would take
  alone. Z = Y + all waits.

  Attributes:
    key_us: x_j, the time of each key's collectives as they ran, with what they
      lost to the kernels beside them.
    exposed_us: what kernels waited for each key's collectives.
    slowdown_us: what kernels lost to each key's collectives, over the fastest
      that they ran.
    overlap_us: the time of each of the problem's programs.
    communication_us: X, the sum of `key_us`.
    computation_us: Y, all kernels, slowed as they are.
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
  """A predictor of trials of a problem; replays only what each of them changes.

  What it predicts depends on the configuration alone, not on those before.
  """

  def __init__(self, step: step_lib.Step, problem: Problem):
    self._step = step
    self._problem = problem
    self._settings: tuple[nccl.Setting | None, ...] = (None,) * len(
      problem.keys
    )
    self._programs = [
      incremental.IncrementalReplay(
        program, key_of=step.key_of, costs_under=step.costs
      )
      for program, _ in problem.programs
    ]
    self._times = [times for _, times in problem.programs]
    self._programs_of: dict[Key, list[int]] = {k: [] for k in problem.keys}
    for position, keys in enumerate(problem.program_keys):
      for key in keys:
        self._programs_of[key].append(position)
    self._executions = dict.fromkeys(problem.keys, 0)
    for program, times in problem.programs:
      for collective, repeats in program_lib.collectives_in(program):
        self._executions[step.key_of[collective.name]] += times * repeats
    self._overlap_us = [0.0] * len(self._programs)
    self._kernel_us = [0.0] * len(self._programs)
    self._key_us = dict.fromkeys(problem.keys, 0.0)
    self._exposed_us = dict.fromkeys(problem.keys, 0.0)
    self._slowdown_us = dict.fromkeys(problem.keys, 0.0)

  def __call__(self, configuration: Configuration) -> Profile:
    """Predicts one trial."""
    changed = self._change(configuration)
    touched = {p for key in changed for p in self._programs_of[key]}
    affected = set(changed)
    for position in sorted(touched):
      program, times = self._programs[position], self._times[position]
      affected |= program.replay(configuration, changed)
      self._overlap_us[position] = times * program.step_time_us
      self._kernel_us[position] = times * program.kernel_us
    for key in affected:
      self._sum_up(key, configuration[key])
    return Profile(
      key_us=self._key_us.copy(),
      exposed_us=self._exposed_us.copy(),
      slowdown_us=self._slowdown_us.copy(),
      overlap_us=tuple(self._overlap_us),
      communication_us=sum(self._key_us.values()),
      computation_us=sum(self._kernel_us),
      total_us=sum(self._overlap_us),
    )

  def _change(self, configuration: Configuration) -> list[Key]:
    """The keys whose settings are others than in the trial before."""
    keys = self._problem.keys
    settings = tuple(configuration.values())
    # Looking up a key takes ten times as long as seeing that it is in place.
    if len(settings) != len(keys) or not all(
      map(operator.is_, configuration, keys)
    ):
      settings = tuple(configuration[key] for key in keys)
    is_other = map(operator.is_not, settings, self._settings)
    self._settings = settings
    return list(itertools.compress(keys, is_other))

  def _sum_up(self, key: Key, setting: nccl.Setting) -> None:
    exposed_us = slowdown_us = delay_us = 0.0
    for position in self._programs_of[key]:
      lost = self._programs[position].lost(key)
      exposed_us += self._times[position] * lost.exposed_us
      slowdown_us += self._times[position] * lost.slowdown_us
      delay_us += self._times[position] * lost.delay_us
    alone_us = self._step.predict(key, setting).time_us
    self._key_us[key] = alone_us * self._executions[key] + delay_us
    self._exposed_us[key] = exposed_us
    self._slowdown_us[key] = slowdown_us


def profile(
  step: step_lib.Step,
  problem: Problem,
  configuration: Configuration,
) -> Profile:
  """Predicts a single trial of a problem."""
  return Predictor(step, problem)(configuration)
