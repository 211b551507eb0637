# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rules: what collectives of some sizes on some communicators run with.

A rule is keyed by what NCCL tells a tuner and is equal on all ranks: the size
of the communicator and its nodes, the collective, and its bytes. Names here are
those of a plan; the numbers are NCCL's.
"""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import itertools
from typing import TYPE_CHECKING

from lagom_xla import errors

# It imports JAX, and env.sh has its table read in every shell.
if TYPE_CHECKING:
  from lagom_xla import plan as plan_lib

# NCCL's numbers, as in plugin.c. What is missing here (CollNet) has no rules.
KINDS = {
  "collective-broadcast": 0,
  "reduce": 1,
  "all-gather": 2,
  "reduce-scatter": 3,
  "all-reduce": 4,
}
ALGORITHMS = {"tree": 0, "ring": 1, "nvls": 4, "nvlstree": 5, "pat": 6}
PROTOCOLS = {"ll": 0, "ll128": 1, "simple": 2}
MAX_CHANNELS = 64


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
  """What collectives of some sizes on some communicators should run with.

  Attributes:
    kind: HLO opcode, or NCCL's "reduce".
    num_ranks: size of the communicator.
    num_nodes: nodes that it spans.
    min_bytes: the least size, as NCCL counts it.
    max_bytes: the largest size, inclusive.
    algorithm: as in `costs.nccl.Setting`.
    protocol: as in `costs.nccl.Setting`.
    num_channels: 0 leaves them to NCCL. NCCL takes no more than it has, and
      since 2.31 no more than it would take by itself.
    chunk_bytes: 0 leaves it to NCCL, as all do before 2.30.3. The plugin rounds
      it to what the protocol can have.
  """

  kind: str
  num_ranks: int
  num_nodes: int
  min_bytes: int
  max_bytes: int
  algorithm: str
  protocol: str
  num_channels: int = 0
  chunk_bytes: int = 0


def of_settings(settings: Iterable[plan_lib.NcclSetting]) -> tuple[Rule, ...]:
  """A plan's settings as rules, in the table's order: one for each call's size.

  NCCL gives every array of a combined collective the channels of its rule and
  adds them up, so a rule has an array's share of the setting's channels, at
  least one.

  Raises:
    RuleError: a setting is not usable, or two have a call in common.
  """
  return ordered(
    Rule(
      kind=entry.key.kind,
      num_ranks=entry.key.num_ranks,
      num_nodes=entry.key.num_nodes,
      min_bytes=call.num_bytes,
      max_bytes=call.num_bytes,
      algorithm=entry.setting.algorithm,
      protocol=entry.setting.protocol,
      num_channels=_share(entry.setting.num_channels, call.num_arrays),
      chunk_bytes=entry.setting.chunk_bytes,
    )
    for entry in settings
    for call in entry.calls
  )


def _share(num_channels: int, num_arrays: int) -> int:
  return min(max(round(num_channels / num_arrays), 1), MAX_CHANNELS)


def ordered(rules: Iterable[Rule]) -> tuple[Rule, ...]:
  """The rules in the table's order: communicator, kind, bytes.

  Raises:
    RuleError: a rule is not usable, or two share a size.
  """
  rules = list(rules)
  for rule in rules:
    _check(rule)
  in_order = sorted(rules, key=lambda rule: (*_place(rule), rule.min_bytes))
  for last, rule in itertools.pairwise(in_order):
    if _place(last) == _place(rule) and rule.min_bytes <= last.max_bytes:
      raise errors.RuleError(
        f"Two rules for {rule.kind} over {rule.num_ranks} ranks on"
        f" {rule.num_nodes} nodes share {rule.min_bytes} bytes; give each size"
        " one rule."
      )
  return tuple(in_order)


def _place(rule: Rule) -> tuple[int, int, int]:
  return rule.num_ranks, rule.num_nodes, KINDS[rule.kind]


def _check(rule: Rule) -> None:
  for name, known in (
    ("kind", KINDS),
    ("algorithm", ALGORITHMS),
    ("protocol", PROTOCOLS),
  ):
    if getattr(rule, name) not in known:
      raise errors.RuleError(
        f"A rule has {name} {getattr(rule, name)!r}; it must be one of"
        f" {', '.join(known)}."
      )
  for name, least, most in (
    ("num_ranks", 2, 2**31 - 1),
    ("num_nodes", 1, 2**31 - 1),
    ("min_bytes", 1, 2**63 - 1),
    ("max_bytes", rule.min_bytes, 2**63 - 1),
    ("num_channels", 0, MAX_CHANNELS),
    ("chunk_bytes", 0, 2**31 - 1),
  ):
    if not least <= getattr(rule, name) <= most:
      raise errors.RuleError(
        f"A rule for {rule.kind} has {name} {getattr(rule, name)}; it must be"
        f" {least} to {most}."
      )
