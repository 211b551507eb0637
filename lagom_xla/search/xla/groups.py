# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Combine groups: which collectives are combined, chosen chain by chain.

Combining saves latency but costs overlap: a combined collective starts when its
last operand is ready, and its first user waits for all of it. The best groups
depend on the kernels around them, so no threshold in bytes is right everywhere.

Collectives that XLA could combine, in schedule order, form a *chain*. XLA's
options set one threshold for all chains of a kind; here each chain gets its
own. The search starts with nothing combined and climbs like the search over
options (`options.py`): it compiles each threshold of each chain, and keeps
those that gain together.

XLA combines before it pipelines and double-buffers loops, so the schedule may
have several copies of a collective. A group applies to all copies of its
collectives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import dataclasses
import functools

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.combine import table
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import options

# Larger modules keep XLA's groups: XLA takes minutes to schedule them with no
# collective combined.
_MAX_INSTRUCTIONS = 50_000

_MIB = 2**20
_THRESHOLDS_BYTES = tuple(size * _MIB for size in (8, 30, 128, 512, 2048))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Member:
  """A collective of the program.

  Attributes:
    label: its label (`passes/combine/keys.py`).
    kind: its HLO opcode.
    num_bytes: its bytes, as XLA's combiners count them.
    traits: equal for all members of a chain. They lack the reduction operator,
      which `Collective` does not record; compiles refuse groups that mix
      operators.
  """

  label: str
  kind: str
  num_bytes: int
  traits: table.Traits


Chain = tuple[Member, ...]


def search(
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  until_s: float,
  in_turn: evaluation.InTurn = evaluation.one_by_one,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Continues from the best so far with groups of its collectives.

  Args:
    so_far: what was tried so far.
    evaluate: schedules a config and searches its NCCL settings.
    until_s: when to stop, a time of `time.monotonic`.
    in_turn: starts compiles of the next configs ahead.
    progress: called with a short description of each candidate after it.
  """
  best = so_far.best
  config = dataclasses.replace(best.config, combine_groups=())
  try:
    _check_can_group(best.step.analysis.module)
  except (errors.CompileError, errors.DonationLostError) as error:
    refused = candidates.Refused(config=config, reason=str(error))
    return so_far.with_candidate(refused)
  ungrouped = evaluate(config)
  so_far = so_far.with_candidate(ungrouped)
  progress("no combine groups")
  if isinstance(ungrouped, candidates.Refused) or not candidates.can_win(
    ungrouped, so_far
  ):
    return so_far
  chains = combinable_chains(ungrouped.step.analysis.module)
  changes = [change for chain in chains for change in _changes(chain)]
  return options.climb(
    so_far,
    ungrouped,
    evaluate,
    changes=lambda _: changes,
    drops=lambda _: (),
    in_turn=in_turn,
    until_s=until_s,
    progress=progress,
  )


def _check_can_group(module: hlo.Module) -> None:
  """Checks that groups can be set in a module.

  Raises:
    CompileError: the module is too large.
    DonationLostError: it donates inputs, and this JAX would drop the donation.
  """
  if module.num_instructions > _MAX_INSTRUCTIONS:
    raise errors.CompileError(
      f"The module has {module.num_instructions:,} instructions; combine groups"
      f" are searched in modules of up to {_MAX_INSTRUCTIONS:,}."
    )
  registry.check_donation(module, "sets combine groups")


def combinable_chains(apart: hlo.Module) -> tuple[Chain, ...]:
  """Chains of two or more collectives that XLA could combine.

  Args:
    apart: the module scheduled with nothing combined: compiled with combine
      groups ().
  """
  found: dict[str, list[collectives_lib.Collective]] = {}
  labels = combine.labels(apart)
  for collective in collectives_lib.find(apart):
    if collective.kind in knobs.OPTIONS and collective.name in labels:
      (label,) = labels[collective.name]
      found.setdefault(label, []).append(collective)
  by_traits: dict[table.Traits, list[Member]] = {}
  for label, copies in found.items():
    # Not the copy that pipelining moved out of the loop.
    main = max(copies, key=lambda copy: copy.executions)
    member = Member(
      label=label,
      kind=main.kind,
      num_bytes=table.combined_bytes(main),
      traits=table.traits_of_collective(main),
    )
    by_traits.setdefault(member.traits, []).append(member)
  return tuple(tuple(chain) for chain in by_traits.values() if len(chain) > 1)


def _changes(chain: Chain) -> Iterator[options.Change]:
  """One change for each distinct grouping that a threshold makes of a chain."""
  known: set[combine.Groups] = set()
  for threshold_bytes in (0, *_THRESHOLDS_BYTES):
    groups = tuple(
      tuple(member.label for member in group)
      for group in table.fill(chain, threshold_bytes)
      if len(group) > 1
    )
    if groups not in known:
      known.add(groups)
      label = f"{chain[0].kind} by {threshold_bytes // _MIB} MiB"
      yield label, functools.partial(_regrouped, chain=chain, groups=groups)


def _regrouped(
  config: config_lib.XlaConfig,
  *,
  chain: Sequence[Member],
  groups: combine.Groups,
) -> config_lib.XlaConfig:
  """A config with other groups of one chain."""
  labels = {member.label for member in chain}
  others = (g for g in config.combine_groups or () if labels.isdisjoint(g))
  return dataclasses.replace(config, combine_groups=(*others, *groups))
