# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan is shown to act, knob by knob, or refused for what it is not for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import contextlib
import dataclasses
import io
import json
import pathlib
import re
import sys
from typing import Any
from unittest import mock

import jax
import pytest

import fake_target
from lagom_xla import cli
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla import tuner
from lagom_xla.apply import compile as apply_compile
from lagom_xla.apply import files
from lagom_xla.apply.nccl import layout
from lagom_xla.apply.nccl import rules as rules_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load as load_lib
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import uncertainty
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import combinable
from lagom_xla.search.xla import arms
from lagom_xla.search.xla import feedback
from lagom_xla.search.xla import thresholds
from lagom_xla.verify import effects as effects_lib
from lagom_xla.verify import verification as verification_lib

_H100 = cluster_lib.parse("1x8xh100")
_GATHER = thresholds.OPTIONS["all-gather"]
_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"

# Two layers whose weights are gathered, and an option to combine those.
_STEPS = """\
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np

@jax.jit
def step(w, x):
  def loss(w):
    return jnp.sum(jnp.square(jnp.tanh(x @ w[0]) @ w[1]))
  return jax.tree.map(lambda w, g: w - g, w, jax.grad(loss)(w))

def step_args(devices, size="2048"):
  rows = NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x"))
  w = jax.ShapeDtypeStruct((int(size), int(size)), jnp.float32, sharding=rows)
  return (w, w), w
"""

# Two of that step's gathers are more than XLA combines by default.
_COMBINED = {_GATHER: 2**27}

LowerStep = Callable[..., jax.stages.Lowered]


@dataclasses.dataclass(frozen=True)
class _Tuned:
  target: target_lib.Target
  plan: plan_lib.Plan


@pytest.fixture(scope="module")
def tuned(fsdp_step: LowerStep) -> _Tuned:
  """Unrolled layers, and the plan that a search finds for them."""
  target = target_lib.of_step(fsdp_step(unroll=True), _H100, name="unrolled")
  target = fake_target.schedule_only(target)
  return _Tuned(target, _plan(target))


def _plan(target: target_lib.Target) -> plan_lib.Plan:
  """The plan with the cost model taken to be right, and with no recipes tried.

  Too little is sure about steps as small as those here to set anything, and
  under a recipe NCCL's own choices are the best.
  """
  with (
    mock.patch.object(uncertainty, "scenarios", return_value=()),
    mock.patch.object(arms, "known", return_value=arms.Known(arms=())),
  ):
    return tuner.tune(target).plan


def _with(
  tuned: _Tuned, *, told: Any = None, **changes: Any
) -> verification_lib.Verification:
  """A check of the plan with other fields, and with XLA told only this."""
  if told is not None:
    changes["xla"] = config_lib.XlaConfig(**told)
  plan = dataclasses.replace(tuned.plan, **changes)
  return verification_lib.verify(plan, tuned.target)


def _effects(
  verification: verification_lib.Verification,
) -> dict[str, effects_lib.Effect]:
  return {effect.knob: effect for effect in verification.effects}


# What acts.


def test_every_knob_of_a_searched_plan_acts(tuned: _Tuned):
  verification = verification_lib.verify(tuned.plan, tuned.target)
  plan = tuned.plan
  assert plan.xla.options and plan.nccl_settings
  assert len(verification.effects) == (
    len(plan.xla.options) + len(plan.nccl_settings) + len(plan.nccl_env)
  )
  assert verification.all_acted
  assert not any(e.evidence.startswith("no") for e in verification.effects)


def test_predictions_are_those_that_the_plan_was_made_with(tuned: _Tuned):
  verification = verification_lib.verify(tuned.plan, tuned.target)
  prediction = tuned.plan.prediction
  assert verification.default_us == pytest.approx(prediction.default_us)
  assert verification.planned_us == pytest.approx(prediction.nccl_settings_us)
  assert verification.planned_us < verification.default_us


def test_a_plan_that_changes_nothing_has_nothing_to_show(tuned: _Tuned):
  verification = _with(tuned, told={}, nccl_env={}, nccl_settings=())
  assert verification.effects == ()
  assert verification.all_acted
  assert verification.planned_us == verification.default_us


def test_an_option_that_does_nothing_is_told_from_those_beside_it(
  tuned: _Tuned,
):
  options = {_GATHER: 0, "xla_gpu_memory_limit_slop_factor": 80}
  verification = _with(tuned, told={"options": options}, nccl_settings=())
  found = _effects(verification)
  assert found[_GATHER].acted
  idle = found["xla_gpu_memory_limit_slop_factor"]
  assert not idle.acted
  assert idle.evidence.startswith("no effect")
  assert not verification.all_acted


def test_an_option_is_judged_by_what_leaving_it_out_changes(tuned: _Tuned):
  # The limit alone moves collectives; where each travels alone, others do.
  options = {_LIMIT: 2, _GATHER: 0}
  evidence = {
    name: _effects(_with(tuned, told={"options": chosen}, nccl_settings=()))[
      _LIMIT
    ].evidence
    for name, chosen in (("both", options), ("alone", {_LIMIT: 2}))
  }
  assert " of 3 collectives moved" in evidence["alone"]
  assert " of 11 collectives moved" in evidence["both"]


def test_a_setting_for_no_collective_of_the_step_is_found_out(tuned: _Tuned):
  entry = tuned.plan.nccl_settings[0]
  other = dataclasses.replace(
    entry, key=dataclasses.replace(entry.key, num_bytes=4, kind="broadcast")
  )
  verification = _with(tuned, nccl_settings=(other,))
  (effect,) = [e for e in verification.effects if not e.acted]
  assert effect.evidence == "no effect: there is no such collective"
  # What no collective has takes no time either.
  default = _with(tuned, nccl_settings=())
  assert verification.planned_us == default.planned_us


def _of_kind(target: target_lib.Target, kind: str) -> list[str]:
  found = combinable.find(target.identity())
  return [c.label for c in found.values() if c.kind == kind]


def test_combine_groups_are_a_knob(tuned: _Tuned):
  first, second, third, fourth, *rest = _of_kind(tuned.target, "all-gather")
  verification = _with(
    tuned,
    told={"combine_groups": ((first, second), (third, fourth))},
    nccl_settings=(),
  )
  (effect,) = verification.effects
  assert effect.acted
  assert (effect.knob, effect.value) == ("combine groups", "2 groups")
  num_gathers = 2 + len(rest)
  assert f"1 all-gather became {num_gathers}" in effect.evidence


def test_a_threshold_beside_combine_groups_is_judged_without_them(
  tuned: _Tuned,
):
  # Groups overrule it; it is for processes that cannot set any.
  gathers = _of_kind(tuned.target, "all-gather")
  verification = _with(
    tuned,
    told={
      "options": {_GATHER: 0, _LIMIT: 2},
      "combine_groups": (tuple(gathers),),
    },
    nccl_settings=(),
  )
  found = _effects(verification)
  threshold = found[_GATHER]
  assert threshold.acted
  assert threshold.evidence.startswith("without the combine groups: 1 all-gath")
  assert not found[_LIMIT].evidence.startswith("without the combine groups")


def test_costs_for_the_scheduler_are_a_knob(tuned: _Tuned):
  step = tuner.inspect(tuned.target)
  profile = feedback.profile(step, step.default)
  verification = _with(
    tuned,
    told={"scheduler_profile": profile},
    nccl_settings=(),
  )
  (effect,) = verification.effects
  assert effect.knob == "scheduler profile"
  assert effect.value == f"{len(scheduler_profile.costs_us(profile))} costs"
  unchanged = "no effect: the schedule is the same without it"
  assert effect.acted == (effect.evidence != unchanged)


def test_a_scheduled_module_takes_settings_and_no_options(
  fsdp_unrolled: hlo.Module,
):
  target = target_lib.of_module(fsdp_unrolled, _H100, name="scheduled")
  plan = _plan(target)
  assert plan.nccl_settings and not plan.xla.options
  assert verification_lib.verify(plan, target).all_acted
  optimistic = dataclasses.replace(
    plan, xla=config_lib.XlaConfig(options={_GATHER: 0})
  )
  verification = verification_lib.verify(optimistic, target)
  assert [e.knob for e in verification.effects if not e.acted] == [_GATHER]


# What a plan is not for.


@pytest.mark.parametrize("package", ["jax", "jaxlib"])
def test_another_version_is_refused(tuned: _Tuned, package: str):
  with pytest.raises(errors.PlanError) as refused:
    _with(tuned, **{f"{package}_version": "0.9.9"})
  message = str(refused.value)
  installed = {"jax": tuned.plan.jax_version}.get(
    package, tuned.plan.jaxlib_version
  )
  assert f"made with {package} 0.9.9, and {installed} is installed" in message
  assert "make the plan again" in message


@pytest.mark.parametrize(
  ("cluster", "difference"),
  [
    ("2x4xh100", "num_nodes is 2 there and 1 here"),
    ("1x8xa100_80", "gpu.name is a100_80 there and h100 here"),
  ],
)
def test_another_cluster_is_refused_with_a_figure_that_differs(
  tuned: _Tuned, cluster: str, difference: str
):
  other = cluster_lib.parse(cluster)
  with pytest.raises(errors.PlanError) as refused:
    _with(tuned, cluster=other)
  assert f"made for {other.name}, not for 1x8xh100" in str(refused.value)
  assert difference in str(refused.value)


def test_one_figure_is_enough_to_be_another_cluster(tuned: _Tuned):
  node = dataclasses.replace(_H100.node, nic_gbps=1.0)
  with pytest.raises(errors.PlanError, match=r"node\.nic_gbps is 1\.0 there"):
    _with(tuned, cluster=dataclasses.replace(_H100, node=node))


def test_the_same_cluster_by_another_name_is_the_same(tuned: _Tuned):
  renamed = dataclasses.replace(_H100, name="our cluster")
  assert _with(tuned, cluster=renamed).all_acted


def test_another_module_is_refused(tuned: _Tuned, fsdp_step: LowerStep):
  other = target_lib.of_step(fsdp_step(), _H100, name="scan")
  with pytest.raises(errors.PlanError) as refused:
    verification_lib.verify(tuned.plan, other)
  message = str(refused.value)
  assert tuned.plan.module_fingerprint in message
  assert "shapes or its shardings changed" in message
  with pytest.raises(errors.PlanError, match="make the plan again"):
    apply_compile.compile_with(tuned.plan, other)


def test_groups_of_another_step_are_refused(tuned: _Tuned):
  with pytest.raises(errors.PlanError, match=r"not for this step.*absent"):
    _with(tuned, told={"combine_groups": (("absent", "missing"),)})


def test_options_that_xla_refuses_are_an_error_that_names_them(tuned: _Tuned):
  with pytest.raises(errors.CompileError, match="xla_gpu_no_such_option"):
    _with(tuned, told={"options": {"xla_gpu_no_such_option": True}})


# A plan's folder.


@pytest.fixture
def folder(tuned: _Tuned, tmp_path: pathlib.Path) -> pathlib.Path:
  files.write(tuned.plan, tmp_path / "plan")
  return tmp_path / "plan"


def test_the_table_of_a_plan_is_its_own(tuned: _Tuned, folder: pathlib.Path):
  files.check_table(tuned.plan, folder)
  files.check_table(tuned.plan, folder / "plan.json")


def _exchange(table: pathlib.Path) -> None:
  rules = layout.decode(table.read_bytes(), where="").rules
  fewer = dataclasses.replace(rules[0], num_channels=1)
  table.write_bytes(layout.encode([fewer, *rules[1:]]))


def _damage(table: pathlib.Path) -> None:
  table.write_bytes(table.read_bytes()[:100])


def _empty(table: pathlib.Path) -> None:
  table.write_bytes(layout.encode([]))


_TABLES: Mapping[str, tuple[Callable[[pathlib.Path], None], str]] = {
  "exchanged": (_exchange, "holds other settings than"),
  "emptied": (_empty, "holds other settings than"),
  "damaged": (_damage, "nccl_table.bin"),
  "missing": (pathlib.Path.unlink, "Cannot read"),
}


@pytest.mark.parametrize("name", _TABLES)
def test_a_table_that_is_not_the_plans_is_refused(
  tuned: _Tuned, folder: pathlib.Path, name: str
):
  change, words = _TABLES[name]
  change(folder / "nccl_table.bin")
  with pytest.raises(errors.PlanError, match=words) as refused:
    files.check_table(tuned.plan, folder)
  assert "Make the plan again" in str(refused.value)


def test_a_plan_without_settings_has_an_empty_table(tmp_path, tuned: _Tuned):
  plan = dataclasses.replace(tuned.plan, nccl_settings=())
  files.write(plan, tmp_path / "plan")
  files.check_table(plan, tmp_path / "plan")
  assert rules_lib.of_settings(plan.nccl_settings) == ()


# The command.


@dataclasses.dataclass(frozen=True)
class _Outcome:
  status: int
  out: str
  err: str


def _run(*arguments: str) -> _Outcome:
  """What `lagom-xla verify ARGUMENTS` would do."""
  out, err = io.StringIO(), io.StringIO()
  with (
    mock.patch.object(sys, "argv", ["lagom-xla", "verify", *arguments]),
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
    pytest.raises(SystemExit) as ended,
  ):
    cli.run()
  return _Outcome(int(ended.value.code or 0), out.getvalue(), err.getvalue())


@dataclasses.dataclass(frozen=True)
class _OnDisk:
  target: str
  plan: plan_lib.Plan


@pytest.fixture(scope="module")
def on_disk(h100s, tmp_path_factory: pytest.TempPathFactory) -> _OnDisk:
  """A step in a file, and a plan for it whose every knob acts."""
  del h100s
  path = tmp_path_factory.mktemp("steps") / "steps.py"
  path.write_text(_STEPS)
  target = load_lib.load(f"{path}:step", _H100)
  target = fake_target.schedule_only(target)
  plan = _plan(target)
  # Combined, the gathers have other sizes than the settings are for.
  others = [e for e in plan.nccl_settings if e.key.kind != "all-gather"]
  assert others
  plan = dataclasses.replace(
    plan,
    xla=config_lib.XlaConfig(options=_COMBINED),
    nccl_env={},
    nccl_settings=tuple(others),
  )
  return _OnDisk(f"{path}:step", plan)


def _write(plan: plan_lib.Plan, path: pathlib.Path) -> str:
  files.write(plan, path)
  return str(path)


def test_the_command_shows_each_knob(on_disk: _OnDisk, tmp_path):
  plan = _write(on_disk.plan, tmp_path / "plan")
  outcome = _run(plan, on_disk.target, "--cluster=1x8xh100")
  assert (outcome.status, outcome.err) == (0, "")
  text = " ".join(outcome.out.split())
  assert "are those that it was made for" in text
  assert f"{_GATHER}=134217728 (134 MB) instead of " in text
  assert re.search(r": [\d.]+ -> [\d.]+ ms; \d+ all-gathers? became \d+", text)
  known = on_disk.plan.prediction
  assert f"between {in_words.ms(known.default_range_us.low_us)} and" in text
  ends = dataclasses.astuple(known.nccl_settings_gain_us)
  assert f"; 9 times in 10, {in_words.ms_range(*ends)}" in text
  # A lone plan.json is a plan, too.
  assert (
    _run(f"{plan}/plan.json", on_disk.target, "--cluster=1x8xh100") == outcome
  )


def test_the_command_prints_json(on_disk: _OnDisk, tmp_path):
  plan = _write(on_disk.plan, tmp_path / "plan")
  outcome = _run(plan, on_disk.target, "--cluster=1x8xh100", "--format=json")
  assert (outcome.status, outcome.err) == (0, "")
  report = json.loads(outcome.out)
  assert report["module_name"] == on_disk.plan.module_name
  assert report["cluster"] == "1x8xh100"
  assert report["default_us"] > 0 and report["planned_us"] > 0
  known = on_disk.plan.prediction
  for name, known_us in (
    ("default_range_us", known.default_range_us),
    ("gain_us", known.nccl_settings_gain_us),
  ):
    assert report[name] == dataclasses.asdict(known_us)
  knobs = [effect["knob"] for effect in report["effects"]]
  assert len(knobs) == 1 + len(on_disk.plan.nccl_settings)
  assert knobs[0] == _GATHER
  for effect in report["effects"]:
    assert effect.keys() == {
      *("knob", "value", "acted", "evidence"),
      *("replaces", "without_us", "with_us"),
    }
    assert effect["acted"] is True
    assert effect["replaces"]
    assert effect["without_us"] > 0 and effect["with_us"] > 0


def test_the_status_says_that_a_knob_does_nothing(on_disk: _OnDisk, tmp_path):
  plan = _write(
    dataclasses.replace(
      on_disk.plan,
      xla=config_lib.XlaConfig(
        options={**_COMBINED, "xla_gpu_memory_limit_slop_factor": 80}
      ),
    ),
    tmp_path / "plan",
  )
  outcome = _run(plan, on_disk.target, "--cluster=1x8xh100")
  assert (outcome.status, outcome.err) == (1, "")
  row = next(line for line in outcome.out.splitlines() if "slop" in line)
  assert "no effect" in row
  report = _run(plan, on_disk.target, "--cluster=1x8xh100", "--format=json")
  assert report.status == 1
  acted = [e["acted"] for e in json.loads(report.out)["effects"]]
  assert acted.count(False) == 1


@pytest.mark.parametrize(
  ("arguments", "words"),
  [
    (("--cluster=2x4xh100",), "num_nodes is 1 there and 2 here"),
    (("--cluster=1x8xh100", "--arg=size=512"), "shapes or its shardings"),
    (("--cluster=1x8xh1000",), 'unknown GPU "h1000"'),
  ],
)
def test_the_command_refuses_in_one_line(
  on_disk: _OnDisk, tmp_path, arguments: tuple[str, ...], words: str
):
  plan = _write(on_disk.plan, tmp_path / "plan")
  outcome = _run(plan, on_disk.target, *arguments)
  assert (outcome.status, outcome.out) == (2, "")
  assert outcome.err.startswith("lagom-xla: ")
  assert outcome.err.count("\n") == 1
  assert words in outcome.err


def test_the_command_refuses_an_exchanged_table(on_disk: _OnDisk, tmp_path):
  folder = tmp_path / "plan"
  _write(on_disk.plan, folder)
  _exchange(folder / "nccl_table.bin")
  outcome = _run(str(folder), on_disk.target, "--cluster=1x8xh100")
  assert (outcome.status, outcome.out) == (2, "")
  assert "was switched or exchanged" in outcome.err


def test_the_command_refuses_what_is_no_plan(on_disk: _OnDisk, tmp_path):
  outcome = _run(str(tmp_path), on_disk.target, "--cluster=1x8xh100")
  assert (outcome.status, outcome.out) == (2, "")
  assert str(tmp_path / "plan.json") in outcome.err
