# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""HLO modules as targets: each gets the schedule of its original step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import pathlib
from typing import Any
import warnings

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
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib

_CLUSTER = cluster_lib.parse("1x8xh100")


def facts(module: hlo.Module) -> list[Any]:
  """The collectives of a schedule, and the amount of other work."""
  found = [
    (c.kind, c.result_bytes, c.executions) for c in collectives.find(module)
  ]
  return [*sorted(found), module.num_instructions]


def as_proto(lowered: jax.stages.Lowered, folder: pathlib.Path) -> str:
  computation: Any = lowered.compiler_ir("hlo")
  file = folder / "step.hlo.pb"
  file.write_bytes(computation.as_serialized_hlo_module_proto())
  return str(file)


def as_text(lowered: jax.stages.Lowered, folder: pathlib.Path) -> str:
  file = folder / "step.txt"
  file.write_text(lowered.as_text(dialect="hlo"))
  return str(file)


def dumped(
  target: target_lib.Target, folder: pathlib.Path, pattern: str
) -> pathlib.Path:
  """XLA's dump of a step's schedule, with the step's name."""
  options: dict[str, Any] = {
    "xla_dump_to": str(folder),
    "xla_dump_hlo_as_text": True,
    "xla_dump_hlo_as_proto": True,
  }
  target.schedule(config_lib.XlaConfig(options=options))
  (file, *_) = sorted(folder.glob(f"*jit_step.{pattern}"))
  return file


@pytest.fixture(params=[True, False], ids=["shardy", "gspmd"])
def partitioner(request: pytest.FixtureRequest) -> Iterator[None]:
  """Lowers for each of XLA's partitioners in turn."""
  before = getattr(jax.config, "jax_use_shardy_partitioner")  # noqa: B009
  jax.config.update("jax_use_shardy_partitioner", request.param)
  yield
  jax.config.update("jax_use_shardy_partitioner", before)


def over(devices: Sequence[jax.Device], *spec: Any) -> NamedSharding:
  mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
  return NamedSharding(mesh, PartitionSpec(*spec))


def spread(sharding: NamedSharding, *shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)


def manual_step(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """A step that leaves some shardings to XLA, and sets others."""
  w = spread(over(devices, None, "x"), 4, 512, 512)
  h = spread(over(devices, "x"), 1024, 512)
  columns = over(devices, None, "y")

  def total(h: jax.Array) -> jax.Array:
    return jax.lax.psum(h.astype(jnp.float32).sum(), ("x", "y"))

  def step(w: jax.Array, h: jax.Array) -> jax.Array:
    def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
      return jnp.tanh(h @ jax.lax.with_sharding_constraint(w, columns)), None

    h, _ = jax.lax.scan(layer, h, w)
    return jax.shard_map(
      total,
      mesh=columns.mesh,
      in_specs=PartitionSpec("x", "y"),
      out_specs=PartitionSpec(),
    )(h)

  return jax.jit(step).lower(w, h)


def product_step(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """A step that only shards its arguments."""
  arg = spread(over(devices, ("x", "y")), 512, 512)

  def step(w: jax.Array, x: jax.Array) -> jax.Array:
    return x @ w

  return jax.jit(step).lower(arg, arg)


def placed_step(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """A step with shardings for its results."""
  columns = over(devices, None, ("x", "y"))
  rows = over(devices, ("x", "y"))

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
def test_a_module_is_partitioned_like_its_original_step(h100s, tmp_path, step):
  lowered = step(h100s)
  expected = facts(
    target_lib.of_step(lowered, _CLUSTER, name="step").schedule()
  )
  assert len(expected) > 1  # It communicates.
  target = load.load(as_proto(lowered, tmp_path), _CLUSTER)
  assert facts(target.schedule()) == expected


def test_modules_written_by_jax_or_xla_give_the_steps_collectives(
  fsdp_step, fsdp_scan, tmp_path
):
  lowered = fsdp_step()
  again = load.load(as_text(lowered, tmp_path), _CLUSTER).schedule()
  assert facts(again) == facts(fsdp_scan)
  target = target_lib.of_step(lowered, _CLUSTER, name="step")
  for kind in ("txt", "hlo.pb"):
    file = dumped(target, tmp_path, f"before_optimizations.{kind}")
    again = load.load(str(file), _CLUSTER).schedule()
    assert facts(again) == facts(fsdp_scan)
  (file, *_) = tmp_path.glob("*jit_step.after_spmd_partitioner.txt")
  again = load.load(str(file), _CLUSTER).schedule()
  kinds = [
    sorted(c.kind for c in collectives.find(module))
    for module in (again, fsdp_scan)
  ]
  assert kinds[0] == kinds[1]


def test_the_error_of_a_folder_of_dumps_names_the_file_to_load(h100s, tmp_path):
  with pytest.raises(errors.HloError, match=r"the file of your step in it\.$"):
    load.load(str(tmp_path), _CLUSTER)
  target = target_lib.of_step(product_step(h100s), _CLUSTER, name="step")
  file = dumped(target, tmp_path, "before_optimizations.txt")
  again = load.load(str(file), _CLUSTER)
  assert facts(again.schedule()) == facts(target.schedule())
  (tmp_path / "module_0000.jit_init.before_optimizations.txt").touch()
  with pytest.raises(errors.HloError, match=f"in it, such as {file}\\.$"):
    load.load(str(tmp_path), _CLUSTER)


def test_an_unoptimized_module_can_be_scheduled_and_compiled(h100s, tmp_path):
  file = tmp_path / "step.hlo"
  file.write_text(
    hlo_text.text(
      """
        w = f32[8,64] parameter(0)
        x = f32[8,64] parameter(1)
        all = f32[64,64] all-gather(w), replica_groups={{0,1,2,3,4,5,6,7}},
          dimensions={0}, channel_id=1, use_global_device_ids=true
        copied = f32[64,64] copy(all)
        ROOT y = f32[8,64] dot(x, copied),
          lhs_contracting_dims={1}, rhs_contracting_dims={0}
      """,
      header="num_partitions=8",
    )
  )
  target = load.load(str(file), _CLUSTER)
  assert not target.is_read_only
  assert facts(target.schedule())[:-1] == [("all-gather", 4 * 64 * 64, 1)]
  compiled = target.compile()
  # Both parameters, the gathered array and the result at least.
  assert compiled.peak_bytes is not None
  assert compiled.peak_bytes >= 4 * 64 * (8 + 8 + 64 + 8)
  with pytest.raises(
    errors.CompileError,
    match=r"^XLA could not compile for 1x8xh100 with xla_no=1: .*xla_no",
  ):
    target.schedule(config_lib.XlaConfig(options={"xla_no": 1}))
  with pytest.raises(errors.TargetError, match="takes no --arg"):
    load.load(str(file), _CLUSTER, arguments={"model": "8b"})


_GROUPED = """\
HloModule grouped, replica_count={replicas}, num_partitions={partitions}

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  p = f32[4096,4096] parameter(0)
  ROOT r = f32[4096,4096] {collective}
}}
"""


@pytest.mark.parametrize(
  ("replicas", "collective", "groups"),
  [
    (8, "all-reduce(p), replica_groups={}, to_apply=add", [range(8)]),
    (
      2,
      "all-reduce(p), replica_groups={{0,1}}, to_apply=add",
      [(0, 4), (1, 5), (2, 6), (3, 7)],
    ),
    (
      2,
      "all-reduce(p), replica_groups={{0},{1}}, channel_id=1, to_apply=add",
      [range(4), range(4, 8)],
    ),
    (
      2,
      "all-to-all(p), replica_groups={{0,1},{2,3}}, channel_id=1,"
      " dimensions={0}",
      [(0, 1), (2, 3), (4, 5), (6, 7)],
    ),
    (
      2,
      "collective-permute(p), source_target_pairs={{0,1}}",
      [(0, 4), (1, 5), (2, 6), (3, 7)],
    ),
  ],
)
def test_replicas_count_as_devices_like_partitions(
  h100s, tmp_path, replicas, collective, groups
):
  text = _GROUPED.format(
    replicas=replicas, partitions=8 // replicas, collective=collective
  )
  for header in ("grouped", "grouped, is_scheduled=true"):
    file = tmp_path / "step.txt"
    file.write_text(text.replace("grouped", header, 1))
    module = load.load(str(file), _CLUSTER).schedule()
    (found,) = collectives.find(module)
    joined = found.pairs or found.groups
    assert sorted(joined) == [tuple(group) for group in groups]


def test_a_replica_group_with_an_unknown_device_raises_xlas_reason(
  h100s, tmp_path
):
  collective = (
    "all-reduce(p), replica_groups={{0,1,2,30}}, channel_id=1,"
    " use_global_device_ids=true, to_apply=add"
  )
  file = tmp_path / "step.txt"
  file.write_text(
    _GROUPED.format(replicas=1, partitions=8, collective=collective)
  )
  with pytest.raises(
    errors.CompileError, match=r"form: .* not seen in replica"
  ):
    load.load(str(file), _CLUSTER).schedule()


def test_a_scheduled_module_is_only_read(fsdp_scan, monkeypatch):
  def compiles(*args: object, **kwargs: object) -> None:
    raise AssertionError("a compile was started")

  monkeypatch.setattr(compiler, "schedule", compiles)
  monkeypatch.setattr(compiler, "start_before_combining", compiles)
  target = target_lib.of_module(fsdp_scan, _CLUSTER, name="step")
  assert target.is_read_only
  assert target.obstacle == "step is already scheduled"
  told = config_lib.XlaConfig(options={"xla_gpu_autotune_level": 0})
  assert target.schedule() is target.schedule(told) is fsdp_scan
  with pytest.raises(errors.CompileError, match="name a dump before_optim"):
    target.compile()


def test_scheduling_without_a_cuda_plugin_names_what_to_install(monkeypatch):
  module = hlo_text.load(
    "ROOT x = f32[8] parameter(0)", header="num_partitions=8"
  )
  target = target_lib.of_module(module, _CLUSTER, name="step.hlo")
  monkeypatch.setattr(registry, "plugin_path", lambda: None)
  with pytest.raises(
    errors.CompileError,
    match=r"1x8xh100: JAX's CUDA plugin is not installed.*'\.\[aot\]'",
  ):
    target.schedule()


def test_a_module_for_another_number_of_devices_is_refused_naming_both(
  h100s, fsdp_scan, tmp_path
):
  sixteen = cluster_lib.parse("2x8xh100")
  file = as_proto(manual_step(h100s), tmp_path)
  over_8 = r"jit_step {} 8 devices, but 2x8xh100 has 16\. Name"
  with pytest.raises(
    errors.CompileError, match=over_8.format("is sharded over")
  ):
    load.load(file, sixteen)
  with pytest.raises(
    errors.CompileError, match=over_8.format("was partitioned for")
  ):
    target_lib.of_module(fsdp_scan, sixteen, name="step.hlo")


def test_an_unpartitioned_module_says_why_it_has_no_forms(h100s, tmp_path):
  target = load.load(as_proto(manual_step(h100s), tmp_path), _CLUSTER)
  assert target.chains() == ()
  form = form_lib.Form(strands="merged")
  assert not target.outcome(form).actions
  with pytest.raises(errors.ProgramError, match="it is HLO that is not part"):
    target.schedule(config_lib.XlaConfig(program=form))


@pytest.mark.parametrize(
  ("config", "platform"),
  [
    ('{"outer_dimension_partitions":["8"]}', "CPUs"),
    ('{"flag_configs":[],"scoped_memory_configs":[]}', "TPUs"),
  ],
)
def test_a_module_of_another_platform_is_refused(config, platform):
  module = hlo_text.load(
    f"""
      p = bf16[8,128] parameter(0)
      ROOT doubled = bf16[8,128] add(p, p), backend_config={config}
    """
  )
  with pytest.raises(
    errors.TargetError,
    match=rf"was optimized for {platform}, not for GPUs \(see doubled in main"
    ".*before_optim",
  ):
    target_lib.of_module(module, _CLUSTER, name="step")


@pytest.mark.parametrize("call", ["CustomSPMDPartitioning", "InspectSharding"])
def test_a_dump_with_a_python_partitioner_names_the_stage_to_dump(call):
  module = hlo_text.load(
    f"""
      p = bf16[64,64] parameter(0), sharding={{devices=[8,1]<=[8]}}
      ROOT c = bf16[64,64] custom-call(p), custom_call_target=
        "{call}", api_version=API_VERSION_STATUS_RETURNING,
        backend_config="281457329920656"
    """,
    header="num_partitions=8",
  )
  with pytest.raises(
    errors.TargetError,
    match=rf"^step calls .* in Python \({call}: .*after_spmd_partitioner\.$",
  ):
    target_lib.of_module(module, _CLUSTER, name="step")


# Arrays that a step keeps in host memory stay there, however it is loaded. The
# optimizer's state is there: a step moves all of it in and out again.

_WIDTH = 1024
# A device's part of the state: float32, split over eight.
_STATE_BYTES = _WIDTH * _WIDTH * 4 // 8

_STEPS = f"""\
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np

def build(devices, kind, by_method=False):
  mesh = Mesh(np.array(devices), ("data",))
  rows = NamedSharding(mesh, PartitionSpec("data"))
  here = NamedSharding(mesh, PartitionSpec("data"), memory_kind="device")
  if by_method:
    kept = here.with_memory_kind(kind)
  else:
    kept = NamedSharding(mesh, PartitionSpec("data"), memory_kind=kind)

  def step(w, state, x):
    state = jax.device_put(state, here) + jax.grad(
      lambda w: jnp.square(x @ w).mean()
    )(w)
    return w - state, jax.device_put(state, kept)

  def array(sharding):
    shape = ({_WIDTH}, {_WIDTH})
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

  jitted = jax.jit(step, out_shardings=(rows, kept))
  return jitted, (array(rows), array(kept), array(rows))

def on_host(devices):
  return build(devices, "pinned_host")

def by_method(devices):
  return build(devices, "pinned_host", by_method=True)

def on_device(devices):
  return build(devices, "device")

def of_its_own(devices):
  return build(jax.devices(), "pinned_host")

class Lowers:
  def __init__(self, devices):
    self.step, self.args = on_host(devices)
  def lower(self):
    return self.step.lower(*self.args)
"""


@pytest.fixture
def steps(h100s: Sequence[jax.Device], tmp_path: pathlib.Path) -> str:
  del h100s  # Only says whether there is anything to compile with.
  file = tmp_path / "steps.py"
  file.write_text(_STEPS)
  return str(file)


def moved(module: hlo.Module) -> list[tuple[bool, int]]:
  """For each host copy, whether it goes to the host, and its bytes."""
  copies = overlap.analyze(module).host_copies
  return sorted((bool(copy.to_host), copy.num_bytes) for copy in copies)


_BOTH_WAYS = [(False, _STATE_BYTES), (True, _STATE_BYTES)]


@pytest.mark.parametrize("function", ["on_host", "by_method"])
def test_a_sharding_into_host_memory_is_kept_and_reported(steps, function):
  with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    target = load.load(f"{steps}:{function}", _CLUSTER)
  # Where JAX keeps the memory kind, the step itself is tuned, without warning.
  is_lowered_over_cpus = isinstance(target, target_lib.ModuleTarget)
  words = [str(each.message) for each in said]
  assert any("into pinned_host," in w for w in words) == is_lowered_over_cpus
  assert moved(target.schedule()) == _BOTH_WAYS


def test_a_step_with_arrays_only_on_devices_has_no_host_copies(steps):
  target = load.load(f"{steps}:on_device", _CLUSTER)
  assert isinstance(target, target_lib.StepTarget)
  assert not moved(target.schedule())


def test_a_step_that_cannot_be_traced_again_is_refused(steps):
  with pytest.raises(errors.TargetError, match="here: return "):
    load.load(f"{steps}:Lowers", _CLUSTER)


@pytest.mark.parametrize(
  ("stage", "kind"),
  [("before_optimizations", "txt"), ("after_spmd_parti", "hlo.pb")],
)
def test_a_dump_keeps_arrays_in_host_memory(steps, tmp_path, stage, kind):
  target = load.load(f"{steps}:of_its_own", _CLUSTER)
  file = dumped(target, tmp_path, f"{stage}*.{kind}")
  for each in (target, load.load(str(file), _CLUSTER)):
    assert moved(each.schedule()) == _BOTH_WAYS
