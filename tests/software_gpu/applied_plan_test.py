# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan takes effect in a job on software GPUs, by env.sh and in the process.

`lagom-xla tune` makes it without a GPU. NCCL's log shows its choices in the
job.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
import dataclasses
import json
import os
import pathlib
import re
import sys
from typing import Any
import warnings

import jax
import jax.numpy as jnp
import pytest

import commands
import lagom_xla
from lagom_xla import plan as plan_lib
from lagom_xla.apply import files
from lagom_xla.apply.nccl import table as table_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import nccl
from lagom_xla.flags import nccl_channels
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
import planned_step

_TARGET = (f"{planned_step.__file__}:train_step", "--cluster=1x2xh100")
_NUM_RANKS = 2
_NUM_CHANNELS = 24  # The default channels of a collective.
_NUM_STEPS = 2
_PRODUCT_US, _ALL_REDUCE_US = 300.0, 50.0
_KERNELS = f"""\
{_PRODUCT_US} gemm
{_PRODUCT_US} nvjet
{_ALL_REDUCE_US} all_reduce
"""
# Without autotuning, which would take longer than everything else here.
_XLA_FLAGS = "--xla_gpu_autotune_level=0"
# Names of all-reduces before XLA turns them into reduce-scatters.
_GROUPS = (("all-reduce.3", "all-reduce.2"),)

# A kind of collective, and its bytes in NCCL's calls of a tuner.
_Call = tuple[str, int]
_CHOICE = re.compile(
  r"NCCL INFO (AllGather|AllReduce|ReduceScatter): (\d+) Bytes -> Algo (\w+)"
  r" proto (\w+) channel{Lo..Hi}={0..(\d+)} chunk (\d+)"
)
_KINDS = {
  "AllGather": "all-gather",
  "AllReduce": "all-reduce",
  "ReduceScatter": "reduce-scatter",
}


def _say(what: str, value: Any) -> None:
  """Writes a value for the test into NCCL's log."""
  print(f"SAID {what}: {json.dumps(value)}", file=sys.stderr, flush=True)


def _said(log: str, what: str) -> Any:
  """The last such value in the log."""
  return json.loads(re.findall(f"SAID {what}: (.*)", log)[-1])


def _run(step: Callable[..., Any], phase: str) -> None:
  """Runs steps as a phase of the log."""
  arguments = planned_step.zeros(planned_step.train_step(jax.devices())[1])
  _say("phase", phase)
  for _ in range(_NUM_STEPS):
    jax.block_until_ready(step(*arguments))


def _choices(log: str, phase: str) -> dict[_Call, list[nccl.Setting]]:
  """NCCL's choices in a phase, by call."""
  _, _, rest = log.partition(f'SAID phase: "{phase}"\n')
  found = collections.defaultdict(list)
  for kind, num_bytes, *chosen in _CHOICE.findall(rest.split("SAID phase")[0]):
    algorithm, protocol, last_channel, chunk_bytes = chosen
    setting = nccl.Setting(
      algorithm=algorithm.lower(),
      protocol=protocol.lower(),
      num_channels=int(last_channel) + 1,
      chunk_bytes=int(chunk_bytes),
    )
    found[_KINDS[kind], int(num_bytes)].append(setting)
  assert found, log
  return found


def _of_table(plan: plan_lib.Plan) -> Mapping[_Call, nccl.Setting]:
  """The choices in a plan's table."""
  return {
    (entry.key.kind, call.num_bytes): entry.setting
    for entry in plan.nccl_settings
    for call in entry.calls
  }


@pytest.fixture(scope="module")
def folder(
  built: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
  """The folder of a plan from a command."""
  del built  # Only skips if software GPUs cannot be built.
  folder = tmp_path_factory.mktemp("plans") / "plan"
  made = commands.run("tune", *_TARGET, "--quiet", f"--out={folder}")
  assert made.status == 0, made.err
  return folder


@pytest.fixture
def launched(
  on_gpus: Callable[..., str], tmp_path: pathlib.Path
) -> Callable[..., str]:
  """Calls a function in a process whose launcher sources a plan's env.sh."""

  def launched(
    function: Callable[[], None],
    folder: pathlib.Path,
    *,
    command: str = f'exec "{sys.executable}" -m lagom_xla "$@"',
    **variables: str,
  ) -> str:
    """Returns the log; `command` is what `lagom-xla` is."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (script := bin_ / "lagom-xla").write_text(f"#!/bin/sh\n{command}\n")
    script.chmod(0o755)
    return on_gpus(
      function,
      variables={
        "NCCL_DEBUG": "INFO",
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "XLA_FLAGS": _XLA_FLAGS,
        **variables,
      },
      launcher=(
        *("bash", "-c", 'source "$0/env.sh" && exec "$@"'),
        str(folder),
      ),
    )

  return launched


def a_step_while_its_table_changes() -> None:
  step, likes = planned_step.train_step(jax.devices())
  compiled = step.lower(*likes).compile()
  found = collectives.find(hlo.load(compiled))
  _say("arrays", [c.num_operands for c in found if c.kind == "reduce-scatter"])
  _run(compiled, "planned")
  path = pathlib.Path(os.environ["LAGOM_XLA_NCCL_TABLE"])
  table = table_lib.read(path)
  _say("applied", sum(count.num_applied for count in table.counts))
  _run(lagom_xla.tune(step, plan=path.parent), "grouped")
  table_lib.switch(
    path,
    [
      dataclasses.replace(rule, algorithm="ring", protocol="ll128")
      for rule in table.rules
    ],
  )
  _run(compiled, "switched")
  os.truncate(path, 0)
  _run(compiled, "cut short")


def test_a_job_that_sources_env_sh_follows_the_plan_and_its_table(
  launched: Callable[..., str], folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  plan = plan_lib.load(folder)
  grouped = dataclasses.replace(plan.xla, combine_groups=_GROUPS)
  plan = dataclasses.replace(plan, xla=grouped)
  files.write(plan, tmp_path / "plan")
  log = launched(
    a_step_while_its_table_changes,
    tmp_path / "plan",
    NCCL_MAX_NCHANNELS="2",  # Would undercut the table.
  )
  # By default, XLA combines them.
  assert plan.xla.options["xla_gpu_reduce_scatter_combine_threshold_bytes"] == 0
  assert set(_said(log, "arrays")) == {1}
  # The all-reduce does not call NCCL, and has no setting.
  of_table = _of_table(plan)
  planned = _choices(log, "planned")
  assert planned.keys() == of_table.keys()
  assert all(set(planned[call]) == {of_table[call]} for call in planned)
  assert _said(log, "applied") == sum(map(len, planned.values()))

  grouped = _choices(log, "grouped")
  alone = ("reduce-scatter", planned_step.LAYER_BYTES)
  assert set(grouped[alone]) == {of_table[alone]}
  of_group = grouped["reduce-scatter", 2 * planned_step.LAYER_BYTES]
  assert len(of_group) == _NUM_STEPS * _NUM_RANKS

  switched = _choices(log, "switched")
  assert switched.keys() == of_table.keys()
  chosen = {(s.algorithm, s.protocol) for c in switched.values() for s in c}
  assert chosen == {("ring", "ll128")}

  assert "the table is damaged; NCCL uses its own choices" in log
  own = _choices(log, "cut short")
  assert own.keys() == of_table.keys()
  chosen = {(s.num_channels, s.chunk_bytes) for c in own.values() for s in c}
  assert chosen == {(_NUM_CHANNELS, 0)}


def a_gather() -> None:
  mesh = jax.make_mesh(
    (_NUM_RANKS,), ("x",), axis_types=(jax.sharding.AxisType.Auto,)
  )
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  x = jax.device_put(jnp.zeros(2**20), rows)
  _say("phase", "capped")
  jax.jit(lambda x: x, out_shardings=whole)(x).block_until_ready()


def _num_channels(log: str) -> set[int]:
  return {s.num_channels for c in _choices(log, "capped").values() for s in c}


def test_a_job_without_the_plugin_runs_with_the_plans_channel_cap(
  launched: Callable[..., str], folder: pathlib.Path
) -> None:
  log = launched(a_gather, folder, command="exit 1")
  cap = plan_lib.load(folder).nccl_env[nccl_channels.VARIABLE]
  assert _num_channels(log) == {int(cap)}
  assert "TUNER/" not in log


def test_the_xla_cap_of_a_plan_overrides_an_inherited_nccl_cap(
  launched: Callable[..., str], folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  plan = dataclasses.replace(
    plan_lib.load(folder),
    xla=config_lib.XlaConfig(options={nccl_channels.OPTION: 5}),
    nccl_env={},
    nccl_settings=(),
    applied="flags",
  )
  files.write(plan, tmp_path / "plan")
  log = launched(a_gather, tmp_path / "plan", NCCL_MAX_CTAS="3")
  assert _num_channels(log) == {5}


def a_step_that_is_traced() -> None:
  step, likes = planned_step.train_step(jax.devices())
  with warnings.catch_warnings(record=True) as caught:
    tuned = lagom_xla.tune(step, plan="plan of another JAX")
    _run(tuned, "jitted")
  _say("warnings", [str(warning.message) for warning in caught])
  _say("report", tuned.report())
  # Traces do not name the instructions of kernels that run in a graph.
  traced = step.lower(*likes).compile({"xla_gpu_enable_command_buffer": ""})
  arguments = planned_step.zeros(likes)
  jax.block_until_ready(traced(*arguments))
  with jax.profiler.trace("trace"):
    for _ in range(_NUM_STEPS):
      jax.block_until_ready(traced(*arguments))
  for arguments in (
    ("profile", "trace"),
    ("inspect", *_TARGET, "--profile=trace"),
    ("verify", "plan", *_TARGET),
  ):
    done = commands.run(*arguments, "--quiet", "--format=json")
    _say(f"status of {arguments[0]}", done.status)
    _say(arguments[0], json.loads(done.out))


def test_a_step_is_profiled_and_its_plan_verified_on_its_gpus(
  on_gpus: Callable[..., str], folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  plan = plan_lib.load(folder)
  files.write(plan, tmp_path / "plan")
  other = dataclasses.replace(plan, jax_version="0.0.1")
  files.write(other, tmp_path / "plan of another JAX")
  log = on_gpus(
    a_step_that_is_traced, kernels=_KERNELS, variables={"XLA_FLAGS": _XLA_FLAGS}
  )
  (warning,) = _said(log, "warnings")
  assert "The plan was made with jax 0.0.1, but " in warning
  assert "unchanged, without the plan" in _said(log, "report")

  profile = _said(log, "profile")
  assert (profile["platform"], profile["module"]) == ("GPU", "jit_step")
  assert profile["num_steps"] == _NUM_STEPS * _NUM_RANKS
  # XLA's own all-reduce kernel is one of them.
  by_kind = {row["kind"]: row for row in profile["collectives"]}
  assert by_kind.keys() == set(_KINDS.values())
  assert by_kind["all-reduce"]["own_us"] == pytest.approx(_ALL_REDUCE_US)
  assert by_kind["all-gather"]["num_channels"] == _NUM_CHANNELS

  costs = _said(log, "inspect")["profile"]
  assert costs["measured_shares"]["all-reduce"] == 1
  (products,) = [r for r in costs["ratios"] if r["kind"] == "gemm"]
  assert products["measured_us"] == pytest.approx(products["n"] * _PRODUCT_US)

  assert _said(log, "status of verify") == 0
  effects = _said(log, "verify")["effects"]
  assert all(effect["acted"] for effect in effects)
  evidence = {effect["knob"]: effect["evidence"] for effect in effects}
  assert evidence.keys() > {*plan.xla.options, *plan.nccl_env}
  # From all collectives but XLA's own.
  assert re.match(
    r"takes channels from (?!(\d+) of \1)", evidence[nccl_channels.VARIABLE]
  )

  # The next plan is based on the trace.
  tuned = commands.run(
    "tune",
    *_TARGET,
    f"--profile={tmp_path / 'trace'}",
    *("--quiet", f"--out={tmp_path / 'next'}"),
  )
  assert tuned.status == 0, tuned.err
  found = plan_lib.load(tmp_path / "next")
  assert found.profile is not None
  assert found.profile.num_devices == _NUM_RANKS
  assert found.profile.measured_shares["all-reduce"] == 1
  assert "all-reduce" not in {e.key.kind for e in found.nccl_settings}
