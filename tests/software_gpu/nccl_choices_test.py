# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The software GPU's collectives call and obey a tuner plugin, like NCCL.

The plugin and its tables are this project's own.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import os
import pathlib
import re

import pytest

from driver_calls import Gpu
from driver_calls import Ranks
from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import table as table_lib

_RULE = table_lib.Rule(
  kind="all-reduce",
  num_ranks=2,
  num_nodes=1,
  min_bytes=2**20,
  max_bytes=2**25,
  algorithm="ring",
  protocol="ll128",
  num_channels=6,
  chunk_bytes=61440,
)
_RING = "Algo Ring proto LL128 channel{Lo..Hi}={0..5} chunk 61440"
_TREE = "Algo Tree proto Simple channel{Lo..Hi}={0..1}"


def all_reduces() -> None:
  gpu = Gpu()
  gpus = (gpu, gpu.another())
  ranks = Ranks(gpus)
  for _ in range(2):
    for rank, each in enumerate(gpus):
      ranks.all_reduce(rank, each.stream(), 2**24)
    if "SWITCHED" in os.environ:
      tree = dataclasses.replace(
        _RULE, algorithm="tree", protocol="simple", num_channels=2
      )
      table_lib.switch(pathlib.Path(os.environ["LAGOM_XLA_NCCL_TABLE"]), [tree])


def a_group() -> None:
  gpu = Gpu()
  gpus = (gpu, gpu.another())
  ranks = Ranks(gpus)
  streams = [each.stream() for each in gpus]
  with ranks.group():
    for rank, stream in enumerate(streams):
      for num_bytes in (2**24, 2**20, 3 * 2**20):
        ranks.all_reduce(rank, stream, num_bytes)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  try:
    build.compiler()
  except build.BuildError as error:
    pytest.skip(str(error))
  return build.compile_to(tmp_path_factory.mktemp("plugin") / build.LIBRARY)


@pytest.fixture
def choices(
  on_gpus: Callable[..., str], plugin: pathlib.Path, tmp_path: pathlib.Path
) -> Callable[..., list[str]]:
  """The choices of two ranks, twice, with a plugin and its table.

  Or their results in another function.
  """

  def choices(
    table: bytes,
    function: Callable[[], None] = all_reduces,
    **variables: str,
  ) -> list[str]:
    (path := tmp_path / "table").write_bytes(table)
    logged = on_gpus(
      function,
      variables={
        "NCCL_DEBUG": "INFO",
        "NCCL_TUNER_PLUGIN": str(plugin),
        "LAGOM_XLA_NCCL_TABLE": str(path),
        **variables,
      },
    )
    return re.findall(r"Bytes -> (Algo .*)", logged)

  return choices


def test_each_choice_follows_the_table_even_after_a_switch(choices):
  found = choices(table_lib.encode([_RULE]), SWITCHED="1")
  assert found[:2] == [_RING] * 2
  assert all(choice.startswith(_TREE) for choice in found[2:])
  assert len(found) == 4


def test_a_channel_cap_overrides_the_tables_channels(choices):
  found = choices(table_lib.encode([_RULE]), NCCL_MAX_CTAS="3")
  assert found[0] == _RING.replace("0..5", "0..2")


@pytest.mark.parametrize(
  "variables", [{"NCCL_ALGO": "^Ring"}, {"NCCL_PROTO": "Simple"}]
)
def test_a_table_cannot_reenable_an_excluded_algorithm_or_protocol(
  choices, variables
):
  found = choices(table_lib.encode([_RULE]), **variables)
  assert not any(choice.startswith("Algo Ring proto LL128") for choice in found)


def test_nccl_does_not_choose_nvls_if_it_is_disabled(choices):
  alone = {"NCCL_TUNER_PLUGIN": "none"}
  assert all("NVLS" in choice for choice in choices(b"", **alone))
  found = choices(b"", NCCL_NVLS_ENABLE="0", **alone)
  assert found and not any("NVLS" in choice for choice in found)


@pytest.mark.parametrize("num_bytes", [0, 100, 5000])
def test_a_damaged_table_leaves_each_choice_to_nccl(choices, num_bytes):
  (default,) = set(choices(b"", NCCL_TUNER_PLUGIN="none"))
  damaged = table_lib.encode([_RULE])[:num_bytes]
  assert set(choices(damaged)) == {default}


def test_grouped_arrays_of_similar_size_share_one_choice(choices):
  rule = dataclasses.replace(_RULE, max_bytes=2**22)
  found = choices(table_lib.encode([rule]), function=a_group)
  # Each of the two small arrays adds its channels.
  ring = _RING.replace("0..5", "0..11")
  assert sorted(c.startswith(ring) for c in found) == [False, False, True, True]
