# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line: its result on stdout, or one line on stderr, status 2."""

from __future__ import annotations

from collections.abc import Sequence
import json
import lzma
import pathlib
import subprocess
import sys

import jax
import pytest

from commands import CLUSTER
from commands import HLO
from commands import MODEL
from commands import RAISES_AT
from commands import STEPS
from commands import TARGET
from commands import Outcome
from commands import run
from commands import run_process
from lagom_xla import cluster as cluster_lib
from lagom_xla.apply import files as files_lib
from sample_plan import PLAN


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp("files")
  text = "HloModule step\n\nENTRY main {\n  ROOT x = f32[] parameter(0)\n}\n"
  (folder / "steps.py").write_text(STEPS)
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
  return folder


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
  command = f"{sys.executable} -m lagom_xla clusters --format=json"
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


@pytest.mark.filterwarnings("always::RuntimeWarning")
@pytest.mark.parametrize("command", ["inspect", "whatif"])
def test_a_likely_slip_in_a_cluster_file_is_told_once(
  tmp_path: pathlib.Path, command: str
) -> None:
  (tmp_path / "step.hlo").write_text(HLO)
  cluster = tmp_path / "mine.json"
  cluster.write_text('{"gpu": "h100", "node": {"nic_gbps": 400}}')
  outcome = run(command, str(tmp_path / "step.hlo"), f"--cluster={cluster}")
  assert outcome.status == 0
  assert outcome.err.count("node.nic_gbps is 400") == 1


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


@pytest.mark.parametrize("command", ["inspect", "tune", "explain", "whatif"])
@pytest.mark.parametrize(
  ("target", "cluster", "words"),
  [
    ("absent.py:step", CLUSTER, "There is no file absent.py."),
    ("absent.py:step", "--cluster=1x8xh1000", 'unknown GPU "h1000"'),
  ],
)
def test_what_is_not_there_is_told_before_jax_is_imported(
  command: str,
  target: str,
  cluster: str,
  words: str,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  # A command that starts a worker, or imports what compiles, imports JAX.
  monkeypatch.setitem(sys.modules, "lagom_xla.compile.load", None)
  monkeypatch.setitem(sys.modules, "lagom_xla.compile.pool", None)
  outcome = run(command, target, cluster, "--workers=1")
  assert (outcome.status, outcome.going_on) == (2, ())
  assert words in outcome.err
  assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
  ("arguments", "words"),
  [
    (("cut.hlo.xz", CLUSTER), "cut.hlo.xz is damaged or truncated"),
    (("cut.hlo", CLUSTER), "cut.hlo"),
    (("no.hlo", CLUSTER), "no.hlo is neither HLO text"),
    (("empty.hlo", CLUSTER), "empty.hlo is empty"),
    (("absent.hlo", CLUSTER), "absent.hlo: No such file"),
    ((".", CLUSTER), ". is a folder: name the file of your step"),
    (("eight.hlo", "--cluster=1x4xh100"), "for 8 devices, and 1x4xh100 has 4"),
    (("steps.py:raises", "--cluster=1x8xh1000"), 'unknown GPU "h1000"'),
    (("steps.py:raises", "--cluster=elsewhere"), "'elsewhere'"),
    (("steps.py:raises", "--cluster=cluster.json"), "hbm_gbps is missing"),
    (
      ("steps.py:raises", CLUSTER),
      f"RuntimeError: no data (steps.py:{RAISES_AT})",
    ),
    (
      ("steps.py:not_jitted", CLUSTER),
      "is not jitted: wrap it in jax.jit",
    ),
    (("steps.py:absent", CLUSTER), "steps.py defines no absent"),
    (("absent.py:step", CLUSTER), "There is no file absent.py"),
    (("steps.py:raises", CLUSTER, "--arg=model"), "is not NAME=VALUE"),
    (
      (TARGET, CLUSTER, MODEL, "--arg=mesh=fsdp:4"),
      "takes 4 devices and there are 8",
    ),
  ],
)
def test_bad_input_gets_one_line_and_touches_no_plan(
  h100s: Sequence[jax.Device],
  files: pathlib.Path,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  arguments: tuple[str, ...],
  words: str,
) -> None:
  monkeypatch.chdir(files)
  older = tmp_path / "plan"
  files_lib.write(PLAN, older)
  before = {p.name: p.read_bytes() for p in older.iterdir()}
  for folder in (older, files / "fresh"):
    outcome = run("tune", *arguments, f"--out={folder}")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("lagom-xla: ")
    assert words in outcome.err
    assert outcome.err.count("\n") == 1
  assert {p.name: p.read_bytes() for p in older.iterdir()} == before
  assert not (files / "fresh").exists()
  assert run("inspect", *arguments) == outcome


def test_a_process_of_its_own_ends_with_status_2_and_one_line(
  files: pathlib.Path,
) -> None:
  outcome = run_process("tune", "steps.py:raises", CLUSTER, cwd=files)
  assert outcome == Outcome(
    2,
    "",
    "lagom-xla: steps.py:raises raised RuntimeError: no data"
    f" (steps.py:{RAISES_AT})\n",
  )
  assert not (files / "plan").exists()
