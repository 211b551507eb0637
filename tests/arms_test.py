# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A search begins with published recipes, too, and is never behind one."""

from __future__ import annotations

import dataclasses
import io
import json

import jax
import pytest
import rich.console

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import tuner
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.costs import lower_bound
from lagom_xla.flags import debug_options
from lagom_xla.flags import recipes
from lagom_xla.passes import hlo
from lagom_xla.report import arms as arms_report
from lagom_xla.report import as_json
from lagom_xla.report import terminal
from lagom_xla.report import tuning_tables
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import joint

H100 = cluster_lib.parse("1x8xh100")
_KIB = 2**10
_DOUBLED = "xla_gpu_enable_while_loop_double_buffering"
_SLOP = "xla_gpu_memory_limit_slop_factor"
_HEURISTIC = "xla_gpu_experimental_enable_heuristic_collective_combining"
_EVERYTHING = {
  "xla_gpu_enable_triton_gemm",
  "xla_disable_hlo_passes",
  _DOUBLED,
}


def _step(kernels_us: float, *, is_full: bool = False) -> hlo.Module:
  """An all-gather that nothing hides, and a kernel.

  Args:
    kernels_us: what the kernel takes.
    is_full: whether arguments take all of the memory.
  """
  start, done = hlo_text.all_gather("all-gather", 256 * _KIB)
  large = "large = f32[64,16384,16384] parameter(1)" if is_full else ""
  return hlo_text.load(f"""
  p = f32[256,256] parameter(0)
  {large}
  {start}
  {done}
  {hlo_text.kernel("kernel", kernels_us)}
  ROOT result = (f32[256,256]) tuple(kernel)
""")


def _target(*fast: str, slow_us: float = 200.0) -> fake_target.FakeTarget:
  """A step that is faster by a sixteenth for each option that is set."""

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    num_set = sum(name in config.options for name in fast)
    return _step(slow_us * (1 - num_set / 16))

  return fake_target.FakeTarget(name="step", cluster=H100, scheduled=schedule)


def _arm(name: str, **options: bool | int | str) -> arms_lib.Arm:
  return arms_lib.Arm(name=name, config=config_lib.XlaConfig(options=options))


def _us(candidate: candidates.Candidate) -> float:
  return candidate.under_nccl_defaults.step_time_us


# Recipes.


@pytest.mark.parametrize("recipe", recipes.RECIPES)
def test_a_recipe_has_its_source_and_is_what_the_installed_jaxlib_takes(recipe):
  assert recipe.source and len(recipe.date) == len("2026-01-01")
  fitted = recipes.as_options(recipe)
  for name, value in fitted.options.items():
    option = debug_options.find(name)
    assert option is not None and option.default != value
  pipelined = [name for name in fitted.options if "pipeline" in name]
  assert len(pipelined) == 2  # That of reduce-scatters is on by itself.
  assert fitted.options[_DOUBLED] is True
  read = recipe.flags.split()
  left_out = [m for m in fitted.messages if m.endswith("It is left out.")]
  assert len(left_out) < len(read)
  for message in left_out:
    assert message.split()[0] in recipe.flags


def test_a_recipe_that_comes_in_sizes_is_taken_in_that_of_the_cluster():
  sizes = {
    num_nodes: {r.num_nodes for r in recipes.for_nodes(num_nodes)} - {None}
    for num_nodes in (1, 3, 8, 128)
  }
  assert sizes == {1: {1}, 3: {2}, 8: {8}, 128: {16}}


def test_arms_are_recipes_and_say_where_they_rest_on_library_products():
  published = arms_lib.known(H100).arms
  assert [a.name for a in published] == [
    r.name for r in recipes.for_nodes(H100.num_nodes)
  ]
  assert all(arm.source for arm in published)
  sets_products = [
    arm.config.options.get("xla_gpu_enable_triton_gemm") is False
    for arm in published
  ]
  assert any(sets_products) and not all(sets_products)
  assert sets_products == [
    any("rests on the cost model" in note for note in arm.notes)
    for arm in published
  ]


def test_on_gpus_library_products_are_measured(monkeypatch):
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  for arm in arms_lib.known(H100).arms:
    assert not any("cost model" in note for note in arm.notes)


def test_with_xla_flags_set_xlas_defaults_are_an_arm(monkeypatch):
  monkeypatch.setenv(
    "XLA_FLAGS", f"--{_SLOP}=80 --xla_force_host_platform_device_count=8"
  )
  plain, *others = arms_lib.known(H100).arms
  option = debug_options.find(_SLOP)
  assert option is not None
  assert plain.config.options == {_SLOP: option.default}
  for arm in others:
    assert arm.config.options[_SLOP] == option.default


# The search.


def test_what_is_kept_is_never_behind_an_arm():
  # No knob sets the three together, and each is a part of the gain.
  target = _target(*_EVERYTHING)
  found = joint.search(target)
  maxtext = found.found(found.arms[0].config)
  assert isinstance(maxtext, candidates.Candidate)
  assert found.fastest_arm is maxtext
  assert _us(maxtext) < _us(found.default)
  for arm in found.arms:
    other = found.found(arm.config)
    assert isinstance(other, candidates.Candidate)
    assert _us(found.best) <= _us(other)
    assert found.best.tuned.step_time_us <= other.tuned.step_time_us


def test_no_plan_beats_what_no_tuning_can_beat():
  # Options change what the kernel takes, so the default's bound is not enough.
  tuning = tuner.tune(_target(*_EVERYTHING, slow_us=400.0))
  assert tuning.timeline_after.step_time_us < lower_bound.us(tuning.before)
  assert tuning.lower_bound_us <= tuning.timeline_after.step_time_us
  predicted = as_json.tuning(tuning)["predicted"]
  assert predicted["lower_bound_us"] == tuning.lower_bound_us


def test_what_is_as_fast_with_fewer_options_is_kept():
  recipe = _arm("recipe", **{_HEURISTIC: True, "xla_a": 1})
  found = joint.search(_target(_HEURISTIC), arms=[recipe])
  assert list(found.best.config.options) == [_HEURISTIC]
  assert _us(found.best) == _us(found.fastest_arm) < _us(found.default)


def test_options_are_searched_from_the_best_arm():
  # Only the recipe's schedule is short of memory.
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    is_full = "xla_a" in config.options
    has_both = config.options.get(_SLOP) == 120 and is_full
    kernels_us = 20.0 if has_both else 40.0 - 2 * is_full
    return _step(kernels_us, is_full=is_full)

  target = fake_target.FakeTarget(name="step", cluster=H100, scheduled=schedule)
  alone = joint.search(target, arms=())
  assert alone.best is alone.default
  found = joint.search(target, arms=[_arm("recipe", xla_a=1)])
  assert found.best.config.options == {"xla_a": 1, _SLOP: 120}


def test_options_are_searched_from_the_default_where_an_arm_is_faster():
  # The recipe keeps the option from gaining.
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    is_recipe = "xla_a" in config.options
    gains = config.options.get(_SLOP) == 120 and not is_recipe
    return _step(200.0 - 3 * is_recipe - 5 * gains, is_full=True)

  target = fake_target.FakeTarget(name="step", cluster=H100, scheduled=schedule)
  found = joint.search(target, arms=[_arm("recipe", xla_a=1)])
  assert _us(found.fastest_arm) < _us(found.default)
  assert found.best.config.options == {_SLOP: 120}


def test_a_default_whose_kernels_alone_take_longer_than_an_arm_is_no_start():
  tried: list[set[str]] = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    tried.append(set(config.options))
    return _step(200.0 - 100 * ("xla_a" in config.options))

  target = fake_target.FakeTarget(name="step", cluster=H100, scheduled=schedule)
  joint.search(target, arms=[_arm("recipe", xla_a=1)])
  assert all("xla_a" in options for options in tried[1:])


def test_more_of_what_no_gpu_can_hold_is_not_compiled():
  tried: list[config_lib.XlaConfig] = []

  def takes(config: config_lib.XlaConfig) -> bool:
    return config.options.get(_SLOP) == 120

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    tried.append(config)
    return _step(200.0 - 5 * (_HEURISTIC in config.options), is_full=True)

  def compile_fully(config: config_lib.XlaConfig) -> lowered_lib.Compilation:
    return lowered_lib.Compilation(
      module=schedule(config),
      compiled=None,
      peak_bytes=H100.gpu.hbm_bytes * (2 if takes(config) else 1),
    )

  target = fake_target.FakeTarget(
    name="step", cluster=H100, scheduled=schedule, compiled=compile_fully
  )
  found = joint.search(target, arms=())
  (refused,) = (c for c in found.others if isinstance(c, candidates.Refused))
  assert refused.is_too_large and takes(refused.config)
  assert _HEURISTIC in found.best.config.options
  assert {tuple(c.options) for c in tried if takes(c)} == {(_SLOP,)}


def test_what_is_slower_than_an_arm_is_not_compiled_to_the_end():
  compiled: list[set[str]] = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    return _step(200.0 - 5 * ("xla_a" in config.options), is_full=True)

  def compile_fully(config: config_lib.XlaConfig) -> lowered_lib.Compilation:
    compiled.append(set(config.options))
    return lowered_lib.Compilation(
      module=schedule(config), compiled=None, peak_bytes=2**30
    )

  target = fake_target.FakeTarget(
    name="step", cluster=H100, scheduled=schedule, compiled=compile_fully
  )
  found = joint.search(target, arms=[_arm("recipe", xla_a=1)])
  scheduled = [set(c.config.options) for c in found.scheduled]
  assert any("xla_a" not in options for options in scheduled[1:])
  assert set() in compiled
  assert all("xla_a" in options for options in compiled if options)


@pytest.mark.parametrize("gains_alone", [True, False])
def test_what_nothing_foretells_is_compiled_again_only_if_it_gained(
  gains_alone,
):
  tried: list[set[str]] = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    tried.append(set(config.options))
    gains = _HEURISTIC in config.options and gains_alone
    # Less than what the all-gather exposes, so that no start is hopeless.
    return _step(200.0 - 2 * gains - 3 * ("xla_a" in config.options))

  target = fake_target.FakeTarget(name="step", cluster=H100, scheduled=schedule)
  found = joint.search(target, arms=[_arm("recipe", xla_a=1)])
  assert {_HEURISTIC, "xla_a"} in tried
  assert ({_HEURISTIC} in tried) == gains_alone
  wanted = {"xla_a", _HEURISTIC} if gains_alone else {"xla_a"}
  assert set(found.best.config.options) == wanted


def test_an_arm_that_xla_refuses_or_no_gpu_can_hold_is_none():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    if "xla_refused" in config.options:
      raise errors.CompileError("no such luck")
    return _step(100.0 if config.options else 200.0)

  target = fake_target.FakeTarget(name="step", cluster=H100, scheduled=schedule)
  refused, large = _arm("refused", xla_refused=1), _arm("large", xla_large=1)
  found = joint.search(target, arms=[refused, large])
  candidate = found.found(large.config)
  assert candidate is found.fastest_arm is not found.default
  assert isinstance(candidate, candidates.Candidate)
  assert found.refused(candidate, "too large").fastest_arm is found.default


def test_an_arm_that_the_device_does_not_hold_is_refused_before_it_is_best():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    is_large = "xla_large" in config.options
    return _step(100.0 if is_large else 200.0, is_full=is_large)

  def compile_fully(config: config_lib.XlaConfig) -> lowered_lib.Compilation:
    is_large = "xla_large" in config.options
    return lowered_lib.Compilation(
      module=schedule(config),
      compiled=None,
      peak_bytes=H100.gpu.hbm_bytes * 2 if is_large else 2**30,
    )

  target = fake_target.FakeTarget(
    name="step", cluster=H100, scheduled=schedule, compiled=compile_fully
  )
  arm = _arm("large", xla_large=1)
  found = joint.search(target, arms=[arm])
  refused = found.found(arm.config)
  assert isinstance(refused, candidates.Refused)
  assert f"of {H100.gpu.hbm_bytes / 1e9:.1f} GB" in refused.reason
  assert found.best is found.fastest_arm is found.default


# The report.


def test_a_report_says_why_no_published_flags_were_tried(monkeypatch):
  def fail(*_: object) -> None:
    raise errors.OptionsError("jaxlib does not say what options it has")

  monkeypatch.setattr(recipes, "for_nodes", fail)
  tuning = tuner.tune(
    dataclasses.replace(
      _target(_DOUBLED), cluster=cluster_lib.parse("5x8xh100")
    )
  )
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=200)
  terminal.show_tuning(console, tuning, [], is_verbose=True)
  assert "No published XLA_FLAGS were tried: jaxlib does not say" in (
    " ".join(stream.getvalue().split())
  )


@pytest.mark.parametrize(
  ("xla_flags", "shown"),
  [("", "today: XLA's defaults"), (f"--{_DOUBLED}=true", "without XLA_FLAGS")],
)
def test_all_arms_are_legible_in_a_terminal_of_80_columns(
  monkeypatch, xla_flags, shown
):
  monkeypatch.setenv("XLA_FLAGS", xla_flags)
  arms = arms_lib.known(H100).arms
  search = joint.search(_target(_DOUBLED), arms=arms)
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=80)
  console.print(arms_report.table(search))
  lines = [line.rstrip() for line in stream.getvalue().splitlines()]
  # A title, a head, and no row that takes two lines.
  assert len(lines) == 2 + 1 + len(arms) + 1
  assert any(shown in line for line in lines)
  for arm in arms:
    found = search.found(arm.config)
    assert isinstance(found, candidates.Candidate)
    (line,) = [x for x in lines if x.startswith(arm.name + " ")]
    assert f" {_us(found) / 1e3:,.2f} " in line


def test_a_report_shows_what_each_arm_is_worth():
  arms = (_arm("first", xla_a=1), _arm("second", xla_b=1))
  tuning = tuner.tune(_target("xla_a"))
  search = joint.search(_target("xla_a"), arms=arms)
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=200)
  console.print(arms_report.table(search))
  text = stream.getvalue()
  assert "today" in text and "the plan" in text
  for arm in arms:
    found = search.found(arm.config)
    assert isinstance(found, candidates.Candidate)
    (line,) = [x for x in text.splitlines() if x.startswith(arm.name)]
    assert f"{_us(found) / 1e3:,.2f}" in line
    assert ("fastest" in line) == (arm.name == "first")
    share = _us(found) / _us(search.default) - 1
    assert f"{share:+.1%}" in line
  terminal.show_tuning(console, tuning, [], is_verbose=True)
  assert "rests on the cost model" in " ".join(stream.getvalue().split())
  printed = json.loads(json.dumps(as_json.tuning(tuning)))["arms"]
  names = [arm.name for arm in tuning.search.arms]
  assert [arm["name"] for arm in printed[1:]] == names
  assert all(arm["step_time_us"] > 0 for arm in printed)


def test_candidates_are_told_by_what_differs_from_an_arm():
  arms = (_arm("recipe", xla_a=1, xla_b=1, xla_c=1),)
  search = joint.search(_target("xla_a"), arms=arms)
  default = search.default
  for options in ({**arms[0].config.options, "xla_c": 2}, {"xla_b": 1}):
    config = config_lib.XlaConfig(options=options)
    search = search.with_candidate(dataclasses.replace(default, config=config))
  tuning = dataclasses.replace(tuner.tune(_target("xla_a")), search=search)
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=200, markup=False)
  console.print(tuning_tables.candidates(tuning))
  rows = [line.partition("  ")[0] for line in stream.getvalue().splitlines()]
  assert {"recipe", "recipe, xla_c=2", "xla_b=1"} <= set(rows)
