# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""`lagom-xla whatif`: one target compared on many clusters."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import json
import pathlib
import re
from typing import Any

import hypothesis
from hypothesis import strategies as st
import jax
import pytest
import rich.console

import browser
from commands import HLO
from commands import ROOT
from commands import check_schema
from commands import run
from commands import run_process
from commands import write_steps
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import xla_kernels
from lagom_xla.passes import hlo
from lagom_xla.report.page import report
from lagom_xla.whatif import cases as cases_lib
from lagom_xla.whatif import comparing
from lagom_xla.whatif import comparison as comparison_lib
from lagom_xla.whatif import shown

# Rows grow with the devices, of which there may be 16 at most. It registers a
# type when it is imported, which JAX refuses a second time.
_WEAK = """\
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np
import whatif_batch

jax.tree_util.register_pytree_node(
  whatif_batch.Batch, lambda b: (b, None), lambda _, b: whatif_batch.Batch(b)
)

def train_step(devices):
  if len(devices) > 16:
    raise ValueError(f"no mesh for {len(devices)} devices")

  @jax.jit
  def step(w, x):
    def loss(w):
      return jnp.sum(jnp.square(jnp.tanh(x @ w[0]) @ w[1]))
    return jax.tree.map(lambda w, g: w - g, w, jax.grad(loss)(w))

  rows = NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x"))
  w = jax.ShapeDtypeStruct((2048, 2048), jnp.float32, sharding=rows)
  x = (512 * len(devices), 2048)
  return step, ((w, w), jax.ShapeDtypeStruct(x, jnp.float32, sharding=rows))
"""
_TOKENS = 4096.0


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  pytest.importorskip("plotly")
  return tmp_path_factory.mktemp("whatif") / "page.html"


@pytest.fixture(scope="module")
def weak(h100s: Sequence[jax.Device], page: pathlib.Path) -> dict[str, Any]:
  """The step with equal rows per device, on one, two and four nodes."""
  (page.parent / "weak.py").write_text(_WEAK)
  (page.parent / "whatif_batch.py").write_text("class Batch(tuple): pass\n")
  outcome = run(
    *("whatif", f"{page.parent / 'weak.py'}:train_step", "--format=json"),
    *("--cluster=2x8xh100,2xp5.48xlarge", "--nodes=1,2,4"),
    *(f"--tokens-per-step={_TOKENS:g}", f"--report={page}"),
  )
  assert outcome.status == 0, outcome.err
  return json.loads(outcome.out)


@pytest.fixture(scope="module")
def by_name(weak: dict[str, Any]) -> dict[str, dict[str, Any]]:
  return {row["cluster"]: row for row in (*weak["points"], *weak["rows"])}


def test_the_docs_name_all_options_of_whatif() -> None:
  text = (ROOT / "docs" / "whatif.md").read_text(encoding="utf-8")
  helped = run("whatif", "--help").out
  named, there = (
    set(re.findall(r"--[a-z-]+[a-z]", words)) - {"--arg"}
    for words in (text, helped)
  )
  # Options that all commands share need not be named.
  everywhere = {"--debug", "--help", "--helpfull", "--quiet", "--verbose"}
  assert named <= there <= named | everywhere


def test_clusters_of_the_same_gpus_share_one_schedule(weak, by_name) -> None:
  check_schema("whatif", weak)
  own, other = by_name["2x8xh100"], by_name["2xp5.48xlarge"]
  assert own["compiled_for"] == other["compiled_for"] == "2x8xh100"
  assert own["figures"]["flops"] == other["figures"]["flops"]
  between_us = [row["figures"]["between_nodes_us"] for row in (own, other)]
  assert 0 < between_us[0] < between_us[1]  # EFA is slower than InfiniBand.
  assert own["figures"]["networks"]
  # One node has no time between nodes and no network to buy.
  alone = by_name["1x8xh100"]["figures"]
  assert (alone["between_nodes_us"], alone["networks"]) == (0, [])
  for figures in filter(None, (row["figures"] for row in by_name.values())):
    assert figures["lower_bound_us"] <= figures["step"]["us"]
    assert bool(figures["plan"]) == (figures["gain"]["us"] > 0)
  assert weak["scaling"].startswith("Weak scaling: from 8 to 16 GPUs")
  assert own["figures"]["per_step"] == 2 * alone["per_step"] == _TOKENS


def test_strong_scaling_has_the_same_examples_per_step_everywhere(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path
) -> None:
  outcome = run(
    *("whatif", write_steps(tmp_path), "--cluster=1x8xh100,1x4xh100"),
    *("--examples-per-step=64", "--search=none", "--format=json"),
  )
  found = json.loads(outcome.out)
  assert found["scaling"].startswith("Strong scaling: from 4 to 8 GPUs")
  figures = [row["figures"] for row in found["rows"]]
  assert [one["per_step"] for one in figures] == [64, 64]
  assert [one["gain"] for one in figures] == [None, None]


def test_a_cluster_on_which_the_target_fails_has_only_a_refusal(
  by_name,
) -> None:
  failed = by_name["4x8xh100"]
  assert failed["figures"] is None
  assert "ValueError: no mesh for 32 devices" in failed["refusal"]
  assert "\n" not in failed["refusal"]


def test_whatif_fails_if_the_target_fails_on_every_cluster(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path
) -> None:
  write_steps(tmp_path)
  target = f"{tmp_path / 'steps.py'}:raises"
  outcome = run("whatif", target, "--cluster=1x8xh100", "--cluster=1x4xh100")
  assert (outcome.status, outcome.out) == (2, "")
  assert "RuntimeError: no data" in outcome.err.splitlines()[-1]


# This program makes its mesh of all devices when it is imported.
_AT_IMPORT = """\
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np

mesh = Mesh(np.array(jax.devices()), ("x",))
rows = NamedSharding(mesh, PartitionSpec("x"))

@jax.jit
def step(w, x):
  return x @ jax.lax.with_sharding_constraint(
    w, NamedSharding(mesh, PartitionSpec())
  )

def step_args(devices, size="1024"):
  assert len(devices) < 32, "no mesh of 32"
  w = jax.ShapeDtypeStruct((int(size), 1024), jnp.bfloat16, sharding=rows)
  return w, w
"""


def test_a_program_with_its_mesh_at_import_is_lowered_for_each_size(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path
) -> None:
  (tmp_path / "mesh.py").write_text(_AT_IMPORT)
  outcome = run_process(
    *("whatif", "mesh.py:step", "--cluster=1x8xh100,1x4xh100,4x8xh100"),
    *("--arg=size=1024", "--format=json", "--search=none"),
    cwd=tmp_path,
  )
  assert outcome.status == 0, outcome.err
  eight, four, refused = json.loads(outcome.out)["rows"]
  assert eight["figures"]["flops"] == four["figures"]["flops"] == 2 * 1024**3
  assert (eight["compiled_for"], four["compiled_for"]) == (
    "1x8xh100",
    "1x4xh100",
  )
  assert (eight["num_gpus"], four["num_gpus"]) == (8, 4)
  # Errors of the other process are reported here.
  assert "AssertionError: no mesh of 32 (mesh.py:" in refused["refusal"]


@pytest.mark.parametrize(
  ("option", "words"),
  [
    ("--cluster=2x8xh1000", "h1000"),
    ("--cluster=,", "--cluster is empty"),
    ("--network-gbps=fast", "is not a number above 0"),
    ("--nodes=0", "'0' is not a list of node counts such as 1,4,16"),
    ("--tokens-per-step=-1", "is not a number above 0"),
  ],
)
def test_invalid_options_are_refused_in_one_line(
  option: str, words: str, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / "step.hlo"
  path.write_text(HLO)
  cluster = () if option.startswith("--cluster") else ("--cluster=1x8xh100",)
  outcome = run("whatif", str(path), *cluster, option)
  assert outcome.status == 2
  assert words in outcome.err.splitlines()[-1]


def _of_module(
  module: hlo.Module, *, stops_at: str = "", num_ahead: int = 0
) -> tuple[list[str], errors.Stopped | None, list[str]]:
  """For a module on four clusters: which have rows, and the order of events."""
  events: list[str] = []

  def load(cluster: cluster_lib.Cluster) -> target_lib.Target:
    events.append(f"load {cluster.name}")
    return target_lib.of_module(module, cluster, name="step")

  def progress(words: str) -> None:
    events.append(words.partition(":")[0])
    if events[-1] == stops_at:
      raise errors.Stopped("Ctrl-C", 130)

  compared, stopped = comparing.compare(
    cases_lib.named("1x8xh100,2x4xh100,1x8xh200,2x4xh200"),
    (),
    load=load,
    target="step",
    search="none",
    num_ahead=num_ahead,
    progress=progress,
  )
  return [row.cluster for row in compared.rows], stopped, events


def test_each_target_is_lowered_while_the_previous_one_compiles(
  fsdp_scan: hlo.Module,
) -> None:
  rows, stopped, events = _of_module(fsdp_scan, num_ahead=1)
  assert (len(rows), stopped) == (4, None)
  assert events == [
    *("load 1x8xh100", "load 2x4xh100", "1x8xh100"),
    *("load 1x8xh200", "2x4xh100", "load 2x4xh200"),
    *("1x8xh200", "2x4xh200"),
  ]


def test_a_stop_keeps_the_rows_found_so_far(fsdp_scan: hlo.Module) -> None:
  rows, stopped, _ = _of_module(fsdp_scan, stops_at="2x4xh100")
  assert rows == ["1x8xh100", "2x4xh100"]
  assert stopped is not None and stopped.is_caught


def test_a_browser_draws_the_curves_without_errors_or_requests(
  chromium: browser.Browser, weak, page: pathlib.Path
) -> None:
  chromium.open(page)
  assert chromium.errors == []
  assert chromium.requests == [page.resolve().as_uri()]
  drawn = "document.querySelectorAll('#{}-plot .points path').length"
  # Two kinds of nodes on one and two nodes; the rates of two clusters.
  num_points = {"step": 4, "throughput": 4, "exposed": 4, "network": 10}
  for name, num in num_points.items():
    assert chromium.evaluate(drawn.format(name)) == num, name
  times_us = chromium.evaluate(
    "[...document.querySelectorAll('#rows [data-us]')]"
    ".map(e => Number(e.dataset.us))"
  )
  assert times_us == [row["figures"]["step"]["us"] for row in weak["rows"]]


@pytest.fixture(scope="module")
def module_file(
  fsdp_scan: hlo.Module, tmp_path_factory: pytest.TempPathFactory
) -> str:
  """A scheduled module of eight devices, as a file."""
  path = tmp_path_factory.mktemp("module") / "step.hlo.pb"
  path.write_bytes(fsdp_scan.proto.SerializeToString())
  return str(path)


def _compared(module_file: str, *arguments: str) -> dict[str, Any]:
  return json.loads(run("whatif", module_file, "--format=json", *arguments).out)


def test_a_module_is_compared_only_on_clusters_of_as_many_gpus(
  module_file: str,
) -> None:
  found = _compared(module_file, "--cluster=2x4xh100,4x4xh100,2x4xh200")
  own, larger, other = found["rows"]
  assert "4x4xh100 has 16" in larger["refusal"]
  assert own["figures"]["step"]["us"] > other["figures"]["step"]["us"]
  assert found["scaling"] == (
    "All have the same number of GPUs, 8, and the same work per step."
  )
  # A full search of a schedule finds the same as a quick one.
  full = _compared(module_file, "--cluster=2x4xh100", "--search=full")
  assert full["rows"][0]["figures"] == own["figures"]
  outcome = run("whatif", module_file, "--cluster=2x4xh100", "--nodes=1,2")
  assert outcome.status == 2
  assert outcome.err.startswith(f"lagom-xla: {module_file} is an HLO module")


def test_each_network_rate_has_its_row(module_file: str) -> None:
  rates = ("--network-gbps=50,200", "--search=none")
  rows = _compared(module_file, "--cluster=2x4xh100", *rates)["rows"]
  assert [row["gbits_per_gpu"] for row in rows] == [50, 200]
  slow, fast = (row["figures"] for row in rows)
  assert slow["step"]["us"] > fast["step"]["us"]
  # The slow row predicts the same time for the fast rate.
  (at,) = (n for n in slow["networks"] if n["gbits_per_gpu"] == 200)
  assert at["step_us"] == fast["step"]["us"]


def test_xla_kernels_span_single_gpu_processes_only_if_jaxlib_can(
  tmp_path: pathlib.Path,
) -> None:
  config = '{"collective_backend_config":{"kernel_strategy":"TRITON_ONE_SHOT"}}'
  (tmp_path / "step.hlo").write_text(
    hlo_text.text(
      "x = f32[16384] parameter(0)\nROOT r = f32[16384] all-reduce(x),"
      f" {hlo_text.ALL}, to_apply=add, backend_config={config}"
    )
  )
  file = str(tmp_path / "step.hlo")
  (one,) = _compared(file, "--cluster=1x8xh100")["rows"]
  assert one["figures"]["run_otherwise"] == (
    "1 all-reduce by an XLA kernel (8 SMs)"
  )
  apart = _compared(file, "--cluster=1x8xh100", "--processes-per-node=8")
  (row,) = apart["rows"]
  spans = xla_kernels.span_processes("all-reduce")
  assert bool(row["figures"]["run_otherwise"]) == spans
  assert (
    any("NCCL settings do not affect" in n for n in apart["notes"]) == spans
  )
  assert (row["figures"]["step"] == one["figures"]["step"]) == spans
  refused = run("whatif", file, "--cluster=1x8xh100", "--processes-per-node=3")
  assert refused.status and "it must divide" in refused.err


def test_exposed_time_is_open_with_calls_that_may_communicate(
  tmp_path: pathlib.Path,
) -> None:
  file = tmp_path / "step.hlo"
  file.write_text(
    hlo_text.text(
      "x = f32[1048576] parameter(0)\n"
      'ROOT r = f32[1048576] custom-call(x), custom_call_target="pfft3d"'
    )
  )
  out = run("whatif", str(file), "--cluster=1x8xh100").out
  assert " 0.0%? " in out
  assert "pfft3d may hold collectives" in out
  assert "steps may take longer (marked ?)" in out


@pytest.fixture(scope="module")
def between(fsdp_scan: hlo.Module) -> step_lib.Step:
  """The FSDP step on two nodes of four GPUs."""
  return step_lib.of_module(fsdp_scan, cluster_lib.parse("2x4xh100"))


_rates = st.floats(min_value=1.0, max_value=3200.0)


def _with_network(step: step_lib.Step, rate_gbits: float) -> step_lib.Step:
  cluster = cases_lib.with_network(step.cluster, rate_gbits)
  return step_lib.Step(step.analysis, cluster, kernels_from=step)


@hypothesis.given(rates=st.tuples(_rates, _rates))
@hypothesis.settings(max_examples=30)
def test_a_faster_network_never_raises_step_time_or_lower_bound(
  between: step_lib.Step, rates: tuple[float, float]
) -> None:
  slow, fast = (_with_network(between, rate) for rate in sorted(rates))
  settings = slow.default
  for key in between.keys:
    slow_us, fast_us = (
      step.predict(key, settings[key]).time_us for step in (slow, fast)
    )
    assert fast_us <= slow_us * (1 + 1e-9), key
  slow_us, fast_us = (
    step.timeline(settings).step_time_us for step in (slow, fast)
  )
  assert fast_us <= slow_us * (1 + 1e-9)
  assert lower_bound.us(fast) <= lower_bound.us(slow)
  for step in (slow, fast):
    assert lower_bound.us(step) <= step.timeline(step.default).step_time_us


def _estimate(us: float) -> report.Estimate:
  return report.Estimate(us=us, low_us=0.9 * us, high_us=1.2 * us)


def _row(
  name: str,
  num_nodes: int,
  *,
  us: float = 1e6,
  flops: float = 1e15,
  per_step: float | None = None,
) -> comparison_lib.Row:
  networks = tuple(
    comparison_lib.AtRate(gbits_per_gpu=400 * factor, step_us=us / factor)
    for factor in (0.5, 1.0, 2.0)
  )
  figures = comparison_lib.Figures(
    step=_estimate(us),
    exposed_us=1e5,
    slowdown_us=1e4,
    between_nodes_us=1e5,
    lower_bound_us=8e5,
    gain=_estimate(1e4),
    plan=("a setting",),
    flops=flops,
    per_step=per_step,
    memory_bytes=10**11,
    run_otherwise="",
    calls_that_may_communicate=(),
    networks=networks,
  )
  return comparison_lib.Row(
    cluster=f"{num_nodes}x{name}",
    series=name,
    num_nodes=num_nodes,
    num_gpus=8 * num_nodes,
    gpu="h100",
    gbits_per_gpu=400.0,
    hbm_bytes=8 * 10**10,
    pool_bytes=6 * 10**10,
    pcie_gbits=384.0,
    fabric="infiniband",
    measured_nodes=10,
    compiled_for=f"{num_nodes}x{name}",
    figures=figures,
    refusal="",
  )


def _refused(row: comparison_lib.Row, why: str) -> comparison_lib.Row:
  return dataclasses.replace(row, figures=None, refusal=why)


def test_all_clusters_are_shown_within_80_columns() -> None:
  points = [_row("p5en.0xlarge", 2**i, per_step=1e6) for i in range(11)]
  refused = _refused(_row("8xb200", 1024), "No. " * 99)
  console = rich.console.Console(width=100)
  with console.capture() as captured:
    compared = comparison_lib.of_rows(
      points[:1], (*points, refused), target="step", search="quick"
    )
    shown.show(console, compared, ("whatif.html",))
  *lines, last = captured.get().splitlines()
  assert max(map(len, lines)) <= 80
  assert last == "Wrote whatif.html"
  # Points beyond measured sizes are starred.
  starred = re.findall(r"(?m)^(\d+)xp5en.0\S+ +400 +\S+\* ", captured.get())
  assert starred == [str(2**i) for i in range(4, 11)]


def _of_curve(
  steps_us: Sequence[float], flops: Sequence[float], **options: Any
) -> comparison_lib.Comparison:
  """A comparison of points, starting at one node and doubling."""
  points = [
    _row("8xh100", 2**i, us=us, flops=count)
    for i, (us, count) in enumerate(zip(steps_us, flops, strict=True))
  ]
  return comparison_lib.of_rows(
    points[:1], points, target="step", search="quick", **options
  )


def test_a_curve_names_the_size_at_which_gpus_drop_below_half_speed() -> None:
  told = _of_curve([1e6, 1.25e6, 2e6, 4e6], [1e15, 2e15, 4e15, 8e15])
  assert any(
    "on 8 nodes a GPU reaches 25% of its speed on 1, and less than half from 8"
    " on" in text
    for text in told.findings
  ), told.findings


def test_work_that_grows_less_than_the_gpus_is_mixed_scaling() -> None:
  told = _of_curve(
    [1e6, 1e6, 1e6], [1e15, 1.5e15, 2e15], unit="tokens", per_step=100.0
  )
  assert told.scaling.startswith("Mixed scaling: from 8 to 32 GPUs, 4 times")
  per_step = [row.figures.per_step for row in told.points if row.figures]
  assert per_step == [100, 150, 200]
  told = _of_curve([1e6, 1e6], [1e15, 0.7e15])
  assert told.scaling.endswith("the program's matmuls shrink to 70.00%.")


def test_tokens_per_step_are_ignored_if_the_first_cluster_fails() -> None:
  rows = (_refused(_row("8xh100", 1), "No mesh."), _row("8xh100", 2))
  told = comparison_lib.of_rows(
    rows, (), target="step", search="none", unit="tokens", per_step=1.0
  )
  assert told.unit is None
  assert any("1x8xh100, which has no figures" in note for note in told.notes)


def test_notes_name_the_search_and_steps_that_exceed_memory() -> None:
  rows = [_row("8xh100", 1)]
  quick, full = (
    " ".join(
      comparison_lib.of_rows(rows, (), target="step", search=search).notes
    )
    for search in ("quick", "full")
  )
  assert "needs 100.0 GB of the 60.0 GB that JAX takes of 80.0 GB" in quick
  assert "--search=full also tries XLA's options" in quick
  assert "--search=full" not in full
