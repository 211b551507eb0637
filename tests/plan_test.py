# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans are read back as they were written, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
import json
import pathlib
import string
from typing import Any

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.passes import hlo

_CLUSTERS = [
  cluster_lib.parse(name) for name in ("1x8xh100", "lagom_b", "4x4xgb200")
]
_names = st.text(string.ascii_lowercase + "_", min_size=1)
_lines = st.text(string.printable[:94], min_size=1)
_counts = st.integers(1, 2**31 - 1)
_times_us = st.floats(0, 1e9)
_calls = st.builds(
  collective_lib.Call, num_bytes=st.integers(1, 2**63 - 1), num_arrays=_counts
)
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
  xla_options=st.dictionaries(
    _names, st.one_of(st.booleans(), st.integers(), st.text())
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
  ),
)


def _plan() -> plan_lib.Plan:
  setting = nccl.Setting(
    algorithm="ring", protocol="simple", num_channels=4, chunk_bytes=131072
  )
  return plan_lib.Plan(
    module_name="jit_step",
    module_fingerprint="0123456789abcdef",
    cluster=_CLUSTERS[0],
    xla_options={"xla_gpu_all_gather_combine_threshold_bytes": 2**27},
    nccl_env={"NCCL_MAX_CTAS": "8"},
    nccl_settings=(
      plan_lib.NcclSetting(
        key=collective_lib.TuningKey("all-gather", 8, 1, 2**20),
        calls=(collective_lib.Call(num_bytes=2**20, num_arrays=1),),
        setting=setting,
        default=setting,
      ),
    ),
    prediction=plan_lib.Prediction(
      default_us=4.0, xla_us=3.0, nccl_env_us=2.0, nccl_settings_us=1.0
    ),
  )


@settings(deadline=None)
@given(plans)
def test_a_plan_survives_json(plan):
  text = json.dumps(plan.to_dict())
  assert plan_lib.from_dict(json.loads(text), where="a plan") == plan


def test_a_plan_that_sets_nothing_is_the_default():
  nothing = {"xla_options": {}, "nccl_env": {}, "nccl_settings": []}
  raw = {**_plan().to_dict(), **nothing}
  assert plan_lib.from_dict(raw, where="a plan").is_default
  assert not _plan().is_default


def test_a_plan_is_loaded_from_its_folder_or_its_file(tmp_path):
  path = tmp_path / "plan.json"
  path.write_text(json.dumps(_plan().to_dict()))
  assert plan_lib.load(tmp_path) == _plan()
  assert plan_lib.load(str(path)) == _plan()


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
    ('{"format_version": 1}', "has format version 1"),
    ('{"format_version": 2}', "'module_name' is missing"),
  ],
)
def test_what_is_no_plan_is_refused_by_name(tmp_path, text, reason):
  path = tmp_path / "plan.json"
  path.write_bytes(text.encode("latin-1"))
  with pytest.raises(errors.PlanError) as caught:
    plan_lib.load(tmp_path)
  assert str(path) in str(caught.value)
  assert reason in str(caught.value)


def test_a_folder_without_a_plan_is_refused_by_name(tmp_path):
  with pytest.raises(errors.PlanError) as caught:
    plan_lib.load(tmp_path)
  assert str(tmp_path / "plan.json") in str(caught.value)
  assert "No such file" in str(caught.value)


@pytest.mark.parametrize("field", sorted(_plan().to_dict()))
def test_a_plan_that_lacks_a_field_is_refused(field):
  raw = _plan().to_dict()
  del raw[field]
  with pytest.raises(errors.PlanError, match=r"here\.json"):
    plan_lib.from_dict(raw, where="here.json")


def _set(*path: str | int) -> Callable[[dict[str, Any], Any], None]:
  def change(raw: Any, value: Any) -> None:
    for step in path[:-1]:
      raw = raw[step]
    raw[path[-1]] = value

  return change


@pytest.mark.parametrize(
  ("change", "value", "reason"),
  [
    (_set("module_name"), 7, "7 is not a line of text"),
    (_set("module_name"), "a\nrm -rf b", "is not a line of text"),
    (_set("cluster", "gpu", "num_sms"), -1, "gpu.num_sms is -1"),
    (_set("xla_options"), 3, "xla_options is 3; it must be an object"),
    (_set("xla_options", "a b"), 1, '"a b" is no name of a setting'),
    (_set("xla_options", "a"), [1], r"a cannot be \[1\]"),
    (_set("nccl_env", "NCCL_MAX_CTAS"), 8, "NCCL_MAX_CTAS cannot be 8"),
    (_set("nccl_env", "A; rm"), "8", "is no name of a setting"),
    (_set("nccl_settings"), 3, "nccl_settings is 3; it must be a list"),
    (_set("nccl_settings", 0), 3, "nccl_settings holds 3"),
    (_set("nccl_settings", 0, "num_ranks"), 0, "num_ranks is 0"),
    (_set("nccl_settings", 0, "more"), 0, "more is unknown"),
    (_set("nccl_settings", 0, "calls"), 4, "calls is 4; it must be a list"),
    (_set("nccl_settings", 0, "calls"), [4], "calls is 4; it must be an obj"),
    (_set("nccl_settings", 0, "calls"), [{}], "calls.num_bytes is missing"),
    (
      _set("nccl_settings", 0, "calls", 0, "num_bytes"),
      0,
      "calls.num_bytes is 0",
    ),
    (
      _set("nccl_settings", 0, "calls"),
      [{"num_bytes": 7, "num_arrays": n} for n in (1, 2)],
      "two of nccl_settings are for calls of 7 bytes of all-gather",
    ),
    (_set("nccl_settings", 0, "setting"), {}, "algorithm is missing"),
    (_set("nccl_settings", 0, "setting", "num_channels"), "4", "num_channels"),
    (_set("prediction"), 3, "prediction is 3; it must be an object"),
    (_set("prediction", "xla_us"), "fast", "fast"),
  ],
)
def test_a_damaged_plan_is_refused_with_the_reason(change, value, reason):
  raw = _plan().to_dict()
  change(raw, value)
  with pytest.raises(errors.PlanError, match=reason) as caught:
    plan_lib.from_dict(raw, where="here.json")
  assert "here.json" in str(caught.value)
  assert str(caught.value).endswith("Make the plan again.")


# Fingerprints.

_HLO = """HloModule step, num_partitions=8

ENTRY main {
  p = f32[64,64] parameter(0)
  q = f32[64,64] parameter(1)
  dot = f32[64,64] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  sum = f32[64,64] subtract(dot, q)
  ROOT all = f32[512,64] all-gather(sum), dimensions={0}, channel_id=1,
    replica_groups=[1,8]<=[8], use_global_device_ids=true
}
"""


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
