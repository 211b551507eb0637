# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings needed before JAX starts, and modules that tests share.

The modules are real: small train steps that XLA's GPU compiler partitions and
schedules for eight H100s, in a second and without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import gc
import os
import sys
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Commands in tests compile in this process, without the user's cache.
os.environ["LAGOM_XLA_WORKERS"] = "0"
os.environ["LAGOM_XLA_CACHE"] = "off"
# Without bytecode files, as in many containers, each process of a test would
# compile all of its imports, and each run would rewrite all assertions.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Test processes share the cores, and BLAS has little work here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# pytest-xdist sets it, and commands would use it as the terminal's width.
os.environ.pop("COLUMNS", None)

import hypothesis
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import browser
from lagom_xla import cluster
from lagom_xla.cli import progress
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.flags import own_flags
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib
import quick

quick.start_cpus(8)
# XLA_FLAGS set by a test count as those at the start of a user's process.
own_flags.as_read = lambda: os.environ.get("XLA_FLAGS", "")
sys.dont_write_bytecode = False

# On a busy machine an example is slow, but not wrong.
hypothesis.settings.register_profile("no_deadline", deadline=None)
hypothesis.settings.load_profile("no_deadline")

# The files with the most CPU seconds, longest first, so that `make test` does
# not end with one process at work on a long file.
_LONGEST = """
  tune_test jobs_test applied_plan_test workloads_test gpu_parts_test
  faults_test live_processes_test llama_example_test tutorial_test
  llama_totals_test
  strands_training_test moe_example_test plans_test live_signals_test
  tuned_examples_test paper_benchmark_test micro_batches_test stopping_test
  workers_test memcpys_test live_benchmark_test groups_test predicted_test
  nnx_test tables_test strands_test accuracy_test gpu_benchmark_test
  verify_test program_search_test networks_test inspect_command_test
  damaged_inputs_test target_output_test tune_command_test page_test
  environment_test
""".split()


# Shapes of the shared train steps, for counts by hand.
_NUM_LAYERS = 4
_NUM_ROWS = 2048
_WIDTH = 512
_HIDDEN = 1024
_NUM_CLASSES = 256

Scheduled = Callable[..., hlo.Module]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
  """Sends the longest files first."""
  rank = {name: n for n, name in enumerate(_LONGEST)}
  items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


def pytest_collection_finish() -> None:
  """Freezes imported objects, and makes garbage collections rarer.

  Each collection also runs JAX's. Tests leave few cycles compared to what JAX
  keeps for each program.
  """
  gc.freeze()
  gc.set_threshold(20_000, 10, 10)


@pytest.fixture(scope="session")
def sizes() -> dict[str, int]:
  """The sizes of the shared train steps."""
  return {
    "layers": _NUM_LAYERS,
    "rows": _NUM_ROWS,
    "width": _WIDTH,
    "hidden": _HIDDEN,
    "classes": _NUM_CLASSES,
  }


@pytest.fixture(scope="session")
def h100s() -> Sequence[jax.Device]:
  """Eight H100s to compile for."""
  if registry.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed: nothing compiles for GPUs")
  return devices_lib.devices(cluster.parse("1x8xh100"))


@pytest.fixture(scope="session")
def scheduled(h100s: Sequence[jax.Device]) -> Scheduled:
  """Compiles a lowered function, with XLA options, up to its schedule."""
  del h100s  # Only skips without a compiler.

  def compile_(
    lowered: jax.stages.Lowered,
    scheduler_profile: str | None = None,
    **options: Any,
  ) -> hlo.Module:
    # Without estimates by default, because counts by hand have none.
    config = config_lib.XlaConfig(
      options={compiler.ESTIMATES: False, **options},
      scheduler_profile=scheduler_profile,
    )
    step = lowered_lib.LoweredStep(lowered, cluster.parse("1x8xh100"))
    return compiler.schedule(step, config)

  return compile_


@pytest.fixture(scope="session")
def fsdp_step(
  h100s: Sequence[jax.Device],
) -> Callable[..., jax.stages.Lowered]:
  """Lowers a train step with parameters and data sharded over all devices."""

  def lower(
    *, unroll: bool = False, devices: Sequence[jax.Device] = h100s
  ) -> jax.stages.Lowered:
    return _lower_train_step(devices, data="x", unroll=unroll)

  return lower


@pytest.fixture(scope="session")
def tp_step(h100s: Sequence[jax.Device]) -> jax.stages.Lowered:
  """A train step whose hidden layers are sharded over all H100s."""
  return _lower_train_step(h100s, data=None, unroll=False)


@pytest.fixture(scope="session")
def fsdp_scan(
  scheduled: Scheduled, fsdp_step: Callable[..., jax.stages.Lowered]
) -> hlo.Module:
  return scheduled(fsdp_step())


@pytest.fixture(scope="session")
def fsdp_unrolled(
  scheduled: Scheduled, fsdp_step: Callable[..., jax.stages.Lowered]
) -> hlo.Module:
  return scheduled(fsdp_step(unroll=True))


@pytest.fixture(scope="session")
def tp_scan(scheduled: Scheduled, tp_step: jax.stages.Lowered) -> hlo.Module:
  return scheduled(tp_step)


@pytest.fixture(
  scope="session", params=["fsdp_scan", "fsdp_unrolled", "tp_scan"]
)
def train_step_module(request: pytest.FixtureRequest) -> hlo.Module:
  """Each of the shared modules in turn."""
  return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def searched_unrolled(fsdp_step: Callable[..., jax.stages.Lowered]) -> Any:
  """Unrolled layers, and the plan of a search for them."""
  import searched_plan

  return searched_plan.search_unrolled(fsdp_step(unroll=True))


@pytest.fixture(scope="session")
def tuned_page(
  h100s: Sequence[jax.Device], tmp_path_factory: pytest.TempPathFactory
) -> Any:
  """A small step, tuned, with its page and its trace."""
  del h100s  # Only says whether there is anything to compile with.
  pytest.importorskip("plotly")
  import pages

  return pages.tune(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def chromium(
  tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[browser.Browser]:
  """A headless browser for a module's tests."""
  if browser.PROGRAM is None:
    pytest.skip("no Chromium opens a page: apt-get install chromium")
  with browser.Browser(tmp_path_factory.mktemp("chromium")) as opened:
    yield opened


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
  """The progress messages of commands from now on, however fast they are."""
  words: list[str] = []
  real = progress.Bar.say

  def say(bar: progress.Bar, what: str) -> None:
    words.append(what)
    real(bar, what)

  monkeypatch.setattr(progress.Bar, "say", say)
  return words


@pytest.fixture
def tuned_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
  """The names of the targets that the tuner tunes from now on."""
  names: list[str] = []
  real = tuner.tune

  def tune(target: target_lib.Target, **options: Any) -> tuning_lib.Tuning:
    names.append(target.name)
    return real(target, **options)

  monkeypatch.setattr(tuner, "tune", tune)
  return names


@pytest.fixture
def failing_tuner(monkeypatch: pytest.MonkeyPatch) -> list[str]:
  """Makes each tuning fail; the list has the attempts."""
  names: list[str] = []

  def tune(
    target: target_lib.Target, **unused_options: Any
  ) -> tuning_lib.Tuning:
    names.append(target.name)
    raise ZeroDivisionError("the search is broken")

  monkeypatch.setattr(tuner, "tune", tune)
  return names


def _lower_train_step(
  devices: Sequence[jax.Device], *, data: str | None, unroll: bool
) -> jax.stages.Lowered:
  """Lowers one step of SGD on a stack of two-layer perceptrons.

  If `data` names a mesh axis, it shards rows and parameters, and every layer
  gathers its parameters (FSDP). Otherwise rows are on all devices, and the
  hidden units are sharded (TP).
  """
  mesh = Mesh(np.array(devices), ("x",))

  def sharded(*spec: str | None) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*spec))

  def shape(sharding: NamedSharding, *sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=sharding)

  hidden = None if data else "x"
  up = sharded(None, data, hidden)
  down = sharded(None, data or hidden, None)
  out = sharded(data, None)
  params = {
    "up": shape(up, _NUM_LAYERS, _WIDTH, _HIDDEN),
    "down": shape(down, _NUM_LAYERS, _HIDDEN, _WIDTH),
    "out": shape(out, _WIDTH, _NUM_CLASSES),
  }
  rows = shape(sharded(data, None), _NUM_ROWS, _WIDTH)

  def gathered(weight: jax.Array, *spec: str | None) -> jax.Array:
    return jax.lax.with_sharding_constraint(weight, sharded(*spec))

  def layer(h: jax.Array, layer_params: Any) -> tuple[jax.Array, None]:
    w_up = gathered(layer_params["up"], None, hidden)
    w_down = gathered(layer_params["down"], hidden, None)
    return h + jax.nn.relu(h @ w_up) @ w_down, None

  def loss(params: Any, h: jax.Array) -> jax.Array:
    layers = {"up": params["up"], "down": params["down"]}
    if unroll:
      for i in range(_NUM_LAYERS):
        h, _ = layer(h, {"up": layers["up"][i], "down": layers["down"][i]})
    else:
      h, _ = jax.lax.scan(layer, h, layers)
    logits = h @ gathered(params["out"], None, None)
    return jnp.mean(jnp.square(logits.astype(jnp.float32)))

  def step(params: Any, h: jax.Array) -> Any:
    value, grads = jax.value_and_grad(loss)(params, h)
    rate = jnp.bfloat16(0.01)
    return jax.tree.map(lambda p, g: p - rate * g, params, grads), value

  jitted = jax.jit(
    step,
    donate_argnums=0,
    out_shardings=({"up": up, "down": down, "out": out}, sharded()),
  )
  return jitted.lower(params, rows)
