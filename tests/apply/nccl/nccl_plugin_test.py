# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The NCCL tuner plugin applies each rule of a whole table, and no other."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from lagom_xla.apply.nccl import table as table_lib
import tuner_plugin

plugin = tuner_plugin.plugin
table = tuner_plugin.table

_MIB = 2**20
_VERSIONS = tuner_plugin.VERSIONS
_ALL_REDUCE = tuner_plugin.ALL_REDUCE
_RING = tuner_plugin.RING
_SIMPLE = tuner_plugin.SIMPLE
_RULE = tuner_plugin.RULE
_COSTS = tuner_plugin.COSTS


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_rule_applies_only_to_its_collective_and_sizes(
  plugin, table, version
):
  with tuner_plugin.communicator(
    plugin, table, version=version
  ) as communicator:
    for num_bytes in (15 * _MIB, 16 * _MIB):
      costs, num_channels = communicator.choose(_ALL_REDUCE, num_bytes)
      assert num_channels == 4
      assert costs[3 * _RING + _SIMPLE] == 0.0
      assert sum(a != b for a, b in zip(costs, _COSTS, strict=True)) == 1
    for num_bytes in (0, 15 * _MIB - 1, 16 * _MIB + 1, 2**63):
      assert communicator.chosen(_ALL_REDUCE, num_bytes) is None
    for kind in (-1, 0, 1, 2, 3, 5, 99):
      assert communicator.chosen(kind, 16 * _MIB) is None
  (counts,) = table_lib.read(table).counts
  assert counts == table_lib.Counts(
    num_applied=2, num_unavailable=0, num_chunks=0
  )


@pytest.mark.parametrize("cost", [-1.0, float("nan")])
def test_a_choice_that_nccl_cannot_run_is_left_to_nccl(plugin, table, cost):
  costs = list(_COSTS)
  costs[3 * _RING + _SIMPLE] = cost
  with tuner_plugin.communicator(plugin, table) as communicator:
    after, num_channels = communicator.choose(_ALL_REDUCE, 16 * _MIB, costs)
    assert [repr(c) for c in after] == [repr(c) for c in costs]
    assert num_channels == 0
    assert communicator.chunk(_ALL_REDUCE, 2 * _MIB, 2097152) == 2097152
  (counts,) = table_lib.read(table).counts
  assert (counts.num_applied, counts.num_unavailable) == (0, 1)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_choice_follows_the_rules_of_the_table(
  plugin, tmp_path_factory, data
):
  """Compares many rules with a search through their list."""
  rules = data.draw(
    tuner_plugin.rules(
      num_ranks=st.sampled_from((8, 16)),
      num_nodes=st.sampled_from((1, 2)),
      num_bytes=st.integers(1, 60),
    )
  )
  path = tmp_path_factory.mktemp("table") / "table.bin"
  table_lib.write(path, rules)
  with tuner_plugin.communicator(plugin, path) as communicator:
    for kind, number in table_lib.KINDS.items():
      for num_bytes in range(62):
        wanted = [
          (
            table_lib.ALGORITHMS[rule.algorithm],
            table_lib.PROTOCOLS[rule.protocol],
            rule.num_channels,
          )
          for rule in rules
          if (rule.kind, rule.num_ranks, rule.num_nodes) == (kind, 8, 1)
          and rule.min_bytes <= num_bytes <= rule.max_bytes
        ]
        chosen = communicator.chosen(number, num_bytes)
        assert ([] if chosen is None else [chosen]) == wanted


_ALL_GATHER = tuner_plugin.ALL_GATHER


@pytest.mark.parametrize(
  ("kind", "algorithm", "protocol", "asked", "nccls", "gets"),
  [
    ("all-reduce", "ring", "simple", 131072, 2097152, 131072),
    ("all-reduce", "ring", "simple", 131583, 2097152, 131072),
    ("all-reduce", "ring", "simple", 1, 2097152, 512),
    ("all-reduce", "ring", "simple", 2**31 - 1, 65536, 2097152),
    ("reduce", "ring", "simple", 2**31 - 1, 65536, 524288),
    ("all-reduce", "tree", "simple", 2**31 - 1, 65536, 524288),
    ("all-reduce", "ring", "ll", 1, 32768, 16),
    ("all-reduce", "ring", "ll", 1000000, 16, 32768),
    ("all-reduce", "ring", "ll128", 1919, 576000, 1920),
    ("all-reduce", "tree", "ll128", 2**31 - 1, 17280, 576000),
    ("all-gather", "nvls", "simple", 2**31 - 1, 16384, 131072),
    ("all-gather", "nvls", "simple", 2**31 - 1, 524288, 524288),
    ("all-reduce", "nvlstree", "simple", 262144, 32768, 131072),
    ("all-gather", "pat", "simple", 70000, 131072, 69632),
  ],
)
def test_a_chunk_is_rounded_to_whole_grains_and_fits_the_buffer(
  plugin, table, kind, algorithm, protocol, asked, nccls, gets
):
  rule = dataclasses.replace(
    _RULE,
    kind=kind,
    algorithm=algorithm,
    protocol=protocol,
    chunk_bytes=asked,
  )
  table_lib.write(table, [rule])
  number = table_lib.KINDS[kind]
  pair = table_lib.ALGORITHMS[algorithm], table_lib.PROTOCOLS[protocol]
  with tuner_plugin.communicator(plugin, table) as communicator:
    assert communicator.chosen(number, 16 * _MIB) == (*pair, 4)
    assert communicator.chunk(number, 4 * _MIB, nccls, *pair) == gets
  assert table_lib.read(table).counts[0].num_chunks == 1


def test_a_chunk_applies_only_to_the_chosen_collective_and_protocol(
  plugin, table
):
  with tuner_plugin.communicator(plugin, table) as communicator:
    communicator.choose(_ALL_REDUCE, 16 * _MIB)
    assert communicator.chunk(_ALL_REDUCE, _MIB, 2097152) == 131072
    assert communicator.chunk(_ALL_REDUCE, _MIB, 16384, 4, _SIMPLE) == 16384
    assert communicator.chunk(_ALL_REDUCE, _MIB, 32768, _RING, 0) == 32768
    assert communicator.chunk(_ALL_GATHER, _MIB, 2097152) == 2097152
    for protocol in (-1, 3):
      assert communicator.chunk(_ALL_REDUCE, _MIB, 7, _RING, protocol) == 7
    communicator.choose(_ALL_REDUCE, 8 * _MIB)  # There is no rule for it.
    assert communicator.chunk(_ALL_REDUCE, _MIB, 2097152) == 2097152


def test_each_collective_of_a_group_gets_its_own_chunk(plugin, table):
  large = dataclasses.replace(
    _RULE, min_bytes=64 * _MIB, max_bytes=64 * _MIB, chunk_bytes=262144
  )
  table_lib.write(table, [_RULE, large])
  with tuner_plugin.communicator(plugin, table) as communicator:
    for num_bytes in (64 * _MIB, 16 * _MIB):
      communicator.choose(_ALL_REDUCE, num_bytes)
    assert communicator.chunk(_ALL_REDUCE, 16 * _MIB + 1, 2097152) == 262144
    assert communicator.chunk(_ALL_REDUCE, 4 * _MIB, 2097152) == 131072


def _with(content: bytes, at: int, word: int) -> bytes:
  return content[:at] + word.to_bytes(8, "little") + content[at + 8 :]


_WHOLE = table_lib.encode([_RULE])
_SLOT_1, _RULES_1 = 64 + 24, 4096 + 64 * 32


@pytest.mark.parametrize(
  ("content", "reason"),
  [
    pytest.param(None, b"is not used", id="missing"),
    pytest.param(b"", b"is not used", id="empty"),
    pytest.param(b"\x00" * len(_WHOLE), b"is not used", id="zeros"),
    pytest.param(_WHOLE[:-4096], b"is not used", id="cut"),
    pytest.param(_WHOLE + bytes(4096), b"is not used", id="too long"),
    pytest.param(_with(_WHOLE, 8, 2 + (64 << 32)), b"is not used", id="format"),
    pytest.param(_with(_WHOLE, 8, 1), b"is not used", id="no capacity"),
    pytest.param(
      _with(_WHOLE, 16, 2), b"the table is damaged", id="other slot"
    ),
    pytest.param(
      _with(_WHOLE, 16, 3), b"the table is damaged", id="other version"
    ),
    pytest.param(
      _with(_WHOLE, _SLOT_1 + 8, 2), b"the table is damaged", id="num_rules"
    ),
    pytest.param(
      _with(_WHOLE, _SLOT_1 + 8, 2**63), b"the table is damaged", id="many"
    ),
    pytest.param(
      _with(_WHOLE, _SLOT_1 + 16, 0), b"the table is damaged", id="checksum"
    ),
    pytest.param(
      _with(_WHOLE, _RULES_1 + 8, 1), b"the table is damaged", id="torn"
    ),
  ],
)
def test_a_missing_or_damaged_table_leaves_each_choice_to_nccl(
  plugin, tmp_path, content, reason
):
  path = tmp_path / "table.bin"
  if content is not None:
    path.write_bytes(content)
  logged = []
  with tuner_plugin.communicator(
    plugin, path, log=lambda *message: logged.append(message)
  ) as communicator:
    assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) is None
    assert communicator.chunk(_ALL_REDUCE, _MIB, 2097152) == 2097152
  warnings = [text for level, *_, text in logged if level == 2]
  assert len(warnings) == 1
  assert reason in warnings[0]


def test_the_plugin_without_its_variable_neither_acts_nor_warns(plugin):
  logged = []
  with tuner_plugin.communicator(
    plugin, None, log=lambda *message: logged.append(message)
  ) as communicator:
    assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) is None
  assert [level for level, *_ in logged] == [3]


def test_a_table_with_another_checksum_is_not_applied(plugin, table):
  for checksum, chosen in (
    (table_lib.checksum([_RULE]), (_RING, _SIMPLE, 4)),
    (table_lib.checksum([]), None),
    ("nonsense", None),
  ):
    env = {"LAGOM_XLA_NCCL_CHECKSUM": checksum}
    with tuner_plugin.communicator(plugin, table, env=env) as communicator:
      assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) == chosen


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_running_job_follows_a_switched_table_and_restarts_counts(
  plugin, table, version
):
  other = dataclasses.replace(_RULE, algorithm="tree", num_channels=9)
  with tuner_plugin.communicator(
    plugin, table, version=version
  ) as communicator:
    assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) == (_RING, _SIMPLE, 4)
    for rules, chosen, num_applied in (
      ([other], (0, _SIMPLE, 9), [1]),
      ([], None, []),
      ([_RULE], (_RING, _SIMPLE, 4), [1]),
    ):
      table_lib.switch(table, rules)
      assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) == chosen
      counts = table_lib.read(table).counts
      assert [count.num_applied for count in counts] == num_applied


def test_choices_are_logged_on_request(plugin, table):
  logged = []
  with tuner_plugin.communicator(
    plugin,
    table,
    log=lambda *message: logged.append(message[-1]),
    env={"LAGOM_XLA_NCCL_LOG": "1"},
  ) as communicator:
    communicator.choose(_ALL_REDUCE, 16 * _MIB)
    communicator.chunk(_ALL_REDUCE, _MIB, 2097152)
    communicator.choose(_ALL_REDUCE, 1)
  assert [text.split(b": ", 1)[1] for text in logged[2:4]] == [
    b"%s of %zu bytes: %s/%s, %d channels",
    b"%s, %zu bytes per channel: chunks of %zu bytes",
  ]
  assert b"applied %llu times" in logged[4]  # At the end, for each rule.
