# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The NCCL tuner plugin in its own process, also with sanitizers.

A driver in C makes the tests with 100,000 calls.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import os
import pathlib
import subprocess
import tempfile
import time

import pytest

from benchmarks import plugin_call
from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import table as table_lib
import tuner_plugin

plugin = tuner_plugin.plugin

_MIB = 2**20
_RULE = tuner_plugin.RULE
_DRIVER = pathlib.Path(__file__).parents[2] / "nccl_plugin_driver.c"
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@dataclasses.dataclass(frozen=True)
class _Driver:
  program: pathlib.Path
  plugin: pathlib.Path

  def start(
    self, *arguments: object, user: int | None = None
  ) -> subprocess.Popen[str]:
    return subprocess.Popen(
      [str(self.program), str(self.plugin), *map(str, arguments)],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
      user=user,
    )


def _finished(process: subprocess.Popen[str]) -> list[int]:
  output, error = process.communicate(timeout=120)
  assert process.returncode == 0, error
  return [int(word) for word in output.split()]


def _compile_driver(folder: pathlib.Path, flags: Sequence[str]) -> _Driver:
  program = folder / "driver"
  command = [
    *build.compiler(),
    "-std=c11",
    "-O1",
    "-g",
    *flags,
    *("-o", str(program), str(_DRIVER), "-ldl", "-lpthread"),
  ]
  subprocess.run(command, check=True, capture_output=True)
  library = build.compile_to(folder / build.LIBRARY, ["-g", *flags])
  return _Driver(program, library)


@pytest.fixture(scope="session")
def sanitized(plugin, tmp_path_factory) -> _Driver:
  try:
    return _compile_driver(tmp_path_factory.mktemp("sanitized"), _SANITIZERS)
  except subprocess.CalledProcessError as error:
    pytest.skip(f"this compiler has no sanitizers: {error.stderr[-200:]!r}")


def _fuzzed_rules() -> list[table_lib.Rule]:
  return [
    dataclasses.replace(
      _RULE,
      kind=kind,
      num_ranks=num_ranks,
      num_nodes=num_ranks // 8,
      min_bytes=1024 << 2 * i,
      max_bytes=1536 << 2 * i,
      algorithm=algorithm,
      protocol=protocol,
      num_channels=8 * i,
      chunk_bytes=500 << 2 * i,
    )
    for num_ranks in (8, 16)
    for kind in table_lib.KINDS
    for i, (algorithm, protocol) in enumerate(
      [("ring", "ll"), ("tree", "ll128"), ("nvls", "simple"), ("pat", "simple")]
    )
  ]


def test_damaged_tables_never_make_a_choice_out_of_range(sanitized, tmp_path):
  """100,000 mutations, half of them signed; under the sanitizers."""
  path = tmp_path / "table.bin"
  table_lib.write(path, _fuzzed_rules())
  (num_applied,) = _finished(sanitized.start("fuzz", path, 100_000, 20261120))
  assert num_applied > 100_000


def test_answers_during_a_switch_come_from_one_table_or_the_other(
  sanitized, tmp_path
):
  first = dataclasses.replace(
    _RULE, min_bytes=_MIB, max_bytes=_MIB, chunk_bytes=65536
  )
  second = dataclasses.replace(
    first, algorithm="tree", protocol="ll", num_channels=9, chunk_bytes=16384
  )
  more = [dataclasses.replace(_RULE, num_ranks=n) for n in range(20, 50)]
  path = tmp_path / "table.bin"
  table_lib.write(path, [first])
  process = sanitized.start("follow", path, 1.5)
  num_switches = 0
  while process.poll() is None:
    table_lib.switch(path, [[second, *more], [first]][num_switches % 2])
    num_switches += 1
    time.sleep(0.001)
  num_first, num_second, num_others = _finished(process)
  assert num_switches > 20
  assert num_first > 100 and num_second > 100
  assert num_others == 0


def test_a_read_only_table_is_applied_without_counting(plugin):
  """As from a Kubernetes ConfigMap."""
  rule = dataclasses.replace(
    _RULE, min_bytes=_MIB, max_bytes=_MIB, chunk_bytes=65536
  )
  with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    driver = _compile_driver(folder, [])
    table = folder / "table.bin"
    table_lib.write(table, [rule])
    table.chmod(0o444)
    folder.chmod(0o755)
    nobody = 65534 if os.geteuid() == 0 else None
    num_applied, *others = _finished(
      driver.start("follow", table, 0.02, user=nobody)
    )
    assert num_applied > 0 and others == [0, 0]
    assert table_lib.read(table).counts[0].num_applied == 0


def test_a_plugin_call_takes_less_than_200_ns(plugin, tmp_path):
  program = plugin_call.compile_loop(tmp_path)
  table = tmp_path / "table.bin"
  table_lib.write(table, plugin_call.rules(4096))
  times = plugin_call.measure(program, plugin, table, 4097 * _MIB)
  assert 0 < times["choice_ns"] < 200
  assert 0 < times["chunk_ns"] < 200
  assert table_lib.read(table).counts[2048].num_applied == 1_000_000
