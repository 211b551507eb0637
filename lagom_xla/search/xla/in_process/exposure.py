# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Exposure of chains: what of each is waited for, and what cutting it may hide.

One schedule whose collectives bear the labels of their chains tells what of
each chain is exposed. Of a chain in k pieces no more than the first or the last
piece need be waited for, and k pieces take longer than the whole:

    gain(k) = exposed · (1 − 1/k) − share · (k · t(bytes / k) − t(bytes))

summed over its collectives, with the share of each that is exposed. What its
products lose, only a compile tells.

XLA's partitioner drops the labels of the collectives that it places. There a
chain's are those of its kinds and size, and what is exposed of them is shared
out evenly among all chains that look alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import dataclasses

from lagom_xla.compile import target as target_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.program.slices import chains as chains_lib
from lagom_xla.search.xla import as_run
from lagom_xla.search.xla import candidates


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
  """Chains that are alike, and are cut alike.

  Attributes:
    labels: of the chains.
    collectives: theirs, by their names in the schedule, or by the chains' ends
      where XLA's partitioner placed them; two kinds that share one cannot both
      be cut.
    has_both_ends: whether each begins and ends with a collective.
    pieces: the numbers of pieces that each can be cut into.
    exposed_us: what of their collectives is waited for in a step.
    num_pieces: the number of pieces that is predicted to gain most.
    gain_us: what that takes off the step, as predicted.
  """

  labels: tuple[str, ...]
  collectives: frozenset[str]
  has_both_ends: bool
  pieces: tuple[int, ...]
  exposed_us: float
  num_pieces: int
  gain_us: float


def of_chains(
  target: target_lib.Target,
  candidate: candidates.Candidate,
  chains: Iterable[chains_lib.Chain],
) -> tuple[Kind, ...]:
  """The kinds of chains that may gain by being cut, the most promising first.

  Those with collectives at both ends come first: there a piece's products hide
  what comes before the next piece's and what comes after the last one's. Then
  it is by gain.

  Args:
    target: what is searched.
    candidate: a config whose program is to be cut.
    chains: of the program as written.

  Raises:
    CompileError: XLA refused the program with its chains marked.
    ProgramError: with its calls inlined it cannot have the config's form.
  """
  module = target.schedule_with_chains(candidate.config)
  step = as_run.of_schedule(module, target, candidate.config)
  exposed_us = step.timeline(step.default).exposed_us
  chains = tuple(chains)
  by_chain = {**_by_looks(step, chains), **_by_label(step)}
  least_us = candidates.LEAST_GAIN * candidate.tuned.step_time_us
  found = []
  for alike in _kinds(chains):
    scheduled = [m for chain in alike for m in by_chain.get(chain.label, ())]
    waits = [m for m in scheduled if exposed_us.get(m.collective.name)]
    gains = {
      k: sum(
        m.share * _gain_us(step, m.collective, exposed_us[m.collective.name], k)
        for m in waits
      )
      for k in alike[0].pieces
    }
    num_pieces = max(gains, key=lambda k: gains[k])
    if gains[num_pieces] >= least_us:
      found.append(
        Kind(
          labels=tuple(chain.label for chain in alike),
          collectives=frozenset(m.identity for m in scheduled),
          has_both_ends=len(alike[0].collectives) > 1,
          pieces=alike[0].pieces,
          exposed_us=sum(
            m.share * exposed_us[m.collective.name] for m in waits
          ),
          num_pieces=num_pieces,
          gain_us=gains[num_pieces],
        )
      )
  return tuple(
    sorted(found, key=lambda kind: (not kind.has_both_ends, -kind.gain_us))
  )


def _kinds(
  chains: Iterable[chains_lib.Chain],
) -> Sequence[Sequence[chains_lib.Chain]]:
  kinds: dict[object, list[chains_lib.Chain]] = {}
  for chain in chains:
    alike = dataclasses.replace(chain, label="")
    kinds.setdefault(alike, []).append(chain)
  return list(kinds.values())


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Member:
  """A scheduled collective of a chain.

  Attributes:
    collective: as scheduled.
    share: of it that is this chain's.
    identity: what chains that cannot both be cut have in common.
  """

  collective: collectives_lib.Collective
  share: float
  identity: str


def _by_label(step: step_lib.Step) -> dict[str, list[_Member]]:
  """Collectives by the labels that they bear in a schedule."""
  found: dict[str, list[_Member]] = {}
  for collective, labels in _labelled(step):
    for label in labels:
      found.setdefault(label, []).append(
        _Member(collective=collective, share=1.0, identity=collective.name)
      )
  return found


def _by_looks(
  step: step_lib.Step, chains: Sequence[chains_lib.Chain]
) -> dict[str, list[_Member]]:
  """Collectives without labels, by the chains that they may be of."""
  unlabelled = [c for c, labels in _labelled(step) if not labels]
  found: dict[str, list[_Member]] = {}
  for collective in unlabelled:
    alike = [c for c in chains if _looks_like(collective, c)]
    ends = {_ends(chain) for chain in alike}
    for chain in alike:
      found.setdefault(chain.label, []).append(
        _Member(
          collective=collective, share=1 / len(ends), identity=_ends(chain)
        )
      )
  return found


def _looks_like(
  collective: collectives_lib.Collective, chain: chains_lib.Chain
) -> bool:
  kinds = {
    name.removeprefix("stablehlo.").replace("_", "-")
    for name in chain.collectives
  }
  return (
    collective.kind in kinds
    and collective.nccl_bytes * len(chain.collectives) == chain.nccl_bytes
  )


def _ends(chain: chains_lib.Chain) -> str:
  """Its label without the dimension: chains of the same ends clash."""
  return chain.label.rpartition(":")[0]


def _labelled(
  step: step_lib.Step,
) -> Iterator[tuple[collectives_lib.Collective, Sequence[str]]]:
  """Collectives of a schedule, each with the labels that it bears."""
  module = step.analysis.module
  starts = {
    i.id: i for c in module.computations.values() for i in c.instructions
  }
  for collective in step.analysis.collectives:
    yield collective, _labels(module, starts[collective.start_id])


def _labels(module: hlo.Module, start: hlo.Instruction) -> Sequence[str]:
  inside = collectives_lib.payloads(module, start)
  for operation in (start, *(operation for _, operation in inside)):
    tags = operation.frontend_attributes.map.get(chains_lib.CHAIN)
    if tags:
      return tags.split(",")
  return ()


def _gain_us(
  step: step_lib.Step,
  collective: collectives_lib.Collective,
  exposed_us: float,
  num_pieces: int,
) -> float:
  key = step.key_of[collective.name]
  piece = dataclasses.replace(key, num_bytes=key.num_bytes // num_pieces)
  setting = collective_lib.default_setting(piece, step.cluster)
  whole_us = step.predict(key, step.default[key]).time_us
  piece_us = step.predict(piece, setting).time_us
  # It may have been waited for longer than it takes: for those before it.
  alone_us = whole_us * collective.executions
  share = min(exposed_us / alone_us, 1.0) if alone_us else 0.0
  grown_us = (num_pieces * piece_us - whole_us) * collective.executions
  return exposed_us * (1 - 1 / num_pieces) - share * max(grown_us, 0.0)
