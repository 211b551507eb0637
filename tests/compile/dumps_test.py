# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""HLO that is not partitioned yet is scheduled as the step it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib

_CLUSTER = cluster_lib.parse("1x8xh100")


def facts(module: hlo.Module) -> list[Any]:
  """What a schedule communicates, and how much there is beside it."""
  found = [
    (c.kind, c.result_bytes, c.executions) for c in collectives.find(module)
  ]
  return [*sorted(found), module.num_instructions]


def as_proto(lowered: jax.stages.Lowered, folder: pathlib.Path) -> pathlib.Path:
  computation: Any = lowered.compiler_ir("hlo")
  file = folder / "step.hlo.pb"
  file.write_bytes(computation.as_serialized_hlo_module_proto())
  return file


def as_text(lowered: jax.stages.Lowered, folder: pathlib.Path) -> pathlib.Path:
  file = folder / "step.txt"
  file.write_text(lowered.as_text(dialect="hlo"))
  return file


def dumped(
  kind: str,
) -> Callable[[jax.stages.Lowered, pathlib.Path], pathlib.Path]:
  def dump(lowered: jax.stages.Lowered, folder: pathlib.Path) -> pathlib.Path:
    options: dict[str, Any] = {
      "xla_dump_to": str(folder),
      "xla_dump_hlo_as_text": True,
      "xla_dump_hlo_as_proto": True,
    }
    target = target_lib.of_step(lowered, _CLUSTER, name="step")
    target.schedule(config_lib.XlaConfig(options=options))
    (file, *_) = sorted(folder.glob(f"*jit_step.before_optimizations.{kind}"))
    return file

  return dump


@pytest.fixture(params=[True, False], ids=["shardy", "gspmd"])
def partitioner(request: pytest.FixtureRequest) -> Iterator[None]:
  """Lowers for each of XLA's partitioners in turn."""
  before = getattr(jax.config, "jax_use_shardy_partitioner")  # noqa: B009
  jax.config.update("jax_use_shardy_partitioner", request.param)
  yield
  jax.config.update("jax_use_shardy_partitioner", before)


def manual_step(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """A step that leaves some of its sharding to XLA, and does some itself."""
  mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))

  def placed(*spec: str | None) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*spec))

  def total(h: jax.Array) -> jax.Array:
    return jax.lax.psum(h.astype(jnp.float32).sum(), ("x", "y"))

  def step(w: jax.Array, h: jax.Array) -> jax.Array:
    def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
      w = jax.lax.with_sharding_constraint(w, placed(None, "y"))
      return jnp.tanh(h @ w), None

    h, _ = jax.lax.scan(layer, h, w)
    return jax.shard_map(
      total,
      mesh=mesh,
      in_specs=PartitionSpec("x", "y"),
      out_specs=PartitionSpec(),
    )(h)

  w = jax.ShapeDtypeStruct(
    (4, 512, 512), jnp.bfloat16, sharding=placed(None, "x")
  )
  h = jax.ShapeDtypeStruct((1024, 512), jnp.bfloat16, sharding=placed("x"))
  return jax.jit(step).lower(w, h)


def product_step(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """A step in which nothing but its arguments is sharded."""
  rows = NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x"))
  arg = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=rows)

  def step(w: jax.Array, x: jax.Array) -> jax.Array:
    return x @ w

  return jax.jit(step).lower(arg, arg)


def placed_step(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """A step that says where its results are to be."""
  mesh = Mesh(np.array(devices), ("x",))
  columns = NamedSharding(mesh, PartitionSpec(None, "x"))
  rows = NamedSharding(mesh, PartitionSpec("x"))

  def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(w: jax.Array) -> jax.Array:
      return jnp.square(x @ w).astype(jnp.float32).mean()

    value, grad = jax.value_and_grad(loss)(w)
    return w - grad, value

  arg = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16)
  return jax.jit(
    step,
    donate_argnums=0,
    in_shardings=(columns, rows),
    out_shardings=(columns, None),
  ).lower(arg, arg)


@pytest.mark.parametrize("step", [manual_step, placed_step, product_step])
@pytest.mark.usefixtures("partitioner")
def test_a_module_is_partitioned_as_its_step_is(
  h100s: Sequence[jax.Device],
  tmp_path: pathlib.Path,
  step: Callable[..., jax.stages.Lowered],
):
  lowered = step(h100s)
  expected = facts(
    target_lib.of_step(lowered, _CLUSTER, name="step").schedule()
  )
  assert len(expected) > 1  # It communicates.
  target = load.load(str(as_proto(lowered, tmp_path)), _CLUSTER)
  assert facts(target.schedule()) == expected


@pytest.mark.parametrize(
  "write", [as_proto, as_text, dumped("txt"), dumped("hlo.pb")]
)
def test_every_spelling_of_a_train_step_is_partitioned(
  fsdp_step: Callable[..., jax.stages.Lowered],
  fsdp_scan: hlo.Module,
  tmp_path: pathlib.Path,
  write: Callable[[jax.stages.Lowered, pathlib.Path], pathlib.Path],
):
  file = write(fsdp_step(), tmp_path)
  target = load.load(str(file), _CLUSTER)
  assert facts(target.schedule()) == facts(fsdp_scan)


def test_a_module_can_be_read_after_partitioning_too(
  fsdp_step: Callable[..., jax.stages.Lowered],
  fsdp_scan: hlo.Module,
  tmp_path: pathlib.Path,
):
  dumped("txt")(fsdp_step(), tmp_path)
  (file, *_) = tmp_path.glob("*jit_step.after_spmd_partitioner.txt")
  scheduled = load.load(str(file), _CLUSTER).schedule()
  kinds = [
    sorted(c.kind for c in collectives.find(module))
    for module in (scheduled, fsdp_scan)
  ]
  assert kinds[0] == kinds[1]


def test_a_folder_of_dumps_and_what_is_beside_a_module_name_the_module(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path
):
  with pytest.raises(errors.HloError, match=r"the file of your step in it\.$"):
    load.load(str(tmp_path), _CLUSTER)
  file = dumped("txt")(product_step(h100s), tmp_path)
  (tmp_path / "module_0000.jit_init.before_optimizations.txt").touch()
  with pytest.raises(errors.HloError, match=f"in it, such as {file}\\.$"):
    load.load(str(tmp_path), _CLUSTER)
  beside = tmp_path / file.name.replace("before_optim", "thunk_sequence.optim")
  beside.write_text("000: kKernel")
  with pytest.raises(errors.HloError, match=f" The module is in {file}\\.$"):
    load.load(str(beside), _CLUSTER)


def test_a_module_for_another_number_of_devices_names_its_own(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path
):
  file = as_proto(manual_step(h100s), tmp_path)
  with pytest.raises(
    errors.CompileError,
    match=r"jit_step is sharded over 8 devices, and 2x8xh100 has 16\. Name",
  ):
    load.load(str(file), cluster_lib.parse("2x8xh100"))


def test_a_module_that_is_not_partitioned_says_why_it_has_no_forms(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path
):
  target = load.load(str(as_proto(manual_step(h100s), tmp_path)), _CLUSTER)
  assert target.chains() == ()
  form = form_lib.Form(strands="merged")
  assert not target.outcome(form).actions
  with pytest.raises(errors.ProgramError, match="it is HLO that is not part"):
    target.schedule(config_lib.XlaConfig(program=form))


def test_a_module_of_cpus_is_refused():
  def step(w: jax.Array) -> jax.Array:
    return jnp.tanh(w @ w).sum()

  rows = NamedSharding(
    Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x")
  )
  w = jax.ShapeDtypeStruct((1024, 1024), jnp.float32, sharding=rows)
  module = hlo.load(jax.jit(step).lower(w).compile())
  with pytest.raises(
    errors.TargetError,
    match=r"^jit_step was optimized for CPUs \(by .*before_o",
  ):
    target_lib.of_module(module, _CLUSTER, name="step")


def test_a_module_of_tpus_is_refused():
  module = hlo_text.load(
    """
      p = bf16[8,128] parameter(0)
      ROOT doubled = bf16[8,128] add(p, p), backend_config={
        "flag_configs":[],"scoped_memory_configs":[]}
    """.replace("{\n        ", "{")
  )
  with pytest.raises(
    errors.TargetError, match=r"was optimized for TPUs \(by doubled in main"
  ):
    target_lib.of_module(module, _CLUSTER, name="step")
