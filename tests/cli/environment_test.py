# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A user's XLA_FLAGS and NCCL_MAX_CTAS take effect and are reported."""

from __future__ import annotations

import json
import pathlib

import pytest

from commands import CLUSTER
from commands import Outcome
from commands import assert_refused
from commands import printed
from commands import run
from commands import run_process
from commands import write_hlo
from commands import write_steps
import gather_steps
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.apply.nccl import build
from lagom_xla.compile import load
from lagom_xla.costs import in_words
from lagom_xla.search.nccl import channel_cap

_OVERLAP = "--xla_gpu_experimental_parallel_collective_overlap_limit=4"


@pytest.mark.parametrize(
  ("flags", "words"),
  [
    ("--xla_gpu_magic=1", "Unknown flag in XLA_FLAGS: --xla_gpu_magic=1"),
    ("--xla_gpu_autotune_level=magic", "a value that XLA rejects"),
    ("absent.txt", "XLA_FLAGS is 'absent.txt', which is neither a flag nor"),
    (" ", "XLA_FLAGS is ' ', which is neither a flag nor"),
  ],
)
def test_fatal_xla_flags_are_refused_with_the_command_to_check_them(
  tmp_path, monkeypatch, flags, words
):
  monkeypatch.setenv("XLA_FLAGS", flags)
  outcome = run("inspect", write_hlo(tmp_path), CLUSTER)
  assert_refused(outcome, words, 'lagom-xla flags --check "$XLA_FLAGS"')
  # The check names the flag.
  checked = run("flags", "--check", flags)
  assert (checked.status, checked.err) == (1, "")
  assert flags in checked.out


def _tuned(folder: pathlib.Path) -> Outcome:
  outcome = run("tune", write_hlo(folder), CLUSTER, f"--out={folder / 'plan'}")
  assert outcome.status == 0
  return outcome


def test_xla_flags_that_are_set_are_reported_as_running_today(
  tmp_path, monkeypatch
):
  monkeypatch.setenv("XLA_FLAGS", f"  {_OVERLAP} ")
  outcome = _tuned(tmp_path)
  out = outcome.out
  assert f"What runs today is XLA's defaults with {_OVERLAP}." in (
    " ".join(out.split())
  )
  assert "  step, what runs today  " in out
  assert "all defaults" not in out
  # Progress names them, too.
  first, *others = outcome.err.splitlines()
  assert "today's XLA_FLAGS" in first
  assert not any("XLA's defaults" in line for line in others)


def test_xla_flags_that_are_set_are_in_the_plan_and_in_json(
  tmp_path, monkeypatch
):
  monkeypatch.setenv("XLA_FLAGS", f" {_OVERLAP}\n--xla_gpu_autotune_level=0 ")
  _tuned(tmp_path)
  flags = f"{_OVERLAP} --xla_gpu_autotune_level=0"
  folder, step = str(tmp_path / "plan"), str(tmp_path / "step.hlo")
  assert plan_lib.load(folder).xla_flags == flags
  assert f"#   {flags}\n" in (tmp_path / "plan/env.sh").read_text()
  assert printed("inspect", step, CLUSTER)["xla_flags"] == flags
  verify = ("verify", folder, step, CLUSTER)
  assert printed(*verify)["xla_flags"] == flags
  assert "when the plan was made" not in run(*verify).out
  # After env.sh was sourced, too.
  more = "--xla_gpu_enable_cublaslt=false"
  monkeypatch.setenv("LAGOM_XLA_FLAGS", more)
  monkeypatch.setenv("XLA_FLAGS", f"{flags} {more}")
  assert printed(*verify)["xla_flags"] == flags
  monkeypatch.delenv("XLA_FLAGS")
  assert (
    f"XLA_FLAGS is not set, but was {flags} when the plan was made"
    in " ".join(run(*verify).out.split())
  )


def test_words_of_xla_flags_that_xla_does_not_read_are_left_out(
  tmp_path, monkeypatch
):
  monkeypatch.setenv("XLA_FLAGS", f"{_OVERLAP} NCCL_DEBUG=INFO --xla_no=1")
  step = write_hlo(tmp_path)
  assert printed("inspect", step, CLUSTER)["xla_flags"] == _OVERLAP
  said = " ".join(run("inspect", step, CLUSTER).out.split())
  assert f"What runs today is XLA's defaults with {_OVERLAP}. " in said
  assert "XLA stops reading XLA_FLAGS at NCCL_DEBUG=INFO, which is not" in said


def test_a_failed_compile_names_xla_flags_other_than_dumps(
  h100s, tmp_path, monkeypatch
):
  write_steps(tmp_path)

  def refuse(*_: object, **__: object) -> None:
    raise errors.CompileError("XLA could not compile for 1x8xh100: no.")

  monkeypatch.setattr(load, "load", refuse)
  arguments = ("inspect", str(tmp_path / "steps.py:step"), CLUSTER)
  monkeypatch.setenv("XLA_FLAGS", _OVERLAP)
  first, second = run(*arguments).err.splitlines()
  assert first == "lagom-xla: XLA could not compile for 1x8xh100: no."
  assert second == f"  XLA_FLAGS is {_OVERLAP}"
  monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=dumps")
  assert run(*arguments).err.splitlines() == [first]


@pytest.mark.parametrize(
  "flags",
  ["", "--xla_force_host_platform_device_count=8 --xla_dump_to=dump"],
)
def test_tune_without_gpu_flags_compares_with_all_defaults(
  tmp_path, monkeypatch, flags
):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv("XLA_FLAGS", flags)
  outcome = _tuned(tmp_path)
  assert "  step, all defaults  " in outcome.out
  assert "step, what runs today" not in outcome.out
  assert "today's" not in outcome.out + outcome.err
  assert not plan_lib.load(tmp_path / "plan").xla_flags


def test_a_jax_compilation_cache_adds_no_output(h100s, tmp_path):
  arguments = ("inspect", write_steps(tmp_path), CLUSTER)
  cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
  outcome = run_process(*arguments, "--format=json", env=cache)
  assert (outcome.status, outcome.err) == (0, "")
  here = printed(*arguments)
  assert json.loads(outcome.out) == {**here, "xla_flags": ""}


def test_dumps_that_xla_flags_request_are_not_written_by_inspect(
  h100s, tmp_path, monkeypatch
):
  dumps = tmp_path / "dumps"
  monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={dumps}")
  outcome = run("inspect", write_steps(tmp_path), CLUSTER, "--workers=1")
  assert outcome.status == 0
  assert not list(dumps.glob("*.jit_step*_optimizations*"))


_VARIABLE = "NCCL_MAX_CTAS"
_SAID = f"{_VARIABLE} is 1 here, but times do not take it into account"
_MODULE = gather_steps.module([64 * gather_steps.MIB], kernels_us=3.0)


@pytest.fixture
def module(tmp_path) -> str:
  path = tmp_path / "step.hlo.pb"
  path.write_bytes(_MODULE.proto.SerializeToString())
  return str(path)


def _output(*arguments: str) -> str:
  outcome = run(*arguments, CLUSTER)
  assert outcome.status == 0
  return " ".join(outcome.out.split())


def test_nccl_max_ctas_only_adds_a_note_with_the_capped_step_time(
  module, monkeypatch
):
  before = _output("inspect", module)
  monkeypatch.setenv(_VARIABLE, "1")
  step = gather_steps.step(_MODULE)
  under = channel_cap.capped(step, 1)
  capped_us = step.timeline(under).step_time_us
  assert capped_us > 2 * step.timeline(step.default).step_time_us
  note = (
    f"Note: {_SAID}, except for this: today's step takes"
    f" {in_words.ms(capped_us)} ms with it, predicted. "
  )
  after = _output("inspect", module)
  assert note in after
  assert after.replace(note, "") == before


def test_nccl_max_ctas_replaces_the_channel_cap_of_xla(module, monkeypatch):
  monkeypatch.setenv(_VARIABLE, "64")
  monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_nccl_collective_max_nchannels=1")
  step = gather_steps.step(_MODULE)
  free = in_words.ms(step.timeline(step.default).step_time_us)
  assert f"today's step takes {free} ms with it" in _output("inspect", module)


def test_tune_whatif_and_verify_note_nccl_max_ctas(
  module, tmp_path, monkeypatch
):
  monkeypatch.setenv(_VARIABLE, "1")
  plan = str(tmp_path / "plan")
  assert _SAID in _output("tune", module, f"--out={plan}")
  for arguments in (("whatif", module), ("verify", plan, module)):
    assert f"{_SAID}." in _output(*arguments)


def test_nccl_variables_that_times_ignore_are_named_in_one_note(
  module, monkeypatch
):
  monkeypatch.setenv(_VARIABLE, "1")
  monkeypatch.setenv("NCCL_MIN_CTAS", "8")
  monkeypatch.setenv("NCCL_TUNER_PLUGIN", "libnccl-tuner-aws-ofi.so")
  said = _output("inspect", module)
  assert (
    "NCCL_MIN_CTAS=8, NCCL_MAX_CTAS=1 and"
    " NCCL_TUNER_PLUGIN=libnccl-tuner-aws-ofi.so are set here, but times do"
    " not take them into account, except for this: today's step takes"
  ) in said
  monkeypatch.setenv(_VARIABLE, "0")
  monkeypatch.setenv("NCCL_TUNER_PLUGIN", build.LIBRARY)
  assert "NCCL_MIN_CTAS is 8 here, but times do not take it into account." in (
    _output("inspect", module)
  )


def test_nccl_proto_limits_the_choices_behind_all_times(
  module, tmp_path, monkeypatch
):
  free = _output("inspect", module)
  monkeypatch.setenv("NCCL_PROTO", "LL")
  assert _output("inspect", module) != free
  note = "NCCL's choices are limited by NCCL_PROTO=LL here; all times"
  assert note in _output("inspect", module)
  said = printed("inspect", module, CLUSTER)["nccl_variables"]
  assert said == {"NCCL_PROTO": "LL"}
  assert note in _output("whatif", module)
  plan = str(tmp_path / "plan")
  run("tune", module, CLUSTER, f"--out={plan}")
  made = plan_lib.load(plan)
  assert made.nccl_variables == {"NCCL_PROTO": "LL"}
  assert {s.setting.protocol for s in made.nccl_settings} <= {"ll"}
  assert "where the plan was made" not in _output("verify", plan, module)
  monkeypatch.delenv("NCCL_PROTO")
  assert (
    "NCCL's variables differ: no variable here, and NCCL_PROTO=LL where the"
    " plan was made."
  ) in _output("verify", plan, module)


def test_nccl_max_ctas_values_that_nccl_ignores_are_not_reported(
  module, monkeypatch
):
  for value in ("", "0", "-4", "many"):
    monkeypatch.setenv(_VARIABLE, value)
    assert _VARIABLE not in _output("inspect", module)
