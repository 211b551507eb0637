# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The NCCL tuner plugin follows a table, and only one that is whole."""

from __future__ import annotations

import contextlib
import dataclasses

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
    pytest.param(_with(_WHOLE, 16, 2), b"not whole", id="other slot"),
    pytest.param(_with(_WHOLE, 16, 3), b"not whole", id="other version"),
    pytest.param(_with(_WHOLE, _SLOT_1 + 8, 2), b"not whole", id="num_rules"),
    pytest.param(_with(_WHOLE, _SLOT_1 + 8, 2**63), b"not whole", id="many"),
    pytest.param(_with(_WHOLE, _SLOT_1 + 16, 0), b"not whole", id="checksum"),
    pytest.param(_with(_WHOLE, _RULES_1 + 8, 1), b"not whole", id="torn"),
  ],
)
def test_without_a_whole_table_the_choice_is_nccls(
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


def test_without_a_variable_there_is_no_table_and_no_warning(plugin):
  logged = []
  with tuner_plugin.communicator(
    plugin, None, log=lambda *message: logged.append(message)
  ) as communicator:
    assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) is None
  assert [level for level, *_ in logged] == [3]


def test_a_stale_copy_is_refused_where_the_checksum_is_known(plugin, table):
  for checksum, chosen in (
    (table_lib.checksum([_RULE]), (_RING, _SIMPLE, 4)),
    (table_lib.checksum([]), None),
    ("nonsense", None),
  ):
    env = {"LAGOM_XLA_NCCL_CHECKSUM": checksum}
    with tuner_plugin.communicator(plugin, table, env=env) as communicator:
      assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) == chosen


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_running_job_follows_a_switch_and_counts_anew(plugin, table, version):
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


def test_the_choices_can_be_logged(plugin, table):
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
    b"%s, %zu bytes on a channel: chunks of %zu bytes",
  ]
  assert b"applied %llu times" in logged[4]  # At the end, for each rule.


def test_communicators_share_a_table_and_its_counters(plugin, table):
  with contextlib.ExitStack() as stack:
    communicators = [
      stack.enter_context(
        tuner_plugin.communicator(plugin, table, version=version)
      )
      for version in _VERSIONS
    ]
    for communicator in communicators:
      communicator.choose(_ALL_REDUCE, 16 * _MIB)
  assert table_lib.read(table).counts[0].num_applied == 3
