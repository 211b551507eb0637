# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arms are settings that users could use anyway: recipes, XLA's defaults."""

from __future__ import annotations

import jax
import pytest

import arm_steps
from lagom_xla.flags import debug_options
from lagom_xla.flags import recipes
from lagom_xla.search.xla import arms as arms_lib


@pytest.mark.parametrize("recipe", recipes.RECIPES)
def test_a_recipe_has_its_source_and_is_what_the_installed_jaxlib_takes(recipe):
  assert recipe.source and len(recipe.date) == len("2026-01-01")
  fitted = recipes.as_options(recipe)
  for name, value in fitted.options.items():
    option = debug_options.find(name)
    assert option is not None and option.default != value
  pipelined = [name for name in fitted.options if "pipeline" in name]
  assert len(pipelined) == 2  # That of reduce-scatters is on by itself.
  assert fitted.options[arm_steps.DOUBLED] is True
  read = recipe.flags.split()
  left_out = [m for m in fitted.messages if m.endswith("It was left out.")]
  assert len(left_out) < len(read)
  for message in left_out:
    assert message.split()[0] in recipe.flags


_TRITON = "xla_gpu_enable_triton_gemm"


def test_a_recipe_that_comes_in_sizes_is_taken_in_that_of_the_cluster():
  sizes = {
    num_nodes: {r.num_nodes for r in recipes.for_nodes(num_nodes)} - {None}
    for num_nodes in (1, 3, 8, 128)
  }
  assert sizes == {1: {1}, 3: {2}, 8: {8}, 128: {16}}


def _products(recipe: recipes.Recipe) -> set[str]:
  return {_TRITON} & recipes.as_options(recipe).options.keys()


def test_arms_are_recipes_and_keep_todays_products():
  published = arms_lib.known(arm_steps.H100).arms
  expected = recipes.for_nodes(arm_steps.H100.num_nodes)
  assert [a.name for a in published] == [r.name for r in expected]
  assert any(map(_products, expected)) and not all(map(_products, expected))
  for arm, recipe in zip(published, expected, strict=True):
    assert arm.source
    assert _TRITON not in arm.config.options
    told = [note for note in arm.notes if f"{_TRITON} is left out" in note]
    assert len(told) == len(_products(recipe))


def test_on_gpus_which_time_them_arms_have_their_products(monkeypatch):
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  for arm, recipe in zip(
    arms_lib.known(arm_steps.H100).arms,
    recipes.for_nodes(arm_steps.H100.num_nodes),
    strict=True,
  ):
    assert _products(recipe) <= arm.config.options.keys()


def test_xla_flags_with_other_products_are_no_reason_for_an_arm(monkeypatch):
  monkeypatch.setenv("XLA_FLAGS", f"--{_TRITON}=false")
  arms = arms_lib.known(arm_steps.H100).arms
  assert all(arm.source and _TRITON not in arm.config.options for arm in arms)


def test_with_xla_flags_set_xlas_defaults_are_an_arm(monkeypatch):
  monkeypatch.setenv(
    "XLA_FLAGS",
    f"--{arm_steps.SLOP}=80 --xla_force_host_platform_device_count=8",
  )
  plain, *others = arms_lib.known(arm_steps.H100).arms
  option = debug_options.find(arm_steps.SLOP)
  assert option is not None
  assert plain.config.options == {arm_steps.SLOP: option.default}
  for arm in others:
    assert arm.config.options[arm_steps.SLOP] == option.default
