# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every command that reads a plan refuses one edited by hand.

It also refuses a plan with another one's table. Both give one line, before any
target is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import json
import pathlib

import pytest

from commands import CLUSTER
from commands import run
from lagom_xla.apply import files
from sample_plan import PLAN

_COMMANDS: Mapping[str, Callable[[str], tuple[str, ...]]] = {
  "flags": lambda plan: ("flags", plan),
  "merge": lambda plan: ("flags", plan, "--merge"),
  "plugin": lambda plan: ("plugin", plan),
  "verify": lambda plan: ("verify", plan, "absent.py:step", CLUSTER),
}
# A field's path, its edited value, and words of the refusal.
_EDITS = [
  ("prediction.default_us", float("nan"), "default_us is NaN"),
  ("nccl_settings.0.setting.num_channels", -5, "num_channels is -5"),
  ("nccl_settings.0.setting.algorithm", "magic", "'magic'"),
  ("nccl_settings.0.setting.protocol", "ll256", "'ll256'"),
  ("nccl_settings.0.key.kind", "all-magic", "'all-magic'"),
  ("nccl_settings.0.setting.chunk_bytes", 2**60, f"chunk_bytes {2**60}"),
  ("nccl_env.NCCL_MAX_CTAS", "-5", 'nccl_env.NCCL_MAX_CTAS is "-5"'),
  ("nccl_env.LD_PRELOAD", "a.so", "nccl_env has LD_PRELOAD"),
  ("xla.options.xla_gpu_magic", 1, "xla_gpu_magic is not an option of jaxlib"),
  (
    "xla.options.xla_gpu_memory_limit_slop_factor",
    "magic",
    'slop_factor cannot be "magic"',
  ),
  ("jax_version", "0.4.1", "was made with jax 0.4.1"),
  ("jaxlib_version", "0.4.1", "with jaxlib 0.4.1"),
  (
    "nccl_settings.0.setting.num_channels",
    5000,
    "num_channels is 5000; it must be 64 at most",
  ),
  # Another setting.
  (
    "nccl_settings.0.setting.num_channels",
    5,
    "nccl_table.bin does not match",
  ),
]


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
  files.write(PLAN, tmp_path / "plan")
  return tmp_path / "plan"


def _assert_refused(folder: pathlib.Path, words: str) -> None:
  for name, command in _COMMANDS.items():
    outcome = run(*command(str(folder)))
    assert (outcome.status, outcome.out) == (2, ""), name
    assert outcome.err.startswith("lagom-xla: ")
    assert outcome.err.count("\n") == 1
    assert words in outcome.err
    assert "ake the plan again" in outcome.err


def _edit(folder: pathlib.Path, path: str, value: object) -> None:
  raw = part = json.loads((folder / "plan.json").read_text())
  *steps, last = path.split(".")
  for step in steps:
    part = part[int(step) if step.isdecimal() else step]
  part[last] = value
  (folder / "plan.json").write_text(json.dumps(raw))


@pytest.mark.parametrize(("path", "value", "words"), _EDITS)
def test_an_edited_plan_is_refused_by_every_command(folder, path, value, words):
  _edit(folder, path, value)
  _assert_refused(folder, words)


@pytest.mark.parametrize("num_bytes", [None, 0, 100, 5000, "one changed"])
def test_a_damaged_or_missing_table_is_refused_by_every_command(
  folder, num_bytes
):
  table = folder / "nccl_table.bin"
  content = bytearray(table.read_bytes())
  table.unlink()
  if isinstance(num_bytes, str):
    # The first page is the header; a plan that is new has its rules in slot 1.
    content[next(i for i in range(4096, len(content)) if content[i])] ^= 1
    table.write_bytes(content)
  elif num_bytes is not None:
    table.write_bytes(content[:num_bytes])
  _assert_refused(folder, str(table))


def test_an_unchanged_plan_is_accepted_by_every_command(folder):
  for name in ("flags", "merge", "plugin"):
    outcome = run(*_COMMANDS[name](str(folder)))
    assert (outcome.status, outcome.err) == (0, ""), name
  # The plan is valid, so the error is about the target.
  outcome = run(*_COMMANDS["verify"](str(folder)))
  assert outcome.err == "lagom-xla: There is no file absent.py.\n"
