# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The NCCL tuner plugin gives a collective the chunks of its own rule."""

from __future__ import annotations

import dataclasses

import pytest

from lagom_xla.apply.nccl import table as table_lib
import tuner_plugin

plugin = tuner_plugin.plugin
table = tuner_plugin.table

_MIB = 2**20
_ALL_REDUCE = tuner_plugin.ALL_REDUCE
_ALL_GATHER = tuner_plugin.ALL_GATHER
_RING = tuner_plugin.RING
_SIMPLE = tuner_plugin.SIMPLE
_RULE = tuner_plugin.RULE


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
def test_a_chunk_is_whole_grains_and_fits_the_buffer(
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


def test_a_chunk_is_for_the_pair_that_was_chosen(plugin, table):
  with tuner_plugin.communicator(plugin, table) as communicator:
    communicator.choose(_ALL_REDUCE, 16 * _MIB)
    assert communicator.chunk(_ALL_REDUCE, _MIB, 16384, 4, _SIMPLE) == 16384
    assert communicator.chunk(_ALL_REDUCE, _MIB, 32768, _RING, 0) == 32768
    assert communicator.chunk(_ALL_GATHER, _MIB, 2097152) == 2097152
    for protocol in (-1, 3):
      assert communicator.chunk(_ALL_REDUCE, _MIB, 7, _RING, protocol) == 7


def test_collectives_of_one_group_have_their_own_chunks(plugin, table):
  large = dataclasses.replace(
    _RULE, min_bytes=64 * _MIB, max_bytes=64 * _MIB, chunk_bytes=262144
  )
  table_lib.write(table, [_RULE, large])
  with tuner_plugin.communicator(plugin, table) as communicator:
    for num_bytes in (64 * _MIB, 16 * _MIB):
      communicator.choose(_ALL_REDUCE, num_bytes)
    assert communicator.chunk(_ALL_REDUCE, 16 * _MIB + 1, 2097152) == 262144
    assert communicator.chunk(_ALL_REDUCE, 4 * _MIB, 2097152) == 131072


def test_a_collective_with_no_rule_keeps_its_chunk_after_one_with_a_rule(
  plugin, table
):
  with tuner_plugin.communicator(plugin, table) as communicator:
    communicator.choose(_ALL_REDUCE, 16 * _MIB)
    assert communicator.chunk(_ALL_REDUCE, _MIB, 2097152) == 131072
    communicator.choose(_ALL_REDUCE, 8 * _MIB)
    assert communicator.chunk(_ALL_REDUCE, _MIB, 2097152) == 2097152
