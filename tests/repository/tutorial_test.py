# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tutorial works exactly as written, in an empty folder.

Its commands and its program are read from the page. Commands that install are
not run; docs_test.py checks the names in them.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from commands import ROOT
from lagom_xla.passes import registry

_PAGE = ROOT / "docs/tutorial.md"
_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The doctor has its own tests.
_INSTALLS = ("python3 -m venv", "pip install", "lagom-xla doctor")
_TIMEOUT_S = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
  """The reader's folder, with the installed commands on the PATH."""
  folder = tmp_path_factory.mktemp("tutorial")
  for name, runs in (("lagom-xla", " -m lagom_xla"), ("python", "")):
    command = folder / "bin" / name
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}"{runs} "$@"\n')
    command.chmod(0o755)
  program, *_ = _PYTHON.findall(_PAGE.read_text())
  (folder / "train.py").write_text(program)
  return folder


@pytest.fixture(scope="module")
def printed(folder) -> dict[str, str]:
  """The output of every command, in the order of the page."""
  if registry.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed: nothing compiles for GPUs")
  unset = ("JAX_", "XLA_", "TF_CPP_", "LAGOM_XLA_")
  env = {k: v for k, v in os.environ.items() if not k.startswith(unset)}
  env["PATH"] = f"{folder / 'bin'}:{env['PATH']}"
  env["XDG_CACHE_HOME"] = str(folder / "cache")
  env["PYTHONPATH"] = str(ROOT)
  printed = {}
  for block in _SHELL.findall(_PAGE.read_text()):
    lines = block.splitlines()
    commands = [line for line in lines if not line.startswith(_INSTALLS)]
    if not commands:
      continue
    # For one or two compiles, starting a worker takes longer.
    workers = {"LAGOM_XLA_WORKERS": "0"}
    if any(line.startswith("lagom-xla tune") for line in commands):
      workers = {}
    # A block is one shell, so sourced variables persist.
    done = subprocess.run(
      ["bash", "-ec", "\n".join(commands)],
      cwd=folder,
      env={**env, **workers},
      capture_output=True,
      text=True,
      check=False,
      timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, f"{commands}: {done.stderr}"
    printed[commands[-1]] = done.stdout
  return printed


def _of(printed: dict[str, str], start: str) -> list[str]:
  return [out for line, out in printed.items() if line.startswith(start)]


def test_an_eighth_of_the_batch_hides_less_communication(printed):
  whole, eighth = map(_exposed_share, _of(printed, "lagom-xla inspect"))
  assert whole < eighth


def _exposed_share(inspected: str) -> float:
  """The part of a step in which kernels wait, as `inspect` prints it."""
  words = " ".join(inspected.split())
  waits_ms, step_ms = (
    float(found[1].replace(",", ""))
    for before in ("kernels wait", "of a step of")
    if (found := re.search(rf"{before} ([\d,.]+) ms", words))
  )
  return waits_ms / step_ms


def test_tune_writes_the_files_that_the_page_names(printed, folder):
  assert _of(printed, "lagom-xla tune")
  names = {path.name for path in (folder / "plan").iterdir()}
  assert names >= {"plan.json", "env.sh", "nccl_table.bin", "report.json.gz"}


def test_the_report_needs_no_network(printed, folder):
  assert _of(printed, "lagom-xla report")
  page = (folder / "report.html").read_text()
  assert "<html" in page and not re.search(r"<(?:script|link)[^>]*http", page)


def test_verify_of_the_plan_succeeds(printed):
  assert _of(printed, "lagom-xla verify")


def test_the_program_trains_under_the_plan(printed):
  (out,) = _of(printed, "JAX_PLATFORMS=cpu python train.py")
  losses = [float(line.split()[-1]) for line in out.splitlines()]
  assert len(losses) == 5 and losses[-1] < losses[0]
