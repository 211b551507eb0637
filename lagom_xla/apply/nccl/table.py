# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of rules: a file that the tuner plugin maps and counts in.

A rule sets how collectives of some sizes on some communicators run. Its key is
what NCCL tells a tuner and is equal on all ranks: the communicator's number of
ranks and nodes, the collective, and its bytes. Names here are those of a plan;
numbers are NCCL's.

A file has two slots of rules and counters, and a version whose lowest bit
selects the valid slot. A slot repeats its version and has a checksum over the
version and its rules. A rule is four words of 8 bytes, described in plugin.c,
which reads word by word, as another process may be writing. `switch` fills the
other slot and then stores the next version, so a job that has mapped the file
sees the old table or the new one, never a mixture.

All ranks of a communicator must choose alike, or they hang. So every node needs
the same table, and you may switch it only between two barriers, while no rank
has work in flight. A captured CUDA graph keeps the settings that it was
captured with. Counters are sums over the processes of a node that map the file;
on a shared file system, give each node its own copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses
import fcntl
import itertools
import mmap
import pathlib
import struct
from typing import TYPE_CHECKING, Any

from lagom_xla import errors
from lagom_xla.validation import whole_files

if TYPE_CHECKING:
  from lagom_xla import plan as plan_lib

# NCCL's numbers, as in plugin.c. CollNet has no rules.
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
  """How collectives of some sizes on some communicators should run.

  Attributes:
    num_ranks: size of the communicator.
    num_nodes: nodes that it spans.
    min_bytes: the least size, as NCCL counts it.
    max_bytes: the largest size, inclusive.
    kind: HLO opcode, or NCCL's "reduce".
    algorithm: as in `costs.nccl.Setting`.
    protocol: as in `costs.nccl.Setting`.
    num_channels: 0 leaves the number to NCCL. NCCL uses no more than it has,
      and since 2.31 no more than it would choose by itself.
    chunk_bytes: 0 leaves it to NCCL, which ignores it before 2.30.3. The plugin
      rounds it to what the protocol allows.
  """

  # In the order of a rule's words.
  num_ranks: int
  num_nodes: int
  min_bytes: int
  max_bytes: int
  kind: str
  algorithm: str
  protocol: str
  num_channels: int = 0
  chunk_bytes: int = 0


_FIELDS = tuple(field.name for field in dataclasses.fields(Rule))
_NUMBERS = {"kind": KINDS, "algorithm": ALGORITHMS, "protocol": PROTOCOLS}


def rules_of(settings: Iterable[plan_lib.NcclSetting]) -> tuple[Rule, ...]:
  """A plan's settings as rules in the table's order, one per size of call.

  NCCL gives every array of a combined collective the channels of its rule, and
  adds them up. So a rule has one array's share of the setting's channels, but
  at least one.

  Raises:
    RuleError: a setting is not usable, or two share a call.
  """
  return in_order(
    Rule(
      kind=entry.key.kind,
      num_ranks=entry.key.num_ranks,
      num_nodes=entry.key.num_nodes,
      min_bytes=call.num_bytes,
      max_bytes=call.num_bytes,
      algorithm=entry.setting.algorithm,
      protocol=entry.setting.protocol,
      num_channels=min(
        call.channels_each(entry.setting.num_channels), MAX_CHANNELS
      ),
      chunk_bytes=entry.setting.chunk_bytes,
    )
    for entry in settings
    for call in entry.calls
  )


def in_order(rules: Iterable[Rule]) -> tuple[Rule, ...]:
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
  for name, known in _NUMBERS.items():
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


_RULE = struct.Struct("<IIQQBBBBI")
_NUM_WORDS = _RULE.size // 8


def _encode_rules(rules: Iterable[Rule]) -> tuple[int, ...]:
  """Rules as words of 8 bytes, in their order."""
  packed = bytearray()
  for rule in rules:
    fields = {name: getattr(rule, name) for name in _FIELDS}
    for name, numbers in _NUMBERS.items():
      fields[name] = numbers[fields[name]]
    packed += _RULE.pack(*fields.values())
  return struct.unpack(f"<{len(packed) // 8}Q", packed)


def _decode_rules(content: bytes) -> list[Rule]:
  """The rules in these bytes; raises KeyError for an unknown number."""
  names = {
    field: {number: name for name, number in numbers.items()}
    for field, numbers in _NUMBERS.items()
  }
  rules = []
  for values in _RULE.iter_unpack(content):
    fields: dict[str, Any] = dict(zip(_FIELDS, values, strict=True))
    for field, named in names.items():
      fields[field] = named[fields[field]]
    rules.append(Rule(**fields))
  return rules


def _hashed(version: int, words: Sequence[int]) -> int:
  """The checksum of a version of a table with these words, as in plugin.c."""
  value = 0
  for word in (version, len(words) // _NUM_WORDS, *words):
    value = (value ^ word) * 0x9E3779B97F4A7C15 % 2**64
    value ^= value >> 32
  return value


MAX_RULES = 4096
_VERSION_WORD = 2  # Position of the version, in words of 8 bytes.

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
    num_applied: collectives that ran with its algorithm and protocol.
    num_unavailable: collectives that matched, but for which NCCL cannot run the
      rule's algorithm and protocol, or an environment variable forbids it.
    num_chunks: chunk sizes that it set, up to three per collective.
  """

  num_applied: int
  num_unavailable: int
  num_chunks: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Table:
  """The current table of a file.

  Attributes:
    version: number of tables that this file has had so far.
    capacity: the maximum number of rules.
    rules: in the table's order.
    counts: of each rule, since this version was written.
  """

  version: int
  capacity: int
  rules: tuple[Rule, ...]
  counts: tuple[Counts, ...]


def encode(rules: Iterable[Rule]) -> bytes:
  """The bytes of a new table, with room to switch to twice the rules.

  Raises:
    RuleError: a rule is not usable, or two share a size.
    TableError: there are too many.
  """
  ordered = in_order(rules)
  if len(ordered) > MAX_RULES:
    raise errors.TableError(
      f"A table holds at most {MAX_RULES} rules, not {len(ordered)}."
    )
  capacity = _MIN_CAPACITY
  while capacity < min(2 * len(ordered), MAX_RULES):
    capacity *= 2
  content = bytearray(_size(capacity))
  _HEADER.pack_into(content, 0, _MAGIC, _FORMAT, capacity, _FIRST_VERSION)
  _fill_slot(content, capacity, _FIRST_VERSION, ordered)
  return bytes(content)


def checksum(rules: Iterable[Rule], *, version: int = _FIRST_VERSION) -> str:
  """The LAGOM_XLA_NCCL_CHECKSUM for which the plugin accepts a table."""
  words = _encode_rules(in_order(rules))
  return f"{_hashed(version, words):016x}"


def decode(content: bytes, *, where: str) -> Table:
  """Reads a file's bytes, which errors call `where`.

  Raises:
    TableError: they are not a complete table.
  """
  capacity, version = _decode_header(content, where)
  slot_version, num_rules, expected = _SLOT.unpack_from(
    content, _slot_at(version)
  )
  at = _rules_at(capacity, version)
  num_words = _NUM_WORDS * min(num_rules, capacity)
  words = struct.unpack_from(f"<{num_words}Q", content, at)
  if (
    version == 0
    or slot_version != version
    or num_rules > capacity
    or _hashed(version, words) != expected
  ):
    raise errors.TableError(
      f"{where} is not a complete table: its checksum is wrong."
    )
  try:
    rules = in_order(_decode_rules(content[at : at + num_rules * _RULE.size]))
  except (KeyError, errors.RuleError) as error:
    raise errors.TableError(f"{where} has an unusable rule: {error}") from error
  at = _counters_at(capacity, version)
  counters = content[at : at + num_rules * _COUNTER.size]
  counts = tuple(
    Counts(num_applied=applied, num_unavailable=unavailable, num_chunks=chunks)
    for applied, unavailable, chunks in _COUNTER.iter_unpack(counters)
  )
  return Table(version=version, capacity=capacity, rules=rules, counts=counts)


def _decode_header(content: bytes, where: str) -> tuple[int, int]:
  """Capacity and version."""
  if len(content) < _PAGE:
    raise errors.TableError(f"{where} is not a table: it is too short.")
  magic, format_version, capacity, version = _HEADER.unpack_from(content)
  if magic != _MAGIC:
    raise errors.TableError(f"{where} is not a table of lagom_xla.")
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


def _fill_slot(
  content: bytearray | mmap.mmap,
  capacity: int,
  version: int,
  rules: Sequence[Rule],
) -> None:
  """Writes a version's slot into a table, but not the header's version."""
  words = _encode_rules(rules)
  _SLOT.pack_into(
    content,
    _slot_at(version),
    version,
    len(rules),
    _hashed(version, words),
  )
  struct.pack_into(
    f"<{len(words)}Q", content, _rules_at(capacity, version), *words
  )
  at = _counters_at(capacity, version)
  content[at : at + capacity * _COUNTER.size] = bytes(capacity * _COUNTER.size)


def _slot_at(version: int) -> int:
  return _SLOTS_AT + version % 2 * _SLOT.size


def _rules_at(capacity: int, version: int) -> int:
  return _PAGE + version % 2 * capacity * _RULE.size


def _counters_at(capacity: int, version: int) -> int:
  first = _PAGE + _pages(2 * capacity * _RULE.size)
  return first + version % 2 * capacity * _COUNTER.size


def _size(capacity: int) -> int:
  return _counters_at(capacity, 0) + _pages(2 * capacity * _COUNTER.size)


def _pages(num_bytes: int) -> int:
  return -(-num_bytes // _PAGE) * _PAGE


def write(path: pathlib.Path, rules: Iterable[Rule]) -> None:
  """Writes a new table atomically, for jobs that start later.

  Raises:
    RuleError, TableError: as `encode`; or the file cannot be written.
  """
  content = encode(rules)
  try:
    whole_files.write(path, content)
  except OSError as error:
    raise errors.TableError(
      f"Cannot write {path}: {error.strerror}."
    ) from error


def switch(path: pathlib.Path, rules: Iterable[Rule]) -> int:
  """Replaces a table's rules in place, for jobs that have it mapped.

  Counters restart at zero. The module's docstring says when you may do this.
  Returns the new version.

  Raises:
    RuleError, TableError: as `encode`; or the file is not a table, cannot be
      written, or has no room for the rules.
  """
  ordered = in_order(rules)
  try:
    with path.open("r+b") as file:
      fcntl.flock(file, fcntl.LOCK_EX)
      old = decode(file.read(), where=str(path))
      if len(ordered) > old.capacity:
        raise errors.TableError(
          f"{path} has room for {old.capacity} rules, not for {len(ordered)};"
          " write a new table and restart the job with it."
        )
      with mmap.mmap(file.fileno(), 0) as mapped:
        _fill_slot(mapped, old.capacity, old.version + 1, ordered)
        mapped.flush()  # The slot must be written before its version.
        with memoryview(mapped) as view, view.cast("Q") as words:
          words[_VERSION_WORD] = old.version + 1
        mapped.flush()
  except OSError as error:
    raise errors.TableError(
      f"Cannot switch {path}: {error.strerror}."
    ) from error
  return old.version + 1


def read(path: pathlib.Path) -> Table:
  """Reads a table and its counters, even while a job uses it.

  Raises:
    TableError: the file cannot be read, or is not a complete table.
  """
  for _ in range(3):
    try:
      return decode(whole_files.read_bytes(path), where=str(path))
    except OSError as error:
      raise errors.TableError(
        f"Cannot read {path}: {error.strerror}."
      ) from error
    except errors.TableError as error:
      found = error  # It may have been switched during the read.
  raise found
