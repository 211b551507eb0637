# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line: one result on stdout, or one line on stderr and status 2.

Most tests call the console script's function in this process, which saves the
two seconds that a Python with JAX takes to start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import io
import json
import lzma
import os
import pathlib
import re
import subprocess
import sys
from typing import Any
from unittest import mock

import jax
import pytest

from lagom_xla import cli
from lagom_xla import cluster as cluster_lib
from lagom_xla import plan as plan_lib
from lagom_xla.apply import files as files_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load as load_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes import pjrt_transform
from lagom_xla.search.xla import thresholds

_ROOT = pathlib.Path(__file__).parents[1]
_TARGET = str(_ROOT / "examples/llama/train.py") + ":train_step"
_CLUSTER = "--cluster=1x8xh100"
_MODEL = "--arg=model=tiny"

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

def step_args(devices):
  rows = NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x"))
  w = jax.ShapeDtypeStruct((4096, 4096), jnp.float32, sharding=rows)
  return (w, w), w

def not_jitted(w, x):
  return w @ x

def raises(devices):
  raise RuntimeError("no data")
"""

_RAISES_AT = len(_STEPS.splitlines())

_COLLECTIVE = {
  "name": str,
  "kind": str,
  "form": str,
  "computation": str,
  "num_operands": int,
  "operand_bytes": int,
  "result_bytes": int,
  "group_size": int,
  "num_groups": int,
  "spans_nodes": bool,
  "executions": int,
  "overlap": dict,
}
_FINDING = ("flag", "kind", "text", "instead")
_TIMELINE = {
  "step_time_us": float,
  "kernel_us": float,
  "collective_us": float,
  "exposed_us": float,
  "slowdown_us": float,
  "delay_us": float,
  "exposed_us_by_collective": dict,
  "slowdown_us_by_pair": list,
}


@dataclasses.dataclass(frozen=True)
class Outcome:
  status: int
  out: str
  err: str


def run(*arguments: str) -> Outcome:
  """What `lagom-xla ARGUMENTS` would do."""
  out, err = io.StringIO(), io.StringIO()
  with (
    mock.patch.object(sys, "argv", ["lagom-xla", *arguments]),
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
    pytest.raises(SystemExit) as ended,
  ):
    cli.run()
  return Outcome(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def run_process(*arguments: str, **kwargs: Any) -> Outcome:
  """Runs `lagom-xla ARGUMENTS` with nothing set that it should set itself."""
  unset = ("JAX_", "XLA_", "TF_CPP_")
  done = subprocess.run(
    [sys.executable, "-m", "lagom_xla.cli", *arguments],
    env={k: v for k, v in os.environ.items() if not k.startswith(unset)},
    capture_output=True,
    text=True,
    check=False,
    **kwargs,
  )
  return Outcome(done.returncode, done.stdout, done.stderr)


def has_fields(value: Mapping[str, Any], fields: Mapping[str, type]) -> bool:
  """Whether an object has these fields, of these types, and no others."""
  return {k: type(v) for k, v in value.items()} == dict(fields)


@pytest.fixture(scope="module")
def inspected(h100s: Sequence[jax.Device]) -> dict[str, Any]:
  outcome = run("inspect", _TARGET, _CLUSTER, _MODEL, "--format=json")
  assert (outcome.status, outcome.err) == (0, "")
  return json.loads(outcome.out)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp("files")
  text = "HloModule step\n\nENTRY main {\n  ROOT x = f32[] parameter(0)\n}\n"
  (folder / "steps.py").write_text(_STEPS)
  (folder / "no.hlo").write_text("hello\n")
  (folder / "empty.hlo").write_text("")
  (folder / "cut.hlo").write_text(text[:-16])
  (folder / "cut.hlo.xz").write_bytes(lzma.compress(text.encode())[:-20])
  (folder / "eight.hlo").write_text(
    text.replace("step", "step, num_partitions=8", 1)
  )
  spec = cluster_lib.parse("1x8xh100").to_dict()
  del spec["gpu"]["hbm_gbps"]
  (folder / "cluster.json").write_text(json.dumps(spec))
  (folder / "occupied").mkdir()
  (folder / "occupied/notes.txt").write_text("mine")
  return folder


@dataclasses.dataclass(frozen=True)
class Tuned:
  report: dict[str, Any]
  folder: pathlib.Path


@pytest.fixture(scope="module")
def tuned(
  h100s: Sequence[jax.Device],
  files: pathlib.Path,
  tmp_path_factory: pytest.TempPathFactory,
) -> Tuned:
  """With the cost model taken to be right, so that a small step has a plan."""
  folder = tmp_path_factory.mktemp("tuned") / "deep/plan"
  step = f"{files / 'steps.py'}:step"
  with mock.patch.object(uncertainty, "scenarios", return_value=()):
    outcome = run("tune", step, _CLUSTER, "--format=json", f"--out={folder}")
  assert outcome.status == 0
  return Tuned(json.loads(outcome.out), folder)


def test_inspect_prints_the_fields_that_formats_md_names(
  inspected: dict[str, Any],
) -> None:
  assert has_fields(
    inspected,
    {
      "module": dict,
      "collectives": list,
      "totals": dict,
      "gemm_flops": int,
      "overlaps": list,
      "loops_of_unknown_length": list,
    },
  )
  assert has_fields(
    inspected["module"],
    {"name": str, "num_instructions": int, "num_partitions": int},
  )
  assert inspected["collectives"] and inspected["overlaps"]
  for collective in inspected["collectives"]:
    assert has_fields(collective, _COLLECTIVE)
    assert has_fields(
      collective["overlap"], {"num_kernels": int, "num_gemms": int}
    )
  for overlap in inspected["overlaps"]:
    assert has_fields(
      overlap, {"collectives": list, "kernels": list, "executions": int}
    )


def test_totals_are_sums_over_collectives_and_executions(
  inspected: dict[str, Any],
) -> None:
  sums: dict[str, dict[str, int]] = {}
  for c in inspected["collectives"]:
    row = sums.setdefault(
      c["kind"],
      dict.fromkeys(
        ("num_instructions", "num_executions", "operand_bytes", "result_bytes"),
        0,
      ),
    )
    row["num_instructions"] += 1
    row["num_executions"] += c["executions"]
    row["operand_bytes"] += c["executions"] * c["operand_bytes"]
    row["result_bytes"] += c["executions"] * c["result_bytes"]
  assert inspected["totals"] == sums
  assert inspected["module"]["num_partitions"] == 8


def test_overlaps_name_each_async_collective_once(
  inspected: dict[str, Any],
) -> None:
  by_name = {c["name"]: c for c in inspected["collectives"]}
  assert len(by_name) == len(inspected["collectives"])
  listed = [name for o in inspected["overlaps"] for name in o["collectives"]]
  assert sorted(listed) == sorted(
    name for name, c in by_name.items() if c["form"] == "async"
  )
  for overlap in inspected["overlaps"]:
    for name in overlap["collectives"]:
      c = by_name[name]
      assert c["executions"] == overlap["executions"]
      assert c["group_size"] * c["num_groups"] == 8
      assert c["spans_nodes"] is False
      num_kernels = len(overlap["kernels"])
      assert c["overlap"]["num_kernels"] <= num_kernels
      assert c["overlap"]["num_gemms"] <= c["overlap"]["num_kernels"]
  for c in by_name.values():
    if c["form"] == "sync":
      assert c["overlap"] == {"num_kernels": 0, "num_gemms": 0}


def test_the_example_in_formats_md_is_what_inspect_prints(
  inspected: dict[str, Any],
) -> None:
  _, _, rest = (_ROOT / "docs/formats.md").read_text().partition("```json\n")
  example = json.loads(rest.partition("```")[0])
  assert example.keys() == inspected.keys()
  for key in ("totals", "gemm_flops", "loops_of_unknown_length"):
    assert example[key] == inspected[key]
  for key in ("collectives", "overlaps"):
    assert example[key][0].keys() == inspected[key][0].keys()


def test_a_group_over_two_nodes_says_so(h100s: Sequence[jax.Device]) -> None:
  outcome = run(
    "inspect", _TARGET, "--cluster=2x4xh100", _MODEL, "--format=json"
  )
  collectives = json.loads(outcome.out)["collectives"]
  assert collectives and all(c["spans_nodes"] for c in collectives)


def test_an_optimized_module_in_a_file_is_only_read(
  h100s: Sequence[jax.Device],
  files: pathlib.Path,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  step = f"{files / 'steps.py'}:step"
  compiled_for_gpus = load_lib.load(step, cluster_lib.parse("1x8xh100"))
  compiled = compiled_for_gpus.compile().compiled
  assert compiled is not None
  module = str(tmp_path / "step.hlo.txt.xz")
  pathlib.Path(module).write_bytes(
    lzma.compress((compiled.as_text() or "").encode())
  )
  of_step = json.loads(run("inspect", step, _CLUSTER, "--format=json").out)

  def compiles(*args: object, **kwargs: object) -> None:
    raise AssertionError("a compile was started")

  monkeypatch.setattr(compiler, "schedule", compiles)
  monkeypatch.setattr(jax.stages.Lowered, "compile", compiles)
  outcome = run("inspect", module, _CLUSTER, "--format=json")
  assert outcome.err == ""
  assert len(of_step["overlaps"]) > 0
  assert _essence(json.loads(outcome.out)) == _essence(of_step)
  # What is optimized already has no XLA options left to try.
  plan = f"--out={tmp_path / 'plan'}"
  report = json.loads(run("tune", module, _CLUSTER, plan, "--format=json").out)
  assert len(report["candidates"]) == 1
  assert report["peak_bytes"] == {"before": None, "after": None}
  assert report["plan"]["xla"]["options"] == {}


def _essence(report: dict[str, Any]) -> dict[str, Any]:
  """What the steps behind XLA's scheduler leave as it is.

  They may add a copy, and from JAX 0.11 on they print start and done of a sync
  collective as one instruction.
  """
  module = {
    k: v for k, v in report["module"].items() if k != "num_instructions"
  }
  collectives = [
    {k: v for k, v in c.items() if k != "name" or c["form"] == "async"}
    for c in report["collectives"]
  ]
  return {**report, "module": module, "collectives": collectives}


def test_tune_prints_the_fields_that_formats_md_names(tuned: Tuned) -> None:
  report = tuned.report
  assert has_fields(
    report,
    {
      "plan": dict,
      "predicted": dict,
      "peak_bytes": dict,
      "effects": list,
      "candidates": list,
      "num_predicted": int,
      "num_trials": int,
      "stopped": type(None),
    },
  )
  assert has_fields(report["peak_bytes"], {"before": int, "after": int})
  predicted = report["predicted"]
  assert has_fields(
    predicted, {"before": dict, "after": dict, "lower_bound_us": float}
  )
  assert predicted["before"]["step_time_us"] >= predicted["lower_bound_us"]
  for timeline in (predicted["before"], predicted["after"]):
    assert has_fields(timeline, _TIMELINE)
    assert timeline["step_time_us"] == pytest.approx(
      timeline["kernel_us"] + timeline["exposed_us"] + timeline["slowdown_us"]
    )
    assert timeline["exposed_us"] == pytest.approx(
      sum(timeline["exposed_us_by_collective"].values())
    )
    pairs = timeline["slowdown_us_by_pair"]
    assert timeline["slowdown_us"] == pytest.approx(
      sum(pair["slowdown_us"] for pair in pairs)
    )
  for candidate in report["candidates"]:
    assert has_fields(
      candidate,
      {
        "program": dict,
        "rewrites": list,
        "left_alone": list,
        "xla_options": dict,
        "combine_groups": type(None),
        "has_scheduler_profile": bool,
        "reordered": list,
        "failure": type(None),
        "step_time_us": float,
        "tuned_step_time_us": float,
        "gain_us": dict,
        "obstacle": str,
        "num_trials": int,
      },
    )
    assert has_fields(candidate["gain_us"], {"low_us": float, "high_us": float})


def test_a_tuned_step_is_predicted_no_slower_than_the_default(
  tuned: Tuned,
) -> None:
  before = tuned.report["predicted"]["before"]["step_time_us"]
  after = tuned.report["predicted"]["after"]["step_time_us"]
  prediction = tuned.report["plan"]["prediction"]
  assert after <= before
  assert prediction["default_us"] == before
  assert prediction["nccl_settings_us"] == after
  assert prediction["xla_us"] <= before
  assert prediction["nccl_env_us"] <= prediction["xla_us"]
  for part in ("xla", "nccl_env", "nccl_settings"):
    assert prediction[f"{part}_gain_us"]["low_us"] >= 0
  known = prediction["default_range_us"]
  assert known["low_us"] <= before <= known["high_us"]
  default, *_ = tuned.report["candidates"]
  assert default["xla_options"] == {}
  assert default["step_time_us"] == before
  for candidate in tuned.report["candidates"]:
    assert candidate["tuned_step_time_us"] <= candidate["step_time_us"]
  assert tuned.report["num_trials"] == sum(
    c["num_trials"] for c in tuned.report["candidates"]
  )


def test_every_knob_of_a_plan_has_its_effect_listed(tuned: Tuned) -> None:
  plan, effects = tuned.report["plan"], tuned.report["effects"]
  for effect in effects:
    assert has_fields(
      effect, {"knob": str, "value": str, "acted": bool, "evidence": str}
    )
  num_knobs = len(plan["xla"]["options"])
  num_knobs += len(plan["nccl_env"]) + len(plan["nccl_settings"])
  assert len(effects) == num_knobs > 0
  assert all(effect["acted"] for effect in effects)


def test_tune_writes_a_plans_folder(tuned: Tuned) -> None:
  assert sorted(path.name for path in tuned.folder.iterdir()) == [
    "env.sh",
    "nccl_table.bin",
    "plan.json",
  ]
  written = json.loads((tuned.folder / "plan.json").read_text())
  assert written == tuned.report["plan"]


def test_text_says_that_times_are_predicted_and_stderr_each_candidate(
  h100s: Sequence[jax.Device], files: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  plan = tmp_path / "plan"
  step = f"{files / 'steps.py'}:step"
  outcome = run("tune", step, _CLUSTER, f"--out={plan}")
  assert outcome.status == 0
  first, *candidates, _, last = outcome.err.splitlines()
  assert re.fullmatch(r" *[\d.]+ s  XLA's defaults: [\d.]+ ms", first)
  assert all(re.search(r": [\d.]+ ms \([+-].*%\)$", c) for c in candidates)
  assert last.endswith("full compile with the plan")
  assert "Predicted step time" in outcome.out
  assert "(not measured)" in outcome.out
  assert f"Wrote {plan / 'plan.json'}" in outcome.out


@pytest.fixture
def plan_with_options(tuned: Tuned, tmp_path: pathlib.Path) -> pathlib.Path:
  plan = dataclasses.replace(
    plan_lib.load(tuned.folder),
    xla=config_lib.XlaConfig(
      options=dict.fromkeys(thresholds.OPTIONS.values(), 2**22)
    ),
    nccl_env={"NCCL_MAX_CTAS": "8"},
  )
  folder = tmp_path / "plan"
  files_lib.write(plan, folder)
  return folder


def test_flags_can_be_sourced_and_keep_what_was_set(
  plan_with_options: pathlib.Path,
) -> None:
  outcome = run("flags", str(plan_with_options))
  assert (outcome.status, outcome.err) == (0, "")
  done = subprocess.run(
    ["bash", "-c", 'source <(cat) && echo "$XLA_FLAGS|$NCCL_MAX_CTAS"'],
    input=outcome.out,
    env={"XLA_FLAGS": "--xla_first=1", "PATH": os.environ["PATH"]},
    capture_output=True,
    text=True,
    check=True,
  )
  flags, _, channels = done.stdout.strip().partition("|")
  assert channels == "8"
  first, *others = flags.split()
  assert first == "--xla_first=1"
  assert sorted(others) == sorted(
    f"--{option}={2**22}" for option in thresholds.OPTIONS.values()
  )


def test_the_installed_jaxlib_knows_every_flag_that_is_printed(
  plan_with_options: pathlib.Path,
) -> None:
  # XLA ends a process that has a flag in XLA_FLAGS which it does not know.
  script = (
    f'source {plan_with_options}/env.sh; exec "$PYTHON" -c'
    " 'import jax; print(jax.jit(lambda x: x + 1)(1))'"
  )
  done = subprocess.run(
    ["bash", "-c", script],
    env={**os.environ, "PYTHON": sys.executable, "XLA_FLAGS": ""},
    capture_output=True,
    text=True,
    check=False,
  )
  assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
  command = f"{sys.executable} -m lagom_xla.cli clusters --format=json"
  done = subprocess.run(
    f"({command}; echo status $? >&2) | true",
    shell=True,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.stderr == "status 0\n"


def test_clusters_lists_what_cluster_takes() -> None:
  rows = json.loads(run("clusters", "--format=json").out)
  for row in rows:
    parsed = cluster_lib.parse(row["name"].replace("NODES", "2"))
    assert parsed.gpus_per_node == row["gpus_per_node"]
    assert parsed.node.fabric == row["fabric"]
  assert {"NODESx4xgb200", "NODESxp5.48xlarge", "lagom_a"} <= {
    row["name"] for row in rows
  }
  text = run("clusters").out
  assert all(row["name"] in text for row in rows)


def test_flags_of_a_plan_that_changes_nothing_set_nothing(
  tuned: Tuned, tmp_path: pathlib.Path
) -> None:
  plan = dataclasses.replace(
    plan_lib.load(tuned.folder), xla=config_lib.DEFAULT, nccl_env={}
  )
  files_lib.write(plan, tmp_path / "plan")
  outcome = run("flags", str(tmp_path / "plan/plan.json"))
  assert outcome.status == 0
  assert all(line.startswith("#") for line in outcome.out.splitlines())


def test_flags_are_checked_and_the_status_says_whether_xla_starts() -> None:
  good = run("flags", "--check", "--xla_gpu_autotune_level=2")
  assert (good.status, good.err) == (0, "")
  bad = run("flags", "--check", "--xla_gpu_graph_level=0 --xla_dump_to=a")
  assert (bad.status, bad.err) == (1, "")
  assert "unknown: --xla_gpu_graph_level=0" in bad.out
  assert "--xla_gpu_enable_command_buffer= --xla_dump_to=a" in bad.out
  # What comes behind --check are never flags of this program.
  for flags in ("", "--help", "--flagfile=absent", "xla_gpu_autotune_level=2"):
    report = json.loads(run("flags", "--check", flags, "--format=json").out)
    assert [f["flag"] for f in report["findings"]] == [flags][: bool(flags)]


def test_a_check_prints_the_fields_that_formats_md_names() -> None:
  outcome = run("flags", "--check", "--xla_no=1", "--format=json")
  report = json.loads(outcome.out)
  assert has_fields(
    report,
    {
      "jaxlib_version": str,
      "num_flags": int,
      "findings": list,
      "suggestion": str,
      "is_fatal": bool,
    },
  )
  (finding,) = report["findings"]
  assert has_fields(finding, dict.fromkeys(_FINDING, str))
  assert (outcome.status, report["is_fatal"]) == (1, True)


def test_a_check_survives_flags_that_would_end_it() -> None:
  flags = "--xla_that_ends_a_process=1"
  done = subprocess.run(
    [sys.executable, "-m", "lagom_xla.cli", "flags", "--check", flags],
    env={**os.environ, "XLA_FLAGS": flags},
    capture_output=True,
    text=True,
    check=False,
  )
  assert (done.returncode, done.stderr) == (1, "")
  assert flags in done.stdout


def test_merged_flags_can_be_sourced_and_say_where_each_is_from(
  plan_with_options: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  first, second, third = sorted(thresholds.OPTIONS.values())
  given = f"--{second}=1 --xla_dump_to='a b' --xla_gpu_graph_level=0"
  monkeypatch.setenv("XLA_FLAGS", given)
  outcome = run("flags", str(plan_with_options), "--merge")
  assert (outcome.status, outcome.err) == (0, "")
  assert f"# --{second}={2**22}  from the plan, in place of" in outcome.out
  done = subprocess.run(
    ["bash", "-c", 'source <(cat) && echo "$XLA_FLAGS|$NCCL_MAX_CTAS"'],
    input=outcome.out,
    env={"XLA_FLAGS": given, "PATH": os.environ["PATH"]},
    capture_output=True,
    text=True,
    check=True,
  )
  planned = " ".join(f"--{name}={2**22}" for name in (first, second, third))
  assert done.stdout.strip() == f'--xla_dump_to="a b" {planned}|8'
  merged = json.loads(
    run("flags", str(plan_with_options), "--merge", "--format=json").out
  )
  assert [entry["source"] for entry in merged["entries"]] == [
    "environment",
    *["plan"] * 3,
  ]
  assert f"{merged['xla_flags']}|8" == done.stdout.strip()


def test_a_plan_for_another_version_is_fitted_to_this_one(
  plan_with_options: pathlib.Path,
) -> None:
  plan = dataclasses.replace(
    plan_lib.load(plan_with_options),
    xla=config_lib.XlaConfig(
      options={"xla_gpu_graph_level": 0, "xla_gpu_autotune_level": 2}
    ),
  )
  files_lib.write(plan, plan_with_options)
  comment, line, _ = run("flags", str(plan_with_options)).out.splitlines()
  assert comment.startswith("# xla_gpu_graph_level is not an option of jaxlib ")
  assert line.endswith("--xla_gpu_autotune_level=2")


@pytest.mark.parametrize(
  ("command", "example"),
  [
    ((), "lagom-xla inspect train.py:train_step --cluster=1x8xh100"),
    (("inspect",), "lagom-xla inspect train.py:train_step --cluster=1x8xh100"),
    (("tune",), "lagom-xla tune train.py:train_step --cluster=16x8xh100"),
    (("flags",), "source <(lagom-xla flags plan)"),
    (("flags",), 'lagom-xla flags --check "$XLA_FLAGS"'),
  ],
)
def test_help_shows_examples(command: tuple[str, ...], example: str) -> None:
  outcome = run(*command, "--help")
  assert (outcome.status, outcome.err) == (0, "")
  assert "examples:" in outcome.out
  assert example in outcome.out


@pytest.mark.parametrize(
  "arguments",
  [
    (),
    ("inspect", "step.py:step"),
    ("tune",),
    ("flags",),
    ("flags", "--check"),
    ("flags", "plan", "--check", ""),
    ("flags", "--check", "", "--merge"),
    ("guess",),
  ],
)
def test_a_wrong_usage_is_shown_the_right_one(
  arguments: tuple[str, ...],
) -> None:
  outcome = run(*arguments)
  assert outcome.status == 2
  assert outcome.out == ""
  assert outcome.err.startswith("usage: lagom-xla")


@pytest.mark.parametrize(
  ("arguments", "words"),
  [
    (("cut.hlo.xz", _CLUSTER), "cut.hlo.xz is damaged or truncated"),
    (("cut.hlo", _CLUSTER), "cut.hlo"),
    (("no.hlo", _CLUSTER), "no.hlo is neither HLO text"),
    (("empty.hlo", _CLUSTER), "empty.hlo is empty"),
    (("absent.hlo", _CLUSTER), "absent.hlo: No such file"),
    ((".", _CLUSTER), "Is a directory"),
    (("eight.hlo", "--cluster=1x4xh100"), "for 8 devices, and 1x4xh100 has 4"),
    (("steps.py:raises", "--cluster=1x8xh1000"), 'unknown GPU "h1000"'),
    (("steps.py:raises", "--cluster=elsewhere"), "'elsewhere'"),
    (("steps.py:raises", "--cluster=cluster.json"), "hbm_gbps is missing"),
    (
      ("steps.py:raises", _CLUSTER),
      f"RuntimeError: no data (steps.py:{_RAISES_AT})",
    ),
    (("steps.py:not_jitted", _CLUSTER), "is not jitted: wrap it in jax.jit"),
    (("steps.py:absent", _CLUSTER), "steps.py defines no absent"),
    (("absent.py:step", _CLUSTER), "There is no file absent.py"),
    (("steps.py:raises", _CLUSTER, "--arg=model"), "is not NAME=VALUE"),
    (
      (_TARGET, _CLUSTER, _MODEL, "--arg=mesh=fsdp:4"),
      "takes 4 devices and there are 8",
    ),
  ],
)
def test_bad_input_gets_one_line_and_touches_no_plan(
  h100s: Sequence[jax.Device],
  files: pathlib.Path,
  tuned: Tuned,
  monkeypatch: pytest.MonkeyPatch,
  arguments: tuple[str, ...],
  words: str,
) -> None:
  monkeypatch.chdir(files)
  before = {p.name: p.read_bytes() for p in tuned.folder.iterdir()}
  for folder in (tuned.folder, files / "fresh"):
    outcome = run("tune", *arguments, f"--out={folder}")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("lagom-xla: ")
    assert words in outcome.err
    assert outcome.err.count("\n") == 1
  assert {p.name: p.read_bytes() for p in tuned.folder.iterdir()} == before
  assert not (files / "fresh").exists()
  assert run("inspect", *arguments) == outcome


def test_a_folder_with_something_else_in_it_is_left_alone(
  files: pathlib.Path,
) -> None:
  occupied = files / "occupied"
  outcome = run("tune", _TARGET, _CLUSTER, _MODEL, f"--out={occupied}")
  assert outcome.status == 2
  assert outcome.err.startswith(f"lagom-xla: {occupied} ")
  assert [p.name for p in occupied.iterdir()] == ["notes.txt"]


def test_without_a_cuda_plugin_a_step_cannot_be_compiled(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
  monkeypatch.setattr(pjrt_transform, "plugin_path", lambda: None)
  outcome = run("tune", _TARGET, _CLUSTER, f"--out={tmp_path / 'plan'}")
  assert outcome.status == 2
  assert outcome.err.startswith("lagom-xla: Cannot compile for 1x8xh100: ")
  assert "pip install 'lagom-xla[aot]'" in outcome.err
  assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("content", [None, "{}", "no JSON", '{"format_ver'])
def test_flags_of_what_is_no_plan_are_refused(
  tmp_path: pathlib.Path, content: str | None
) -> None:
  if content is not None:
    (tmp_path / "plan.json").write_text(content)
  outcome = run("flags", str(tmp_path))
  assert (outcome.status, outcome.out) == (2, "")
  assert outcome.err.startswith("lagom-xla: ")
  assert str(tmp_path / "plan.json") in outcome.err


def test_a_process_of_its_own_prints_one_json_object_and_nothing_else(
  inspected: dict[str, Any],
) -> None:
  outcome = run_process("inspect", _TARGET, _CLUSTER, _MODEL, "--format=json")
  assert (outcome.status, outcome.err) == (0, "")
  assert json.loads(outcome.out) == inspected


def test_a_process_of_its_own_ends_with_status_2_and_one_line(
  files: pathlib.Path,
) -> None:
  outcome = run_process("tune", "steps.py:raises", _CLUSTER, cwd=files)
  assert outcome == Outcome(
    2,
    "",
    "lagom-xla: steps.py:raises raised RuntimeError: no data"
    f" (steps.py:{_RAISES_AT})\n",
  )
  assert not (files / "plan").exists()
