# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The layout of a table in its file, as plugin.c describes it.

Two slots of rules and counters; the lowest bit of the version says which slot
is valid. A slot repeats its version and has a checksum over that and its rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses
import mmap
import struct

from lagom_xla import errors
from lagom_xla.apply.nccl import rule_words
from lagom_xla.apply.nccl import rules as rules_lib

MAX_RULES = 4096
VERSION_WORD = 2  # Position of the version, in words of 8 bytes.

_MAGIC = int.from_bytes(b"lagomanc", "little")
_FORMAT = 1
_PAGE = 4096
_SLOTS_AT = 64
_HEADER = struct.Struct("<QIIQ")
_SLOT = struct.Struct("<QQQ")
_COUNTER = struct.Struct("<QQQ")
_MIN_CAPACITY = 64
_FIRST_VERSION = 1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
  """How often a rule was used, summed over all ranks that map the file.

  Attributes:
    num_applied: collectives that NCCL ran with its algorithm and protocol.
    num_unavailable: collectives that it matched, but NCCL cannot run its
      algorithm and protocol there, or an environment variable forbids them.
    num_chunks: chunk sizes that it set, up to three for each collective.
  """

  num_applied: int
  num_unavailable: int
  num_chunks: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Table:
  """The current table of a file.

  Attributes:
    version: number of tables that this file has had.
    capacity: the most rules that the file can hold.
    rules: in the table's order.
    counts: of each rule, since this version was written.
  """

  version: int
  capacity: int
  rules: tuple[rules_lib.Rule, ...]
  counts: tuple[Counts, ...]


def encode(rules: Iterable[rules_lib.Rule]) -> bytes:
  """The bytes of a new table, with room to be switched to twice the rules.

  Raises:
    RuleError: a rule is not usable, or two share a size.
    TableError: there are too many.
  """
  ordered = rules_lib.ordered(rules)
  if len(ordered) > MAX_RULES:
    raise errors.TableError(
      f"A table holds at most {MAX_RULES} rules; these are {len(ordered)}."
    )
  capacity = _MIN_CAPACITY
  while capacity < min(2 * len(ordered), MAX_RULES):
    capacity *= 2
  content = bytearray(_size(capacity))
  _HEADER.pack_into(content, 0, _MAGIC, _FORMAT, capacity, _FIRST_VERSION)
  fill_slot(content, capacity, _FIRST_VERSION, ordered)
  return bytes(content)


def checksum(
  rules: Iterable[rules_lib.Rule], *, version: int = _FIRST_VERSION
) -> str:
  """What LAGOM_XLA_NCCL_CHECKSUM must be for the plugin to take a table.

  Args:
    rules: of the table.
    version: of the table; that of a new one by default.
  """
  words = rule_words.words(rules_lib.ordered(rules))
  return f"{rule_words.hashed(version, words):016x}"


def decode(content: bytes, *, where: str) -> Table:
  """Reads a file's bytes.

  Args:
    content: the bytes.
    where: what to call them in errors.

  Raises:
    TableError: they are not a complete table.
  """
  capacity, version = _decode_header(content, where)
  slot_version, num_rules, expected = _SLOT.unpack_from(
    content, _slot_at(version)
  )
  at = _rules_at(capacity, version)
  num_words = rule_words.NUM_WORDS * min(num_rules, capacity)
  words = struct.unpack_from(f"<{num_words}Q", content, at)
  if (
    version == 0
    or slot_version != version
    or num_rules > capacity
    or rule_words.hashed(version, words) != expected
  ):
    raise errors.TableError(
      f"{where} is not a complete table: its checksum is wrong."
    )
  try:
    rules = rules_lib.ordered(
      rule_words.rules(content[at : at + num_rules * rule_words.NUM_BYTES])
    )
  except (KeyError, errors.RuleError) as error:
    raise errors.TableError(f"{where} has an unusable rule: {error}") from error
  counted = _counters_at(capacity, version)
  counters = _COUNTER.iter_unpack(
    content[counted : counted + num_rules * _COUNTER.size]
  )
  return Table(
    version=version,
    capacity=capacity,
    rules=rules,
    counts=tuple(
      Counts(
        num_applied=applied, num_unavailable=unavailable, num_chunks=chunks
      )
      for applied, unavailable, chunks in counters
    ),
  )


def _decode_header(content: bytes, where: str) -> tuple[int, int]:
  """Capacity and version."""
  if len(content) < _PAGE:
    raise errors.TableError(f"{where} is not a table: it is too short.")
  magic, format_version, capacity, version = _HEADER.unpack_from(content)
  if magic != _MAGIC:
    raise errors.TableError(f"{where} is not a table of lagom_xla's.")
  if format_version != _FORMAT:
    raise errors.TableError(
      f"{where} has format {format_version}; this lagom_xla reads {_FORMAT}."
      " Make the plan again."
    )
  if not 0 < capacity <= MAX_RULES or len(content) != _size(capacity):
    raise errors.TableError(
      f"{where} is not a complete table: its size is wrong."
    )
  return capacity, version


def fill_slot(
  content: bytearray | mmap.mmap,
  capacity: int,
  version: int,
  rules: Sequence[rules_lib.Rule],
) -> None:
  """Writes a version's slot; the header's version stays as it is.

  Args:
    content: a table's bytes, or its mapped file.
    capacity: of the table.
    version: chooses the slot.
    rules: no more than the capacity, in order.
  """
  words = rule_words.words(rules)
  _SLOT.pack_into(
    content,
    _slot_at(version),
    version,
    len(rules),
    rule_words.hashed(version, words),
  )
  struct.pack_into(
    f"<{len(words)}Q", content, _rules_at(capacity, version), *words
  )
  at = _counters_at(capacity, version)
  content[at : at + capacity * _COUNTER.size] = bytes(capacity * _COUNTER.size)


def _pages(num_bytes: int) -> int:
  return -(-num_bytes // _PAGE) * _PAGE


def _slot_at(version: int) -> int:
  return _SLOTS_AT + version % 2 * _SLOT.size


def _rules_at(capacity: int, version: int) -> int:
  return _PAGE + version % 2 * capacity * rule_words.NUM_BYTES


def _first_counter_at(capacity: int) -> int:
  return _PAGE + _pages(2 * capacity * rule_words.NUM_BYTES)


def _counters_at(capacity: int, version: int) -> int:
  return _first_counter_at(capacity) + version % 2 * capacity * _COUNTER.size


def _size(capacity: int) -> int:
  return _first_counter_at(capacity) + _pages(2 * capacity * _COUNTER.size)
