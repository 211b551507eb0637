# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans are read back as they were written, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import json
import string
import typing
from typing import Any

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import jsonschema
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.compile import config
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from sample_plan import PLAN

_CLUSTERS = [
  cluster_lib.parse(name) for name in ("1x8xh100", "lagom_b", "4x4xgb200")
]
_names = st.text(string.ascii_lowercase + "_", min_size=1)
_lines = st.text(string.printable[:94], min_size=1)
_counts = st.integers(1, 2**31 - 1)
_times_us = st.floats(0, 1e9)
_gains_us = st.floats(-1e9, 1e9)
_ranges = st.builds(plan_lib.Range, low_us=_gains_us, high_us=_gains_us)
_calls = st.builds(
  collective_lib.Call, num_bytes=st.integers(1, 2**63 - 1), num_arrays=_counts
)
_option_values = st.one_of(
  st.booleans(),
  st.integers(),
  st.floats(allow_nan=False, allow_infinity=False),
  st.text(),
)
_groups = st.lists(st.lists(_lines, min_size=1).map(tuple)).map(tuple)
_settings = st.builds(
  nccl.Setting,
  algorithm=st.sampled_from(["ring", "tree", "nvls", "nvlstree", "pat"]),
  protocol=st.sampled_from(["ll", "ll128", "simple"]),
  num_channels=_counts,
  chunk_bytes=_counts,
)
plans = st.builds(
  plan_lib.Plan,
  module_name=_lines,
  module_fingerprint=_lines,
  cluster=st.sampled_from(_CLUSTERS),
  jax_version=_lines,
  jaxlib_version=_lines,
  xla=st.builds(
    config.XlaConfig,
    program=st.builds(
      form_lib.Form,
      strands=st.sampled_from(typing.get_args(form_lib.Strands)),
      slices=st.dictionaries(_lines, st.integers(2, 64)),
    ),
    options=st.dictionaries(_names, _option_values),
    combine_groups=st.none() | _groups,
    scheduler_profile=st.none() | st.text(),
    orders=st.dictionaries(_lines, st.lists(_lines).map(tuple)),
  ),
  nccl_env=st.dictionaries(_names.map(str.upper), st.text()),
  nccl_settings=st.lists(
    st.builds(
      plan_lib.NcclSetting,
      key=st.builds(
        collective_lib.TuningKey, _names, _counts, _counts, _counts
      ),
      calls=st.lists(
        _calls, max_size=3, unique_by=lambda call: call.num_bytes
      ).map(tuple),
      setting=_settings,
      default=_settings,
      gain_us=_gains_us,
      worst_gain_us=_gains_us,
      worst_if=_lines,
    ),
    max_size=4,
    unique_by=lambda entry: entry.key.kind,
  ).map(tuple),
  prediction=st.builds(
    plan_lib.Prediction,
    default_us=_times_us,
    xla_us=_times_us,
    nccl_env_us=_times_us,
    nccl_settings_us=_times_us,
    default_range_us=_ranges,
    xla_gain_us=_ranges,
    nccl_env_gain_us=_ranges,
    nccl_settings_gain_us=_ranges,
  ),
)


_SCHEMA = jsonschema.Draft202012Validator(plan_lib.schema())


@settings(deadline=None, max_examples=30)
@given(plans)
def test_a_plan_round_trips_through_json_and_follows_its_schema(plan):
  raw = json.loads(json.dumps(plan.to_dict()))
  assert plan_lib.from_dict(raw, where="a plan") == plan
  _SCHEMA.validate(raw)


@pytest.mark.parametrize(
  "damage",
  [
    {"format_version": 4},
    {"more": 1},
    {"module_name": 7},
    {"xla": {"options": {}, "combine_groups": None}},
    {"nccl_env": {"NCCL_MAX_CTAS": 8}},
    {"nccl_settings": 3},
    {"cluster": {**_CLUSTERS[0].to_dict(), "num_nodes": 0}},
    {"prediction": {}},
  ],
  ids=lambda damage: next(iter(damage)),
)
def test_plans_that_the_schema_refuses_are_not_read(damage):
  raw = {**PLAN.to_dict(), **damage}
  assert not _SCHEMA.is_valid(raw)
  with pytest.raises(errors.PlanError):
    plan_lib.from_dict(raw, where="a plan")


def test_a_plan_that_sets_nothing_is_the_default():
  nothing = dataclasses.replace(
    PLAN, xla=config.DEFAULT, nccl_env={}, nccl_settings=()
  )
  assert nothing.is_default
  assert not PLAN.is_default
  for xla in (
    config.XlaConfig(program=form_lib.Form(strands="rotated")),
    config.XlaConfig(program=form_lib.Form(keyed=True)),
    config.XlaConfig(options={"a": 1}),
    config.XlaConfig(combine_groups=()),
    config.XlaConfig(scheduler_profile=""),
    config.XlaConfig(orders={"body": ("a", "b")}),
  ):
    assert not dataclasses.replace(nothing, xla=xla).is_default


def test_a_plan_is_loaded_from_its_folder_or_its_file(tmp_path):
  path = tmp_path / "plan.json"
  path.write_text(json.dumps(PLAN.to_dict()))
  assert plan_lib.load(tmp_path) == PLAN
  assert plan_lib.load(str(path)) == PLAN


def test_a_plan_of_the_previous_format_is_read():
  raw = PLAN.to_dict()
  del raw["nccl_variables"], raw["compiler_options"]
  del raw["cluster"]["processes_per_node"]
  for value in raw["prediction"].values():
    if isinstance(value, dict):
      del value["is_open"]
  for setting in raw["nccl_settings"]:
    del setting["key"]["multicasts"]
  read = plan_lib.from_dict({**raw, "format_version": 5}, where="it")
  assert read == PLAN
  assert raw["nccl_settings"]


@pytest.mark.parametrize(
  ("text", "reason"),
  [
    ("", "is not JSON"),
    ("{", "is not JSON"),
    ("\xff\xfe", "is not UTF-8 text"),
    ("[]", "is not a lagom_xla plan"),
    ('"plan"', "is not a lagom_xla plan"),
    ("{}", "is not a lagom_xla plan"),
    ('{"format_version": 999}', "has format version 999"),
    (
      '{"format_version": 4}',
      "has format version 4; this lagom_xla reads 6. Make the plan again.",
    ),
    ('{"format_version": "6"}', 'has format version "6"'),
    ('{"format_version": 6}', "module_name is missing"),
  ],
)
def test_a_file_that_is_not_a_plan_is_refused_with_its_path(
  tmp_path, text, reason
):
  path = tmp_path / "plan.json"
  path.write_bytes(text.encode("latin-1"))
  with pytest.raises(errors.PlanError) as caught:
    plan_lib.load(tmp_path)
  assert str(path) in str(caught.value)
  assert reason in str(caught.value)


@pytest.mark.parametrize("field", sorted(PLAN.to_dict()))
def test_a_missing_field_of_a_plan_is_named(field):
  raw = PLAN.to_dict()
  del raw[field]
  with pytest.raises(errors.PlanError, match=r"here\.json") as caught:
    plan_lib.from_dict(raw, where="here.json")
  assert field == "format_version" or f"{field} is missing" in str(caught.value)


def _set(*path: str | int) -> Callable[[dict[str, Any], Any], None]:
  def change(raw: Any, value: Any) -> None:
    for step in path[:-1]:
      raw = raw[step]
    raw[path[-1]] = value

  return change


@pytest.mark.parametrize(
  ("change", "value", "reason"),
  [
    (
      _set("module_name"),
      "a\nrm -rf b",
      r'module_name is "a\\nrm -rf b"; it must be one line of printable text',
    ),
    (_set("cluster", "name"), "a\nrm -rf b", "cluster.name is .* one line"),
    (_set("more"), 0, "more is unknown; known: format_version, module_name,"),
    (
      _set("xla", "program", "strands"),
      "plaited",
      r'strands is "plaited"; it must be one of none, merged, staggered, rotat',
    ),
    (
      _set("xla", "program", "slices"),
      {"mlp": 1},
      r'xla\.program\.slices has 1 for "mlp"; a chain needs at least two',
    ),
    (
      _set("xla", "options", "a b"),
      1,
      r'xla\.options has "a b", which is not a setting',
    ),
    (
      _set("xla", "options", "a"),
      [1],
      r"xla\.options\.a is \[1\]; it must be true or false, a whole number,"
      r" a number or text",
    ),
    (
      _set("xla", "combine_groups"),
      [["all-gather", 3]],
      r"xla\.combine_groups\[0\]\[1\] is 3; it must be text",
    ),
    (
      _set("xla", "orders"),
      {"body": ["a", 3]},
      r"xla\.orders\.body\[1\] is 3; it must be text",
    ),
    (_set("nccl_env", "A; rm"), "8", 'nccl_env has "A; rm", which is not a'),
    (
      _set("nccl_settings", 0, "calls"),
      [{"num_bytes": 7, "num_arrays": n} for n in (1, 2)],
      "two of nccl_settings are for all-gather calls of 7 bytes",
    ),
  ],
)
def test_a_damaged_plan_is_refused_with_the_reason(change, value, reason):
  raw = PLAN.to_dict()
  change(raw, value)
  with pytest.raises(errors.PlanError, match=reason) as caught:
    plan_lib.from_dict(raw, where="here.json")
  assert str(caught.value).startswith("here.json is not a usable plan: ")
  assert str(caught.value).endswith("Make the plan again.")
  assert "\n" not in str(caught.value)


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


def test_a_fingerprint_ignores_names_and_source_lines():
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
    (
      "rhs_contracting_dims={0}",
      "rhs_contracting_dims={0}, operand_precision={highest,highest}",
    ),
  ],
)
def test_a_fingerprint_distinguishes_modules(old, new):
  replacements = [(old, new)]
  if old == "64,64":
    replacements.append(("512,64", "520,65"))
  assert _fingerprint(*replacements) != _fingerprint()


def test_a_fingerprint_distinguishes_schedules():
  lines = _HLO.replace("num_partitions", "is_scheduled=true, num_partitions")
  swapped = lines.replace("p = f32[64,64] parameter(0)\n", "").replace(
    "parameter(1)\n", "parameter(1)\n  p = f32[64,64] parameter(0)\n"
  )
  assert plan_lib.fingerprint(hlo.load(lines)) != (
    plan_lib.fingerprint(hlo.load(swapped))
  )
