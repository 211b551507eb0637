# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL rules of a plan, in a table and in NCCL's own variables."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from typing import Any

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.apply import env
from lagom_xla.apply.nccl import table
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
import tuner_plugin

_MIB = 2**20
_RULE = dataclasses.replace(tuner_plugin.RULE, kind="all-gather")


_rules = tuner_plugin.rules(
  num_ranks=st.integers(2, 2**31 - 1),
  num_nodes=st.integers(1, 2**31 - 1),
  num_bytes=st.integers(1, 2**63 - 1),
)


# The file.


@given(rules=_rules, seed=st.integers())
def test_a_table_round_trips_whatever_the_order_of_its_rules(rules, seed):
  shuffled = list(rules)
  random.Random(seed).shuffle(shuffled)
  content = table.encode(shuffled)
  read = table.decode(content, where="it")
  assert (read.version, read.rules) == (1, rules)
  assert {count.num_applied for count in read.counts} <= {0}
  assert len(read.counts) == len(rules)
  assert content == table.encode(rules)
  assert table.checksum(shuffled) == table.checksum(rules)


@settings(max_examples=30)
@given(tables=st.lists(_rules, min_size=1, max_size=4))
def test_a_table_holds_the_rules_of_its_last_switch(tmp_path_factory, tables):
  path = tmp_path_factory.mktemp("table") / "table.bin"
  table.write(path, tables[0])
  inode = path.stat().st_ino
  for version, rules in enumerate(tables[1:], start=2):
    assert table.switch(path, rules) == version
    assert table.read(path).rules == rules
  assert table.read(path).version == len(tables)
  assert path.stat().st_ino == inode


@given(at=st.integers(0, 2**16), value=st.integers(1, 255))
def test_a_changed_byte_of_a_rule_is_detected(at, value):
  rules = [
    dataclasses.replace(_RULE, num_ranks=num_ranks) for num_ranks in (2, 4, 8)
  ]
  content = bytearray(table.encode(rules))
  place = content.index(2, 4096) + at % (3 * 32)
  content[place] ^= value
  with pytest.raises(errors.TableError, match="checksum is wrong"):
    table.decode(bytes(content), where="it")


def test_a_table_is_read_without_jax():
  # Every shell that sources env.sh reads the table.
  code = (
    "import sys; from lagom_xla.apply.nccl import build, table;"
    " print('jax' in sys.modules)"
  )
  ran = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert ran.stdout == "False\n"


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b"", "too short"),
    (bytes(8192), "not a table of lagom_xla"),
    (table.encode([_RULE])[:-1], "size is wrong"),
    (b"lagomanc\x02" + table.encode([])[9:], "has format 2"),
    (None, "Cannot read"),
  ],
)
def test_a_file_that_is_not_a_table_is_refused_with_the_reason(
  tmp_path, content, message
):
  path = tmp_path / "table.bin"
  if content is not None:
    path.write_bytes(content)
  with pytest.raises(errors.TableError, match=message) as error:
    table.read(path)
  assert str(path) in str(error.value)


def test_a_table_that_cannot_be_written_or_switched_is_an_error(tmp_path):
  path = tmp_path / "table.bin"
  path.write_bytes(b"x" * 8192)
  below = path / "table.bin"
  with pytest.raises(errors.TableError, match="Cannot write"):
    table.write(below, [_RULE])
  with pytest.raises(errors.TableError, match="Cannot switch"):
    table.switch(below, [_RULE])
  with pytest.raises(errors.TableError, match="not a table"):
    table.switch(path, [_RULE])
  assert path.read_bytes() == b"x" * 8192


def _many(num_rules: int) -> list[table.Rule]:
  return [
    dataclasses.replace(_RULE, min_bytes=i + 1, max_bytes=i + 1)
    for i in range(num_rules)
  ]


def test_a_table_has_room_to_be_switched_to_twice_as_many_rules(tmp_path):
  path = tmp_path / "table.bin"
  table.write(path, _many(65))
  table.switch(path, _many(130))
  assert len(table.read(path).rules) == 130
  with pytest.raises(
    errors.TableError, match="room for 256 rules, not for 300"
  ):
    table.switch(path, _many(300))
  assert len(table.read(path).rules) == 130
  with pytest.raises(errors.TableError, match="at most 4096 rules"):
    table.write(path, _many(4097))


# The rules.


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"kind": "all-to-all"}, "kind 'all-to-all'; it must be one of"),
    ({"algorithm": "collnet"}, "algorithm 'collnet'; it must be one of"),
    ({"protocol": "p2p"}, "protocol 'p2p'; it must be one of"),
    ({"num_ranks": 1}, "num_ranks 1; it must be 2 to"),
    ({"num_nodes": 0}, "num_nodes 0; it must be 1 to"),
    ({"min_bytes": 0}, "min_bytes 0; it must be 1 to"),
    ({"max_bytes": 5}, f"max_bytes 5; it must be {15 * _MIB} to"),
    ({"num_channels": 65}, "num_channels 65; it must be 0 to 64"),
    ({"num_channels": -1}, "num_channels -1; it must be 0 to 64"),
    ({"chunk_bytes": 2**31}, "chunk_bytes 2147483648; it must be 0 to"),
  ],
)
def test_a_rule_out_of_range_is_refused(change, message):
  with pytest.raises(errors.RuleError, match=message):
    table.encode([dataclasses.replace(_RULE, **change)])


def test_two_rules_for_one_size_are_refused():
  with pytest.raises(errors.RuleError, match="share 16777216 bytes"):
    table.encode([_RULE, dataclasses.replace(_RULE, min_bytes=16 * _MIB)])


def _setting(
  kind: str, *call_bytes: int, num_arrays: int = 1, **changes: Any
) -> plan_lib.NcclSetting:
  setting = nccl.Setting(
    algorithm="ring", protocol="simple", num_channels=4, chunk_bytes=131072
  )
  return plan_lib.NcclSetting(
    key=collective_lib.TuningKey(kind, 8, 1, sum(call_bytes)),
    calls=tuple(
      collective_lib.Call(num_bytes=num_bytes, num_arrays=num_arrays)
      for num_bytes in call_bytes
    ),
    setting=dataclasses.replace(setting, **changes),
    default=setting,
    gain_us=0.0,
    worst_gain_us=0.0,
    worst_if="as predicted",
  )


def test_a_setting_becomes_a_rule_for_each_call_of_its_collectives():
  rules = table.rules_of(
    [
      _setting("all-reduce", 16 * _MIB, 32 * _MIB, algorithm="tree"),
      _setting("all-gather", 990),
    ]
  )
  assert [(r.kind, r.algorithm, r.min_bytes, r.max_bytes) for r in rules] == [
    ("all-gather", "ring", 990, 990),
    ("all-reduce", "tree", 16 * _MIB, 16 * _MIB),
    ("all-reduce", "tree", 32 * _MIB, 32 * _MIB),
  ]


def test_the_arrays_of_a_collective_share_its_channels():
  for channels, arrays, share in ((8, 1, 8), (8, 3, 3), (4, 3, 1), (4, 40, 1)):
    setting = _setting(
      "all-gather", 990, num_channels=channels, num_arrays=arrays
    )
    (rule,) = table.rules_of([setting])
    assert rule.num_channels == share


# NCCL's own variables.


def test_nccl_variables_hold_choices_that_a_functions_rules_agree_on():
  rules = [
    _RULE,
    dataclasses.replace(_RULE, num_ranks=16),
    dataclasses.replace(_RULE, kind="all-reduce", algorithm="nvls"),
    # Where a link does not carry them, LL and LL128 may harm.
    dataclasses.replace(_RULE, kind="reduce", protocol="ll"),
    dataclasses.replace(_RULE, kind="collective-broadcast", protocol="ll128"),
    dataclasses.replace(_RULE, kind="reduce-scatter"),
    dataclasses.replace(
      _RULE, kind="reduce-scatter", num_ranks=2, algorithm="pat"
    ),
  ]
  assert env.per_function(rules) == {
    "NCCL_ALGO": "allgather:ring;allreduce:nvls,ring;broadcast:ring"
    ";reduce:ring",
    "NCCL_PROTO": "allgather:simple;allreduce:simple;reducescatter:simple",
  }
