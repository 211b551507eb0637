# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arms: the configs that a user could run without us.

What runs today is the default: XLA's own options with the XLA_FLAGS of this
process. The arms are what else there is: XLA's defaults where XLA_FLAGS says
otherwise, and the published recipes (flags/recipes.py). A search compiles each,
so that a report shows what it is worth, and what the search keeps is never
behind any of them (`candidates.Search.fastest_arm`).

Library products in place of Triton's are no arm of their own: on GPUs XLA times
both for each product, so a gain that is predicted for them would not be had.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
import dataclasses
import functools

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import routes
from lagom_xla.costs.nccl import symmetric
from lagom_xla.flags import check
from lagom_xla.flags import collective_routes
from lagom_xla.flags import debug_options
from lagom_xla.flags import environment
from lagom_xla.flags import nccl_channels
from lagom_xla.flags import recipes
from lagom_xla.flags import syntax

_PRODUCTS = "xla_gpu_enable_triton_gemm"
_ON_PRODUCTS = (
  "Ahead of time no product is autotuned: what library products gain or lose"
  " rests on the cost model's figures for both, and on GPUs XLA's autotuner"
  " takes the faster of both for each product anyway."
)
_ON_SYMMETRIC_BUFFERS = (
  "It takes NCCL 2.28 or newer; with 2.29 copies by copy engines overlap no"
  " kernels. The buffers lie outside JAX's pool, for which"
  " XLA_PYTHON_CLIENT_MEM_FRACTION has to leave room. No NCCL setting reaches"
  " these collectives, and a part of it acts only in the XLA_FLAGS with which a"
  " process starts."
)


# Without the policy to take no SM symmetric kernels gather, too, which may be
# faster than copy engines where NVLink's switch multicasts.
_SYMMETRIC: tuple[tuple[str, str, bool | str], ...] = (
  ("symmetric buffers", collective_routes.SYMMETRIC, True),
  (
    "symmetric buffers, no copy engines",
    collective_routes.SYMMETRIC_KINDS,
    "allgather,allreduce,reducescatter",
  ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
  """A config that a user could run without us.

  Attributes:
    name: what reports call it.
    config: as the installed jaxlib has it.
    source: where it is published; "" for what is XLA's own.
    notes: what of it was translated or left out, and what its prediction
      rests on; a sentence each.
    goes_with_others: whether it is tried beside what else gains, too.
  """

  name: str
  config: config_lib.XlaConfig
  source: str = ""
  notes: tuple[str, ...] = ()
  goes_with_others: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
  """The arms that are known for a cluster, beside what runs today.

  Attributes:
    arms: the arms.
    obstacle: why there are none; "" where nothing stood in the way.
  """

  arms: tuple[Arm, ...]
  obstacle: str = ""


def known(cluster: cluster_lib.Cluster) -> Known:
  """The arms for a cluster; none where jaxlib does not show its options."""
  try:
    arms = _known(cluster.num_nodes, environment.xla_flags(), _is_live())
  except (errors.OptionsError, errors.ProbeError) as error:
    return Known(arms=(), obstacle=str(error))
  # One that is stopped early has tried what no recipe has.
  return Known(arms=(*_symmetric(cluster), *arms))


def within_process(cluster: cluster_lib.Cluster) -> tuple[Arm, ...] | None:
  """The arms for a process that runs already; None where none are known.

  Its collectives keep the cap on channels and the windows that XLA_FLAGS gave
  them, whatever an executable has for an option.
  """
  found = known(cluster)
  if found.obstacle:
    return None
  return tuple(
    _under_todays_cap(arm)
    for arm in found.arms
    if arm.config.options.keys().isdisjoint(collective_routes.OF_PROCESS)
  )


def rests_on(options: Collection[str]) -> str:
  """What a prediction of a plan with these options rests on; "" for no more.

  Args:
    options: what the plan sets.
  """
  note = _on_products(options, _is_live())
  return f"{_PRODUCTS}: {note}" if note else ""


def _under_todays_cap(arm: Arm) -> Arm:
  if nccl_channels.OPTION not in arm.config.options:
    return arm
  return dataclasses.replace(
    arm,
    config=arm.config.without_options([nccl_channels.OPTION]),
    notes=(*arm.notes, "The process keeps its cap on channels."),
  )


def _symmetric(cluster: cluster_lib.Cluster) -> tuple[Arm, ...]:
  """Symmetric buffers, where the NCCL that is installed has a use for them."""
  if not symmetric.is_available(cluster):
    return ()
  version = collective_routes.installed_nccl()
  if version is None or version < routes.LEAST_NCCL:
    return ()
  if collective_routes.symmetric({}):
    return ()
  return tuple(
    Arm(
      name=name,
      config=config_lib.XlaConfig(options={option: value}),
      source="openxla/xla pull requests 33613 and 36462",
      notes=(_ON_SYMMETRIC_BUFFERS,),
      goes_with_others=True,
    )
    for name, option, value in _SYMMETRIC
    if debug_options.find(option) is not None
  )


@functools.cache
def _known(num_nodes: int, xla_flags: str, is_live: bool) -> tuple[Arm, ...]:
  reset = _reset(xla_flags)
  found = [_of_recipe(r, reset, is_live) for r in recipes.for_nodes(num_nodes)]
  if reset:
    found.insert(0, _arm("XLA's defaults, without XLA_FLAGS", reset, is_live))
  return tuple(found)


def _reset(xla_flags: str) -> dict[str, debug_options.Value]:
  """The options with which a process without these XLA_FLAGS would start."""
  flags, _ = syntax.parse(xla_flags)
  known_options = debug_options.options()
  return {
    name: known_options[name].default
    for name in recipes.without_defaults(check.values_of(flags))
    if not name.startswith(environment.NOT_OF_THE_STEP)
  }


def _of_recipe(
  recipe: recipes.Recipe,
  reset: Mapping[str, debug_options.Value],
  is_live: bool,
) -> Arm:
  fitted = recipes.as_options(recipe)
  arm = _arm(recipe.name, {**reset, **fitted.options}, is_live)
  return dataclasses.replace(
    arm,
    source=f"{recipe.source}, {recipe.date}",
    notes=(*fitted.messages, *arm.notes),
  )


def _arm(
  name: str, options: Mapping[str, debug_options.Value], is_live: bool
) -> Arm:
  note = _on_products(options, is_live)
  return Arm(
    name=name,
    config=config_lib.XlaConfig(options=dict(options)),
    notes=(note,) if note else (),
  )


def _on_products(options: Collection[str], is_live: bool) -> str:
  return _ON_PRODUCTS if _PRODUCTS in options and not is_live else ""


def _is_live() -> bool:
  return jax.default_backend() == "gpu"
