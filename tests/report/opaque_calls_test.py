# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports are not definite about a step whose library calls may communicate."""

from __future__ import annotations

from collections.abc import Sequence
import json
import pathlib

import jax
import pytest

from commands import run
import hlo_text

_STEPS = """\
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def step_args(devices):
  mesh = Mesh(devices, ("x",))
  return tuple(
    jax.ShapeDtypeStruct(
      (4096, 4096), jnp.float32, sharding=NamedSharding(mesh, spec)
    )
    for spec in (P(), P("x"))
  )

def _calls(target, sums=False):
  def step(x, y):
    x = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
    return (x, y.sum(0)) if sums else x
  return jax.jit(step)

transforms = _calls("pfft3d")
transforms_and_sums = _calls("pfft3d", sums=True)
dispatches = _calls("te_ep_dispatch_ffi")
normalizes = _calls("te_norm_forward_ffi")
factors = _calls("cusolver_potrf_ffi")
transforms_args = transforms_and_sums_args = dispatches_args = step_args
normalizes_args = factors_args = step_args
"""


@pytest.fixture
def steps(h100s: Sequence[jax.Device], tmp_path: pathlib.Path) -> str:
  del h100s  # Only says whether there is anything to compile with.
  file = tmp_path / "steps.py"
  file.write_text(_STEPS)
  return str(file)


def _output(command: str, *arguments: str, cluster: str = "1x8xh100") -> str:
  outcome = run(command, *arguments, f"--cluster={cluster}")
  assert outcome.status == 0, outcome.err
  return " ".join(outcome.out.split())


@pytest.mark.parametrize(
  ("step", "target"),
  [("transforms", "pfft3d"), ("dispatches", "te_ep_dispatch_ffi")],
)
def test_an_opaque_call_of_several_devices_may_hold_collectives(
  steps: str, tmp_path: pathlib.Path, step: str, target: str
) -> None:
  page = tmp_path / "page.html"
  said = _output("inspect", f"{steps}:{step}", f"--report={page}")
  assert f"has no visible collective, but {target} may hold some" in said
  assert "has no collective to overlap" not in said
  assert "9 times in 10" not in said and "ms at least " in said
  for text in (said, page.read_text()):
    assert "1 library call may communicate between devices" in text
  assert "or more: some calls are unknown" in page.read_text()
  explained = _output("explain", f"{steps}:{step}")
  assert f"but {target} may communicate" in explained
  printed = json.loads(_output("inspect", f"{steps}:{step}", "--format=json"))
  assert [*printed["calls_that_may_communicate"].values()] == [target]


def test_collectives_visible_with_an_opaque_call_are_called_visible(
  steps: str,
) -> None:
  said = _output("inspect", f"{steps}:transforms_and_sums")
  assert "visible collectives cost" in said
  assert "pfft3d may hold others" in said
  explained = _output("explain", f"{steps}:transforms_and_sums")
  assert "pfft3d may contain other collectives" in explained


def test_a_call_known_to_be_local_keeps_the_verdict_definite(
  steps: str,
) -> None:
  said = _output("inspect", f"{steps}:normalizes")
  assert "has no collective to overlap" in said
  assert "9 times in 10 between" in said
  assert "Note: " not in said


def test_a_local_call_of_unknown_work_only_opens_the_time_range(
  steps: str,
) -> None:
  said = _output("inspect", f"{steps}:factors")
  assert "has no collective to overlap" in said
  assert "ms at least " in said
  assert "may communicate" not in said


def test_an_opaque_call_on_one_device_holds_no_collectives(steps: str) -> None:
  said = _output("inspect", f"{steps}:transforms", cluster="1x1xh100")
  assert "has no collective to overlap" in said
  assert "may communicate" not in said


_SCHEDULED = f"""
  x = f32[4096,4096] parameter(0)
  z = f32[512,4096] parameter(1)
  y = f32[4096,4096] custom-call(x), custom_call_target="pfft3d"
  start = (f32[512,4096], f32[4096,4096]) all-gather-start(z), {hlo_text.GATHER}
  done = f32[4096,4096] all-gather-done(start)
  ROOT out = (f32[4096,4096], f32[4096,4096]) tuple(y, done)
"""


def test_an_opaque_call_of_replicas_may_hold_collectives(
  tmp_path: pathlib.Path,
) -> None:
  module = tmp_path / "step.hlo"
  header = "is_scheduled=true, replica_count=8"
  body = """
    x = f32[4096] parameter(0)
    ROOT y = f32[4096] custom-call(x), custom_call_target="mpi_allreduce_ffi"
  """
  module.write_text(hlo_text.text(body, header=header))
  assert "mpi_allreduce_ffi may hold some" in _output("inspect", str(module))


def test_an_open_time_range_stays_open_in_plans_and_comparisons(
  tmp_path: pathlib.Path,
) -> None:
  module, plan = tmp_path / "step.hlo", tmp_path / "plan"
  module.write_text(hlo_text.text(_SCHEDULED))
  said = _output("tune", str(module), f"--out={plan}")
  assert "ms at least " in said
  known = json.loads((plan / "plan.json").read_text())["prediction"]
  assert known["default_range_us"]["is_open"]
  assert not known["xla_gain_us"]["is_open"]
  assert "ms at least " in _output("verify", str(plan), str(module))
  compared = run("whatif", str(module), "--cluster=1x8xh100", "--search=none")
  assert "?" in compared.out
