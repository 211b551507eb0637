# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arms: the configs that you could run without lagom_xla.

The default is what runs today: XLA's own options with the XLA_FLAGS of this
process. The arms are the alternatives: XLA's defaults if XLA_FLAGS sets
something else, and the published recipes (flags/recipes.py). A search compiles
each, so a report shows what it is worth, and the search never keeps anything
slower (`candidates.Search.fastest_arm`).

Without GPUs, no arm switches matrix products from Triton to library kernels:
they stay as today. On GPUs, XLA times both for each product, so a gain
predicted without timing would not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import functools

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import routes
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.nccl import symmetric
from lagom_xla.flags import check
from lagom_xla.flags import collective_routes
from lagom_xla.flags import debug_options
from lagom_xla.flags import environment
from lagom_xla.flags import nccl_channels
from lagom_xla.flags import recipes
from lagom_xla.flags import syntax
from lagom_xla.search.xla import knobs

# Options that choose the kernels of matrix products: library, Triton or others.
_CHOOSE_PRODUCTS = frozenset([
  "xla_autotuner_preferred_backend", "xla_gpu_autotune_level",
  "xla_gpu_cublas_fallback", "xla_gpu_cudnn_gemm_fusion_level",
  "xla_gpu_enable_cublaslt", "xla_gpu_enable_triton_gemm",
  "xla_gpu_experimental_autotune_backends",
  "xla_gpu_gemm_rewrite_size_threshold", "xla_gpu_triton_gemm_any",
])  # fmt: skip
_ON_PRODUCTS = (
  "On GPUs XLA times library and Triton kernels for each matmul and takes the"
  " faster one. Without a GPU it times none, so a prediction for one kind alone"
  " would not hold"
)
_ON_SYMMETRIC_BUFFERS = (
  "It needs NCCL 2.28 or newer; with 2.29, copies by copy engines overlap no"
  " kernels. The buffers lie outside JAX's pool: set"
  " XLA_PYTHON_CLIENT_MEM_FRACTION so that there is room. NCCL settings do not"
  " affect these collectives, and part of it works only in the XLA_FLAGS that a"
  " process starts with."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
  """A config that you could run without lagom_xla.

  Attributes:
    name: its name in reports.
    config: the config, as the installed jaxlib spells it.
    source: where it is published; "" for XLA's own.
    notes: what was translated or left out, in sentences.
    is_recipe: whether it is a published recipe.
    goes_with_others: whether to also try it together with options that gain.
  """

  name: str
  config: config_lib.XlaConfig
  source: str = ""
  notes: tuple[str, ...] = ()
  is_recipe: bool = False
  goes_with_others: bool = False

  @property
  def title(self) -> str:
    """Its name in progress lines, which say that a recipe is one."""
    return f"published flags of {self.name}" if self.is_recipe else self.name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
  """The known arms for a cluster, besides what runs today.

  Attributes:
    arms: the arms.
    obstacle: why there are none; "" if they are known.
  """

  arms: tuple[Arm, ...]
  obstacle: str = ""


def known(cluster: cluster_lib.Cluster) -> Known:
  """The arms for a cluster; none if jaxlib does not show its options."""
  try:
    arms = _known(cluster.num_nodes, environment.xla_flags(), _is_live())
  except (errors.OptionsError, errors.ProbeError) as error:
    return Known(arms=(), obstacle=str(error))
  # No recipe has symmetric buffers, and a search may stop early.
  return Known(arms=tuple(map(_changeable, (*_symmetric(cluster), *arms))))


def within_process(cluster: cluster_lib.Cluster) -> tuple[Arm, ...] | None:
  """The arms for a running process; None if they are unknown.

  The process keeps the cap on channels and the windows that XLA_FLAGS set,
  whatever an executable's options say.
  """
  found = known(cluster)
  if found.obstacle:
    return None
  return tuple(
    _under_todays_cap(arm)
    for arm in found.arms
    if arm.config.options.keys().isdisjoint(collective_routes.OF_PROCESS)
  )


def is_decided(arm: Arm) -> bool:
  """Whether every option of an arm has a value, so that it can be compiled."""
  return debug_options.UNSET not in arm.config.options.values()


def decided(arms: Iterable[Arm], step: step_lib.Step) -> Iterator[Arm]:
  """Arms with the values that XLA decides on for a step.

  A compile can set an option over XLA_FLAGS, but cannot unset it.
  """
  is_on = knobs.is_on_if_unset(step.analysis.module, step.cluster.gpu)
  for arm in arms:
    if not is_decided(arm):
      config = arm.config.with_options({knobs.SCHEDULER: is_on})
      arm = dataclasses.replace(arm, config=config)
    yield arm


def todays(config: config_lib.XlaConfig) -> config_lib.XlaConfig:
  """The config to compare with: today's, with this one's product kernels."""
  if _is_live():
    return config_lib.DEFAULT
  chosen = {n: v for n, v in config.options.items() if n in _CHOOSE_PRODUCTS}
  return config_lib.XlaConfig(options=chosen)


def on_products(config: config_lib.XlaConfig) -> str:
  """Why `todays` has these kernels; "" if the config does not choose them."""
  if names := todays(config).options:
    return f"{_ON_PRODUCTS}: both times are with {' and '.join(names)}."
  return ""


def _under_todays_cap(arm: Arm) -> Arm:
  if nccl_channels.OPTION not in arm.config.options:
    return arm
  return dataclasses.replace(
    arm,
    config=arm.config.without_options([nccl_channels.OPTION]),
    notes=(*arm.notes, "The process keeps its cap on channels."),
  )


def _changeable(arm: Arm) -> Arm:
  """An arm without the options that XLA_FLAGS cannot change."""
  lost = [n for n in environment.unchangeable() if n in arm.config.options]
  if not lost:
    return arm
  return dataclasses.replace(
    arm,
    config=arm.config.without_options(lost),
    notes=(
      *arm.notes,
      f"Without its {', '.join(lost)}: {environment.BEATS}.",
    ),
  )


def _symmetric(cluster: cluster_lib.Cluster) -> tuple[Arm, ...]:
  """Symmetric buffers, if the installed NCCL supports them."""
  name = collective_routes.SYMMETRIC
  is_there = debug_options.find(name) is not None
  if not (is_there and symmetric.is_available(cluster)):
    return ()
  version = collective_routes.installed_nccl()
  if version is None or version < routes.LEAST_NCCL:
    return ()
  if collective_routes.symmetric({}):
    return ()
  arm = Arm(
    name="symmetric buffers",
    config=config_lib.XlaConfig(options={name: True}),
    source="openxla/xla pull requests 33613 and 36462",
    notes=(_ON_SYMMETRIC_BUFFERS,),
    goes_with_others=True,
  )
  return (arm,)


@functools.cache
def _known(num_nodes: int, xla_flags: str, is_live: bool) -> tuple[Arm, ...]:
  reset = _reset(xla_flags)
  if not is_live:
    reset = {n: v for n, v in reset.items() if n not in _CHOOSE_PRODUCTS}
  found = [_of_recipe(r, reset, is_live) for r in recipes.for_nodes(num_nodes)]
  if reset:
    name = "XLA's defaults, without XLA_FLAGS"
    config = config_lib.XlaConfig(options=reset)
    found.insert(0, Arm(name=name, config=config))
  return tuple(found)


def _reset(xla_flags: str) -> dict[str, debug_options.Value]:
  """The options that restore the defaults of what XLA_FLAGS changes.

  UNSET is the value of those that XLA decides on by default.
  """
  flags, _ = syntax.parse(xla_flags)
  known_options = debug_options.options()
  return {
    name: known_options[name].default
    for name in debug_options.without_defaults(check.values_of(flags))
    if not name.startswith(environment.NOT_OF_THE_STEP)
  }


def _of_recipe(
  recipe: recipes.Recipe,
  reset: Mapping[str, debug_options.Value],
  is_live: bool,
) -> Arm:
  fitted = recipes.as_options(recipe)
  options, notes = fitted.options, list(fitted.messages)
  left_out = [n for n in options if n in _CHOOSE_PRODUCTS and not is_live]
  if left_out:
    notes.append(f"{_ON_PRODUCTS}: {' and '.join(left_out)} is left out.")
  config = config_lib.XlaConfig(options={**reset, **options})
  return Arm(
    name=recipe.name,
    config=config.without_options(left_out),
    source=f"{recipe.source}, {recipe.date}",
    notes=tuple(notes),
    is_recipe=True,
  )


def _is_live() -> bool:
  return jax.default_backend() == "gpu"
