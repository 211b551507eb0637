# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fingerprints: a module is known again, whatever its names are."""

from __future__ import annotations

import pathlib

import pytest

import hlo_text
from lagom_xla import plan as plan_lib
from lagom_xla.passes import hlo

_HLO = hlo_text.text(
  """
  p = f32[64,64] parameter(0)
  q = f32[64,64] parameter(1)
  dot = f32[64,64] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  sum = f32[64,64] subtract(dot, q)
  ROOT all = f32[512,64] all-gather(sum), dimensions={0}, channel_id=1,
    replica_groups=[1,8]<=[8], use_global_device_ids=true
""",
  header="num_partitions=8",
)


def _fingerprint(*replacements: tuple[str, str]) -> str:
  text = _HLO
  for old, new in replacements:
    assert old in text
    text = text.replace(old, new)
  return plan_lib.fingerprint(hlo.load(text))


def test_a_fingerprint_knows_nothing_of_names_and_source_lines():
  metadata = ', metadata={op_name="jit(f)/dot" source_file="/a/b.py" '
  assert _fingerprint() == _fingerprint(
    ("HloModule step", "HloModule other"),
    ("dot = ", "product.7 = "),
    ("subtract(dot, q)", f"subtract(product.7, q){metadata}source_line=3}}"),
  )


@pytest.mark.parametrize(
  ("old", "new"),
  [
    ("subtract(dot, q)", "add(dot, q)"),
    ("subtract(dot, q)", "subtract(q, dot)"),
    ("64,64", "65,65"),
    ("f32", "bf16"),
    ("lhs_contracting_dims={1}", "lhs_contracting_dims={0}"),
    ("[1,8]<=[8]", "[1,8]<=[2,4]T(1,0)"),
  ],
)
def test_a_fingerprint_tells_modules_apart(old, new):
  replacements = [(old, new)]
  if old == "64,64":
    replacements.append(("512,64", "520,65"))
  assert _fingerprint(*replacements) != _fingerprint()


def test_a_fingerprint_tells_schedules_apart():
  lines = _HLO.replace("num_partitions", "is_scheduled=true, num_partitions")
  swapped = lines.replace("p = f32[64,64] parameter(0)\n", "").replace(
    "parameter(1)\n", "parameter(1)\n  p = f32[64,64] parameter(0)\n"
  )
  assert plan_lib.fingerprint(hlo.load(lines)) != (
    plan_lib.fingerprint(hlo.load(swapped))
  )


def test_a_fingerprint_is_the_same_from_text_and_from_a_file(tmp_path):
  path = pathlib.Path(tmp_path) / "step.hlo.pb"
  module = hlo.load(_HLO)
  path.write_bytes(module.proto.SerializeToString())
  assert plan_lib.fingerprint(hlo.load(path)) == plan_lib.fingerprint(module)
