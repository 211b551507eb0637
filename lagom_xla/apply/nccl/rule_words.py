# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The words of rules in a table's file, and their checksum.

A rule is four words of 8 bytes, plugin.c's `Rule`. The plugin reads word by
word, as another process may be writing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import struct

from lagom_xla.apply.nccl import rules as rules_lib

_RULE = struct.Struct("<IIQQBBBBI")
NUM_BYTES = _RULE.size
NUM_WORDS = NUM_BYTES // 8


def words(rules: Iterable[rules_lib.Rule]) -> tuple[int, ...]:
  """Rules as words of 8 bytes, in their order."""
  packed = b"".join(
    _RULE.pack(
      rule.num_ranks,
      rule.num_nodes,
      rule.min_bytes,
      rule.max_bytes,
      rules_lib.KINDS[rule.kind],
      rules_lib.ALGORITHMS[rule.algorithm],
      rules_lib.PROTOCOLS[rule.protocol],
      rule.num_channels,
      rule.chunk_bytes,
    )
    for rule in rules
  )
  return struct.unpack(f"<{len(packed) // 8}Q", packed)


def rules(content: bytes) -> list[rules_lib.Rule]:
  """The rules whose words these bytes are.

  Raises:
    KeyError: a number stands for no kind, algorithm or protocol.
    RuleError: a rule is not usable.
  """
  kinds, algorithms, protocols = (
    {number: name for name, number in numbers.items()}
    for numbers in (
      rules_lib.KINDS,
      rules_lib.ALGORITHMS,
      rules_lib.PROTOCOLS,
    )
  )
  return [
    rules_lib.Rule(
      kind=kinds[kind],
      num_ranks=num_ranks,
      num_nodes=num_nodes,
      min_bytes=min_bytes,
      max_bytes=max_bytes,
      algorithm=algorithms[algorithm],
      protocol=protocols[protocol],
      num_channels=num_channels,
      chunk_bytes=chunk_bytes,
    )
    for (
      num_ranks,
      num_nodes,
      min_bytes,
      max_bytes,
      kind,
      algorithm,
      protocol,
      num_channels,
      chunk_bytes,
    ) in _RULE.iter_unpack(content)
  ]


def hashed(version: int, words: Sequence[int]) -> int:
  """The checksum of a version of a table, as plugin.c has it.

  Args:
    version: of the table.
    words: of its rules.
  """
  value = 0
  for word in (version, len(words) // NUM_WORDS, *words):
    value = (value ^ word) * 0x9E3779B97F4A7C15 % 2**64
    value ^= value >> 32
  return value
