# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Damaged files of every kind are read, or refused in a line that says why."""

from __future__ import annotations

import contextlib
import pathlib
import random
import re

import hypothesis
from hypothesis import strategies as st
from jaxlib import _hlo
import pytest

import commands
from lagom_xla.apply import files as files_lib
from lagom_xla.passes import hlo
import nccl_tests_log
from sample_plan import PLAN
import simulated_run
import xspace_text

# By kind: the file in a folder, and the command that reads it.
_READ_BY = {
  "text": ("step.hlo", ("inspect", "step.hlo", commands.CLUSTER, "-v")),
  "proto": ("step.pb", ("inspect", "step.pb", commands.CLUSTER, "-v")),
  "sharded": ("all.hlo", ("inspect", "all.hlo", commands.CLUSTER)),
  "log": ("my.log", ("calibrate", "my.log", "--cluster=2x8xh100")),
  "trace": ("t.xplane.pb", ("profile", "t.xplane.pb")),
  "plan": ("plan/plan.json", ("flags", "plan")),
}
_EXAMPLES = 40
_UNDAMAGED = "undamaged"

_SHARDED = """\
HloModule jit_step, num_partitions=8

ENTRY main {
  x = f32[64,64] parameter(0), sharding={devices=[8,1]<=[8]}
  w = f32[64,64] parameter(1), sharding={devices=[1,8]<=[8]}
  ROOT y = f32[64,64] dot(x, w), lhs_contracting_dims={1},
    rhs_contracting_dims={0}, sharding={replicated}
}
"""

# Values that replace a number of the file.
_NUMBERS = (b"0", b"-1", b"1", b"7", b"4294967296", b"9" * 20, b"1e400", b"nan")


@pytest.fixture(scope="module")
def whole(
  fsdp_scan: hlo.Module, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, pathlib.Path]:
  """A folder for each kind, with an undamaged file and related files."""
  serialized = fsdp_scan.proto.SerializeToString()
  parsed = _hlo.HloModule.from_serialized_hlo_module_proto(serialized)
  header, rest = parsed.to_string().split(",", 1)
  contents = {
    "text": f"{header}, num_partitions=8,{rest}".encode(),
    "proto": serialized,
    "sharded": _SHARDED.encode(),
    "log": nccl_tests_log.log_of(nccl_tests_log.TWO_NODES).encode(),
    "trace": xspace_text.serialized(simulated_run.process_of(fsdp_scan)),
  }
  found = {}
  for kind, (name, _) in _READ_BY.items():
    folder = tmp_path_factory.mktemp(kind)
    if kind == "plan":
      files_lib.write(PLAN, folder / "plan")
      contents[kind] = (folder / name).read_bytes()
    (folder / _UNDAMAGED).write_bytes(contents[kind])
    found[kind] = folder
  return found


def _damaged(data: bytes, rng: random.Random) -> bytes:
  """A file after it was cut, changed or reordered."""
  for _ in range(rng.randint(1, 3)):
    lines = data.splitlines(keepends=True)
    numbers = list(re.finditer(rb"\d+", data))
    if not lines or not numbers:
      return data
    at = rng.randrange(len(data))
    match rng.choice(["cut", "flip", "twice", "swap", "lose", "set"]):
      case "cut":
        data = data[:at]
      case "flip":
        changed = data[at] ^ rng.randint(1, 255)
        data = data[:at] + bytes([changed]) + data[at + 1 :]
      case "twice":
        data = b"".join([*lines, rng.choice(lines)])
      case "swap":
        first, second = rng.choices(range(len(lines)), k=2)
        lines[first], lines[second] = lines[second], lines[first]
        data = b"".join(lines)
      case "lose":
        del lines[rng.randrange(len(lines))]
        data = b"".join(lines)
      case "set":
        number, other = rng.choice(numbers), rng.choice(_NUMBERS)
        data = data[: number.start()] + other + data[number.end() :]
  return data


@pytest.mark.parametrize("kind", list(_READ_BY))
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
@hypothesis.settings(max_examples=_EXAMPLES)
def test_a_damaged_file_is_read_or_refused_in_one_line(whole, kind, seed):
  folder = whole[kind]
  name, command = _READ_BY[kind]
  content = (folder / _UNDAMAGED).read_bytes()
  (folder / name).write_bytes(_damaged(content, random.Random(seed)))
  with contextlib.chdir(folder):
    outcome = commands.run(*command)
  assert outcome.status in (0, 2), outcome.err
  if outcome.status == 2 and kind != "log":  # Each bad row has a line.
    assert outcome.out == ""
    assert re.fullmatch(r"lagom-xla: .*\n", outcome.err)
