# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The NCCL tuner plugin applies each rule to the collectives that it is for."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from lagom_xla.apply.nccl import build
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


def test_one_library_has_all_three_interfaces(plugin):
  assert build.interfaces(plugin) == ("v4", "v5", "v6")


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_rule_is_applied_to_its_sizes_alone(plugin, table, version):
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


@pytest.mark.parametrize("version", _VERSIONS)
@pytest.mark.parametrize(("num_ranks", "num_nodes"), [(8, 2), (16, 1)])
def test_another_communicator_is_left_alone(
  plugin, table, version, num_ranks, num_nodes
):
  with tuner_plugin.communicator(
    plugin, table, version=version, num_ranks=num_ranks, num_nodes=num_nodes
  ) as communicator:
    assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) is None


@pytest.mark.parametrize("cost", [-1.0, float("nan")])
def test_what_nccl_cannot_run_is_neither_chosen_nor_given_channels(
  plugin, table, cost
):
  costs = list(_COSTS)
  costs[3 * _RING + _SIMPLE] = cost
  with tuner_plugin.communicator(plugin, table) as communicator:
    after, num_channels = communicator.choose(_ALL_REDUCE, 16 * _MIB, costs)
    assert [repr(c) for c in after] == [repr(c) for c in costs]
    assert num_channels == 0
    assert communicator.chunk(_ALL_REDUCE, 2 * _MIB, 2097152) == 2097152
  (counts,) = table_lib.read(table).counts
  assert (counts.num_applied, counts.num_unavailable) == (0, 1)


def test_a_rule_without_channels_and_chunk_leaves_them_to_nccl(plugin, table):
  rule = dataclasses.replace(_RULE, num_channels=0, chunk_bytes=0)
  table_lib.write(table, [rule])
  with tuner_plugin.communicator(plugin, table) as communicator:
    assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) == (_RING, _SIMPLE, 0)
    assert communicator.chunk(_ALL_REDUCE, 2 * _MIB, 2097152) == 2097152


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_choice_is_the_tables(plugin, tmp_path_factory, data):
  """Many rules, against a search in the list of them."""
  rules = []
  for kind in data.draw(st.sets(st.sampled_from(sorted(table_lib.KINDS)))):
    bounds = sorted(data.draw(st.sets(st.integers(1, 60), max_size=12)))
    for least, most in zip(bounds[::2], bounds[1::2], strict=False):
      rules.append(
        table_lib.Rule(
          kind=kind,
          num_ranks=data.draw(st.sampled_from((8, 16))),
          num_nodes=data.draw(st.sampled_from((1, 2))),
          min_bytes=least,
          max_bytes=most,
          algorithm=data.draw(st.sampled_from(sorted(table_lib.ALGORITHMS))),
          protocol=data.draw(st.sampled_from(sorted(table_lib.PROTOCOLS))),
          num_channels=data.draw(st.integers(0, 64)),
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
