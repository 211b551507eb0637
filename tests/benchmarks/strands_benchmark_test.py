# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables and the wall clock of benchmarks.strands show what can be true.

Nothing is timed here: two hosts are tested by what they are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import csv
import dataclasses
import functools
import os
import pathlib
import shutil

import jax
import numpy as np
import pytest

from benchmarks import shaped_hosts
from benchmarks import table as table_lib
from benchmarks.live.cpu import behind_products
from benchmarks.strands import __main__ as command
from benchmarks.strands import forms_table
from benchmarks.strands import modules as modules_lib
from benchmarks.strands import settings_table
from benchmarks.strands.wall_clock import table as wall_clock
from benchmarks.strands.wall_clock import train_step
from benchmarks.workloads import architectures
from benchmarks.workloads import layout as layout_lib
from benchmarks.workloads import train_step as workloads
import fake_target
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search import nccl
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation

TWO_IN_FLIGHT = {"xla_gpu_experimental_parallel_collective_overlap_limit": 2}
# Device memory that a step needs as written, and in a form.
_LESS, _MORE = 10**9, 2 * 10**9


def small() -> modules_lib.Module:
  """A module of the table with few and narrow layers."""
  module = modules_lib.MODULES["llama-8b-tp-1x8-acc4"]
  assert isinstance(module.program, workloads.Workload)
  arch = dataclasses.replace(
    module.program.arch,
    num_layers=4,
    d_model=1024,
    num_heads=8,
    num_kv_heads=8,
    d_ffn=2048,
    vocab_size=1024,
  )
  program = dataclasses.replace(module.program, arch=arch, seq_len=2048)
  return dataclasses.replace(module, name="small-tp", program=program)


@pytest.fixture(scope="module")
def module(h100s) -> modules_lib.Module:
  del h100s  # Only says whether there is anything to compile with.
  return small()


@pytest.fixture(scope="module")
def target(module: modules_lib.Module) -> target_lib.Target:
  return module.target()


@pytest.fixture(scope="module")
def search(target: target_lib.Target) -> candidates.Search:
  """A search of the small module with a candidate for each arm."""
  strands = form_lib.Form(strands="paired")
  chain = next(chain for chain in target.chains() if 2 in chain.pieces)
  cut = form_lib.Form(slices={chain.label: 2})
  evaluate = functools.partial(
    evaluation.evaluate_or_raise,
    target=target,
    searcher=nccl.SEARCHERS[nccl.DEFAULT_SEARCHER],
  )
  others = (
    config_lib.DEFAULT.with_options(TWO_IN_FLIGHT),
    config_lib.XlaConfig(program=strands),
    config_lib.XlaConfig(program=cut),
    config_lib.XlaConfig(
      program=dataclasses.replace(strands, slices=cut.slices)
    ),
  )
  return candidates.Search(
    default=evaluate(config_lib.DEFAULT), others=tuple(map(evaluate, others))
  )


@pytest.fixture(scope="module")
def compiled(
  target: target_lib.Target, search: candidates.Search
) -> fake_target.FakeTarget:
  """The target as the search compiled it, with peaks of memory made up."""
  modules = {
    rewriting.key(candidate.config.program): candidate.step.analysis.module
    # The default last: it is what a form stands for without options.
    for candidate in reversed(search.scheduled)
  }

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    return modules[rewriting.key(config.program)]

  def to_the_end(config: config_lib.XlaConfig) -> lowered.Compilation:
    peak_bytes = _LESS if config.program.is_as_written else _MORE
    return lowered.Compilation(
      module=schedule(config), compiled=None, peak_bytes=peak_bytes
    )

  return fake_target.FakeTarget(
    name=target.name,
    cluster=target.cluster,
    scheduled=schedule,
    compiled=to_the_end,
    rewritten=target.outcome,
  )


@pytest.fixture(scope="module")
def arms(
  compiled: fake_target.FakeTarget, search: candidates.Search
) -> forms_table.Arms:
  return forms_table.of_search(compiled, search)


def test_flags_only_is_what_the_tool_keeps_without_the_process(
  search: candidates.Search, arms: forms_table.Arms
):
  default, flags, *_ = search.scheduled
  alone = candidates.Search(default=default, others=(flags,))
  assert arms.flags_only.candidate is alone.best
  assert not arms.flags_only.candidate.config.needs_process


def test_a_form_that_does_not_fit_is_not_the_best(
  compiled: fake_target.FakeTarget, search: candidates.Search
):
  _, _, paired, *_ = search.scheduled
  search = candidates.Search(default=search.default, others=(paired,))
  assert search.best is paired
  gpu = dataclasses.replace(compiled.cluster.gpu, hbm_bytes=_LESS)
  cluster = dataclasses.replace(compiled.cluster, gpu=gpu)
  target = dataclasses.replace(compiled, cluster=cluster)
  found = forms_table.of_search(target, search)
  assert found.best.candidate is search.default
  assert found.best.peak_bytes == _LESS


def test_a_compile_to_the_end_says_what_memory_it_needs(
  target: target_lib.Target, search: candidates.Search
):
  peak_bytes = target.compile().peak_bytes
  assert peak_bytes is not None
  parameters = search.default.step.analysis.module.entry.instructions
  held = sum(
    hlo.shape_bytes(i.shape) for i in parameters if i.opcode == "parameter"
  )
  assert held < peak_bytes < target.cluster.gpu.hbm_bytes


def test_every_arm_is_of_its_kind(
  search: candidates.Search, arms: forms_table.Arms
):
  _, _, *forms = search.scheduled
  assert [arms.strands, arms.slices, arms.both] == forms


def test_strands_run_the_same_products_and_expose_less(
  arms: forms_table.Arms, search: candidates.Search
):
  assert arms.strands is not None

  # In operations: where both strands' products take the same weights, XLA
  # makes one of two.
  def product_flops(step: step_lib.Step) -> float:
    kernels = step.analysis.kernels.values()
    return sum(k.flops * k.executions for k in kernels if k.category == "gemm")

  found = product_flops(arms.strands.step)
  assert found == pytest.approx(product_flops(search.default.step), rel=1e-6)
  assert arms.strands.tuned.total_exposed_us < arms.default.total_exposed_us


def test_a_row_adds_up(module: modules_lib.Module, arms: forms_table.Arms):
  row = forms_table.row(module, arms)
  assert row["lower_bound_ms"] <= row["best_ms"] <= row["flags_only_ms"]
  assert row["flags_only_ms"] <= row["default_ms"]
  assert row["speedup"] == pytest.approx(row["flags_only_ms"] / row["best_ms"])
  assert 0 <= row["exposed_ms"] < row["best_ms"]
  assert row["peak_gb"] == _MORE / 1e9


def test_what_is_exposed_is_told_by_collective(
  module: modules_lib.Module, arms: forms_table.Arms
):
  rows = forms_table.exposed_rows(module, arms)
  total_ms = forms_table.row(module, arms)["exposed_ms"]
  told_ms = sum(r["exposed_ms"] for r in rows)
  # Rows below a thousandth of the step are left out.
  assert 0.9 * total_ms <= told_ms <= total_ms * (1 + 1e-9)
  assert [r["share"] for r in rows] == sorted(
    (r["share"] for r in rows), reverse=True
  )
  for row in rows:
    assert row["num_ranks"] == 8
    # Of a collective that waits for others, as well.
    assert row["alone_ms"] > 0


def test_an_unknown_module_is_refused_with_those_there_are():
  with pytest.raises(SystemExit, match=r"llama-9b is no module; .*llama-8b-tp"):
    command.main(["--only=llama-9b"])


@pytest.mark.parametrize("name", modules_lib.MODULES)
def test_a_modules_name_says_what_it_is(name: str):
  found = modules_lib.MODULES[name]
  assert f"-{found.num_nodes}x8-" in name
  assert found.num_nodes * 8 == found.cluster.num_devices
  if isinstance(found.program, modules_lib.Example):
    assert found.program.arguments["mesh"] == "tp:8" and "-tp-" in name
    assert name.endswith(f"-acc{found.program.arguments['accumulate']}")
    return
  layout = found.program.layout
  assert f"-{layout.kind}-" in name
  assert name.endswith(f"-acc{found.program.num_microbatches}")
  assert layout.data * layout.model == found.cluster.num_devices


@pytest.mark.parametrize(
  ("model", "num_params"),
  [
    (modules_lib.gpt_25b, 25e9),
    # Of its 14.77e9 all but a few thousand.
    (modules_lib.qwen3_14b_like, 14.77e9),
    # A tenth of the layers of Llama 3.1 70B.
    (modules_lib.dhellam_demo, 8.3e9),
  ],
)
def test_a_model_has_as_many_parameters_as_its_name_says(
  model: Callable[[], architectures.Architecture], num_params: float
):
  assert model().num_params == pytest.approx(num_params, rel=2e-2)
  work = workloads.Workload(
    arch=model(),
    layout=layout_lib.Layout(kind="tp", model=4),
    microbatch_size=1,
  )
  _, ((params, _), _) = workloads.train_step(jax.devices()[:4], work)
  counted = sum(leaf.size for leaf in jax.tree.leaves(params))
  assert counted == model().num_params


def test_every_searcher_only_ever_gains_on_a_schedule(
  module: modules_lib.Module, compiled: fake_target.FakeTarget
):
  form = form_lib.Form(strands="paired")
  row = settings_table.row(module, compiled, form)
  for name in nccl.SEARCHERS:
    assert row[f"{name}_ms"] <= row["default_ms"]
    gain = 1 - row[f"{name}_ms"] / row["default_ms"]
    assert row[f"{name}_gain"] == pytest.approx(gain)


_RESULTS = pathlib.Path(command.__file__).parent / "results"
_FIRST, _SECOND, *_, _LAST = modules_lib.MODULES
_TABLES_OF = {
  "forms": forms_table.table_of,
  "exposed": forms_table.exposed_table_of,
  "settings": settings_table.table_of,
}


def _row(
  columns: Sequence[table_lib.Column], module: str, number: float
) -> table_lib.Row:
  return {
    column.field: module
    if column.field == "module"
    else (int(number) if column.form == "d" else number)
    if column.form
    else "as written"
    for column in columns
  }


def _run(
  monkeypatch: pytest.MonkeyPatch, folder: pathlib.Path, module: str, us: float
) -> None:
  """Runs the command for a module, whose figures are all this number."""

  def tables(modules: object) -> list[table_lib.Table]:
    del modules
    return [
      table_of([_row(table_of([]).columns, module, us)])
      for table_of in (forms_table.table_of, forms_table.exposed_table_of)
    ]

  monkeypatch.setattr(forms_table, "tables", tables)
  command.main([f"--only={module}", f"--csv={folder}"])


def _column(folder: pathlib.Path, name: str, field: str) -> list[str]:
  with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
    return [row[field] for row in csv.DictReader(file)]


def test_rows_of_one_module_stand_beside_all_others_in_order(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
  for module, number in ((_LAST, 3.0), (_FIRST, 1.0), (_SECOND, 2.0)):
    _run(monkeypatch, tmp_path, module, number)
  for name in ("forms", "exposed"):
    assert _column(tmp_path, name, "module") == [_FIRST, _SECOND, _LAST]
  assert _column(tmp_path, "forms", "best_ms") == ["1.0", "2.0", "3.0"]


def test_targets_are_those_of_all_rows(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
  for module, number in ((_FIRST, 1.0), (_SECOND, 3.0)):
    _run(monkeypatch, tmp_path, module, number)
  median, *_ = _column(tmp_path, "forms_targets", "found")
  assert median == "2.000x, from 1.000x to 3.000x"


def test_other_columns_are_refused(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
  path = tmp_path / "forms.csv"
  path.write_text("module,best\n", encoding="utf-8")
  with pytest.raises(SystemExit, match=r"forms.csv has other columns"):
    _run(monkeypatch, tmp_path, _FIRST, 1.0)
  assert path.read_text(encoding="utf-8") == "module,best\n"


@pytest.mark.parametrize("name", _TABLES_OF)
def test_rows_that_are_kept_are_written_as_they_were(
  name: str,
  monkeypatch: pytest.MonkeyPatch,
  tmp_path: pathlib.Path,
):
  shutil.copy(_RESULTS / f"{name}.csv", tmp_path)
  before = (tmp_path / f"{name}.csv").read_bytes()
  table_of = _TABLES_OF[name]

  def nothing(modules: object) -> table_lib.Table:
    del modules  # A run that makes no row replaces none.
    return table_of([])

  monkeypatch.setattr(settings_table, "table", nothing)
  monkeypatch.setattr(forms_table, "tables", lambda modules: [nothing(modules)])
  options = ["--settings"] if name == "settings" else []
  command.main([f"--only={_FIRST}", f"--csv={tmp_path}", *options])
  assert (tmp_path / f"{name}.csv").read_bytes() == before


SIZES = train_step.Sizes(tokens=256, num_layers=2, num_microbatches=4)


def in_form(
  lowered: jax.stages.Lowered, strands: form_lib.Strands
) -> jax.stages.Lowered:
  form = form_lib.Form(strands=strands)
  made = rewriting.step(lowered, form)
  assert form.is_as_written or made.outcome.actions
  return made.program


def _lowered(strands: form_lib.Strands) -> jax.stages.Lowered:
  step, specs = train_step.train_step(jax.devices()[:2], SIZES)
  return in_form(step.lower(*specs), strands)


@functools.cache
def _ordered(
  strands: form_lib.Strands,
) -> tuple[jax.stages.Compiled, hlo.Module]:
  """A step with its collectives behind products, and what XLA was given."""
  rewritten: list[bytes] = []

  def rewrite(module: hlo.Module) -> bytes | None:
    found = behind_products.rewrite(module)
    if found is not None:
      rewritten.append(found)
    return found

  with in_compile.rewritten(
    "jit_train_step", rewrite, registry.Stage.POST_SCHEDULER, platform="cpu"
  ):
    compiled = _lowered(strands).compile(
      compiler_options={"xla_embed_ir_in_executable": True}
    )
  (module,) = rewritten
  return compiled, hlo.Module(hlo.hlo_pb2.HloModuleProto.FromString(module))


def _outputs(compiled: jax.stages.Compiled) -> tuple[bytes, ...]:
  """What the wall clock's step gives on two CPU devices."""
  _, specs = train_step.train_step(jax.devices()[:2], SIZES)
  rng = np.random.default_rng(0)
  arguments = jax.tree.map(
    lambda s: jax.device_put(
      rng.normal(scale=0.02, size=s.shape).astype(s.dtype), s.sharding
    ),
    specs,
  )
  found = compiled(*arguments)
  return tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(found))


@pytest.fixture(scope="module")
def as_written() -> tuple[bytes, ...]:
  """What the step gives that nothing was done to."""
  return _outputs(_lowered("none").compile())


@pytest.mark.parametrize("strands", ["none", "paired", "rotated"])
def test_collectives_behind_products_change_no_bit(
  strands: form_lib.Strands, as_written: tuple[bytes, ...]
):
  compiled, _ = _ordered(strands)
  assert _outputs(compiled) == as_written


def test_collectives_stand_right_behind_products_that_they_do_not_need():
  _, module = _ordered("paired")
  num_behind = 0
  for computation in module.computations.values():
    for product, collective, kept in zip(
      computation.instructions,
      computation.instructions[1:],
      computation.instructions[2:],
      strict=False,
    ):
      # One without another product follows its own, as of JAX 0.12.
      if (
        collective.opcode in ("all-gather", "reduce-scatter")
        and behind_products.is_large(
          behind_products.num_multiplications(module, computation, product)
        )
        and product.id not in collective.operand_ids
      ):
        assert kept.opcode == "tuple"
        assert list(kept.operand_ids) == list(product.operand_ids)
        num_behind += 1
  # A layer's two forward, and three of its four in the backward pass, where
  # two strands share the loops.
  assert num_behind >= 4


def launch(**seconds: list[list[float]]) -> wall_clock.Launch:
  return wall_clock.Launch(
    seconds=seconds, is_same=dict.fromkeys(seconds, True), load=1.0
  )


def test_an_interval_is_of_pairs():
  # Rounds differ tenfold, and within each the ratio is the same.
  rounds = [1.0, 10.0, 2.0, 5.0, 3.0]
  found = launch(
    sequential=[rounds, rounds],
    strands=[[0.9 * r for r in rounds], [0.1] * 5],
  )
  ratio = shaped_hosts.ratio([found.seconds], "strands", "sequential")
  assert ratio.ratio == pytest.approx(0.9)
  assert ratio.low == pytest.approx(0.9)
  assert ratio.high == pytest.approx(0.9)


def test_launches_that_differ_widen_an_interval():
  rounds = [1.0] * 10
  launches = [
    launch(sequential=[rounds], strands=[[r * x for r in rounds]]).seconds
    for x in (0.8, 0.9, 1.1, 1.2)
  ]
  ratio = shaped_hosts.ratio(launches, "strands", "sequential")
  assert ratio.ratio == pytest.approx((0.8 * 0.9 * 1.1 * 1.2) ** 0.25)
  assert ratio.low < 0.9 and ratio.high > 1.1


def test_a_form_is_chosen_where_it_surely_gains_and_else_none():
  steady = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.0]
  slow, quick, loud = ([x * r for r in steady] for x in (1.3, 0.9, 0.99))
  loud = [x * (2 if i % 2 else 0.5) for i, x in enumerate(loud)]
  gaining = launch(sequential=[steady], strands=[quick], slices=[slow])
  losing = launch(sequential=[steady], strands=[loud], slices=[slow])
  assert wall_clock.quickest(gaining) == "strands"
  assert wall_clock.quickest(losing) == "sequential"


def test_wall_clock_rows_have_a_ratio_and_its_interval():
  launches = [
    launch(sequential=[[1.0, 1.1]], strands=[[0.9, 1.0]]) for _ in range(2)
  ]
  rows = wall_clock.rows_of("T 512, 200 Mb/s", launches)
  assert [row["form"] for row in rows] == ["strands", "chosen: strands"]
  for row in rows:
    assert row["low"] <= row["ratio"] <= row["high"]
    assert row["over"] == "sequential"


def test_without_root_the_wall_clock_is_skipped_with_one_message(
  monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
  monkeypatch.setattr(os, "geteuid", lambda: 1000)
  with pytest.raises(SystemExit, match=r"--wall-clock skipped: .* need root"):
    command.main(["--wall-clock", "--format=csv"])
  assert capsys.readouterr().out == ""


def test_hosts_and_their_processes_are_gone_after_an_error():
  obstacle = shaped_hosts.obstacle()
  if obstacle is not None:
    pytest.skip(obstacle)
  with pytest.raises(errors.LagomError, match="on purpose"):
    with shaped_hosts.pair_of_hosts(mbit_per_s=100) as pair:
      process = pair.start(0, ["sleep", "600"], {})
      assert process.poll() is None
      raise errors.LagomError("on purpose")
  assert process.poll() is not None
  assert not any(
    os.path.exists(f"/var/run/netns/{name}") for name in pair.names
  )
