# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The NCCL tuner plugin, called by NCCL itself.

Runs if NCCL's simulation is beside the repository (../shared) and
LAGOM_XLA_TEST_NCCL names a libnccl.so.2 of version 2.32.3.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import table as table_lib
import tuner_plugin

plugin = tuner_plugin.plugin

# NCCL 2.32.3 does not look for v7.
_VERSIONS = [v for v in tuner_plugin.VERSIONS if v != "v7"]
_RULE = tuner_plugin.RULE
_ORACLE = pathlib.Path(__file__).parents[4] / "shared/tools/nccl_oracle/run.sh"


def _oracle(
  plugin: pathlib.Path | None, table: pathlib.Path, **env: str
) -> dict[str, str]:
  """NCCL 2.32.3's choice in each case, on one node of eight H100s."""
  library = os.environ.get("LAGOM_XLA_TEST_NCCL", "")
  if not _ORACLE.is_file():
    pytest.skip("no shared/tools/nccl_oracle beside the repository")
  if not pathlib.Path(library).is_file():
    pytest.skip(
      "LAGOM_XLA_TEST_NCCL names no libnccl.so.2 of NCCL 2.32.3: unzip"
      " `pip download --no-deps nvidia-nccl-cu13==2.32.3`"
    )
  if shutil.which("gdb") is None:
    pytest.skip("no gdb drives NCCL without a GPU: apt-get install gdb")
  output = subprocess.run(
    [_ORACLE, library, "h100", "1", *([plugin] if plugin else [])],
    env={
      **os.environ,
      "CHUNKS": "1",
      "LAGOM_XLA_NCCL_TABLE": str(table),
      **env,
    },
    check=True,
    capture_output=True,
    text=True,
  ).stdout
  said = {}
  for line in output.splitlines():
    if match := re.match(r"(\w+ +2\^ ?\d+) rc=0 +(\w+ +\w+ +nCh= *\d+)", line):
      said[" ".join(match[1].split())] = " ".join(match[2].split())
    elif match := re.match(r"CHUNK (.*?) (\[.*)", line):
      said[match[1]] = match[2]
  return said


@pytest.fixture(scope="module")
def nccls_own(plugin, tmp_path_factory) -> dict[str, str]:
  return _oracle(None, tmp_path_factory.mktemp("none"))


def _only(version: str, folder: pathlib.Path) -> pathlib.Path:
  """The plugin with only one interface, as for an older NCCL."""
  script = folder / f"{version}.map"
  script.write_text(f"{{ global: ncclTunerPlugin_{version}; local: *; }};")
  return build.compile_to(
    folder / f"{version}.so", [f"-Wl,--version-script={script}"]
  )


@pytest.mark.parametrize("version", _VERSIONS)
def test_nccl_runs_the_choices_of_the_table(nccls_own, tmp_path, version):
  gather = dataclasses.replace(
    _RULE,
    kind="all-gather",
    min_bytes=2**26,
    max_bytes=2**26,
    protocol="ll128",
    num_channels=8,
    chunk_bytes=100_000,
  )
  reduce = dataclasses.replace(
    _RULE, min_bytes=2**28, max_bytes=2**28, num_channels=6, chunk_bytes=65537
  )
  too_many = dataclasses.replace(
    _RULE, kind="reduce-scatter", max_bytes=2**24, num_channels=40
  )
  impossible = dataclasses.replace(
    _RULE, algorithm="pat", min_bytes=2**20, max_bytes=2**20
  )
  path = tmp_path / "table.bin"
  table_lib.write(path, [gather, reduce, too_many, impossible])
  tuned = _oracle(_only(version, tmp_path), path)
  changed = {key: v for key, v in tuned.items() if v != nccls_own[key]}
  chunks = changed.pop("AllReduce RING SIMPLE", "")
  assert changed == {
    "AllGather 2^26": "RING LL128 nCh= 8",
    "AllReduce 2^28": "RING SIMPLE nCh= 6",
    "ReduceScatter 2^24": "RING SIMPLE nCh= 24",
  }
  # (log2 of the share, chunk, steps, slice)
  assert chunks.startswith("[(14, 65536, 56, 32768)" if version == "v6" else "")
  assert bool(chunks) == (version == "v6")
  table = table_lib.read(path)
  assert {
    rule.kind + rule.algorithm: (count.num_applied, count.num_unavailable)
    for rule, count in zip(table.rules, table.counts, strict=True)
  } == {
    "all-gatherring": (1, 0),
    "reduce-scatterring": (1, 0),
    "all-reducepat": (0, 1),
    "all-reducering": (1, 0),
  }


def test_nccl_honors_algorithm_and_protocol_variables_per_function(
  nccls_own, tmp_path
):
  said = _oracle(
    None,
    tmp_path,
    NCCL_ALGO="allgather:ring;allreduce:tree,ring",
    NCCL_PROTO="allreduce:simple",
  )
  assert nccls_own["AllReduce 2^28"] == "NVLS SIMPLE nCh= 16"
  assert said["AllReduce 2^28"] == "RING SIMPLE nCh= 24"
  assert nccls_own["AllReduce 2^10"] == "RING LL nCh= 1"
  assert said["AllReduce 2^10"] == "RING SIMPLE nCh= 1"
  assert said["AllGather 2^24"] == nccls_own["AllGather 2^24"]
