# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line: its result on stdout, or one line on stderr, status 2."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from commands import CLUSTER
from commands import HLO
from commands import MODEL
from commands import RAISES_AT
from commands import STEPS
from commands import TARGET
from commands import Outcome
from commands import assert_refused
from commands import bash
from commands import printed
from commands import run
from commands import write_hlo
import lagom_xla
from lagom_xla import cluster as cluster_lib
from lagom_xla.apply import files as files_lib
from lagom_xla.plan import beside
from sample_plan import PLAN


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> pathlib.Path:
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


@pytest.mark.parametrize(
  ("command", "said"),
  [
    # The reader closes the pipe early.
    ("clusters --format=json | true; echo ${PIPESTATUS[0]}", "0\n"),
    (
      f"inspect absent.py:step {CLUSTER} 2>&1 | true; echo ${{PIPESTATUS[0]}}",
      "2\n",
    ),
    (
      "clusters 2>&1 >/dev/full; echo $?",
      "lagom-xla: Cannot write the result: No space left on device.\n2\n",
    ),
  ],
)
def test_exit_status_is_right_when_output_is_unread_or_unwritable(
  tmp_path, command, said
):
  assert bash(tmp_path, f"$LAGOM {command}") == said


def test_clusters_lists_names_that_the_cluster_option_accepts():
  rows = printed("clusters")
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
def test_a_likely_slip_in_a_cluster_file_is_reported_once(tmp_path, command):
  cluster = tmp_path / "mine.json"
  cluster.write_text('{"gpu": "h100", "node": {"nic_gbps": 400}}')
  outcome = run(command, write_hlo(tmp_path), f"--cluster={cluster}")
  assert outcome.status == 0
  assert outcome.err.count("node.nic_gbps is 400") == 1


def test_help_shows_examples():
  for command in ((), ("inspect",), ("tune",), ("flags",)):
    outcome = run(*command, "--help")
    assert (outcome.status, outcome.err) == (0, "")
    _, _, examples = outcome.out.partition("examples:\n")
    assert all(f"lagom-xla {name} " in examples for name in command or ["tune"])


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
def test_wrong_usage_prints_the_right_usage(arguments):
  outcome = run(*arguments)
  assert outcome.status == 2
  assert outcome.out == ""
  assert outcome.err.startswith("usage: lagom-xla")


@pytest.mark.parametrize("command", ["inspect", "tune", "explain", "whatif"])
def test_a_missing_file_or_gpu_is_reported_before_jax_is_imported(
  command, monkeypatch
):
  # A command that starts a worker or imports the compiler imports JAX.
  monkeypatch.setitem(sys.modules, "lagom_xla.compile.load", None)
  monkeypatch.setitem(sys.modules, "lagom_xla.compile.pool", None)
  for cluster, words in (
    (CLUSTER, "There is no file absent.py."),
    ("--cluster=1x8xh1000", 'unknown GPU "h1000"'),
  ):
    outcome = run(command, "absent.py:step", cluster, "--workers=1")
    assert outcome.going_on == ()
    assert_refused(outcome, words)


@pytest.mark.parametrize(
  ("arguments", "words"),
  [
    (("cut.hlo.xz", CLUSTER), "cut.hlo.xz is damaged or truncated"),
    (("cut.hlo", CLUSTER), "cut.hlo"),
    (("no.hlo", CLUSTER), "no.hlo is neither HLO text"),
    (("empty.hlo", CLUSTER), "empty.hlo is empty"),
    (("absent.hlo", CLUSTER), "absent.hlo: No such file"),
    ((".", CLUSTER), ". is a folder: name the file of your step"),
    (("eight.hlo", "--cluster=1x4xh100"), "for 8 devices, but 1x4xh100 has 4"),
    (("steps.py:raises", "--cluster=elsewhere"), "'elsewhere'"),
    (("steps.py:raises", "--cluster=cluster.json"), "hbm_gbps is missing"),
    (
      ("steps.py:raises", CLUSTER),
      f"RuntimeError: no data (steps.py:{RAISES_AT})",
    ),
    (
      ("steps.py:not_jitted", CLUSTER),
      "wrap it in jax.jit and define",
    ),
    (("steps.py:absent", CLUSTER), "steps.py defines no absent"),
    (("steps.py:raises", CLUSTER, "--arg=model"), "is not NAME=VALUE"),
    (
      (TARGET, CLUSTER, MODEL, "--arg=mesh=fsdp:4"),
      "takes 4 devices and there are 8",
    ),
  ],
)
def test_bad_input_gets_one_line_and_touches_no_plan(
  h100s, files, tmp_path, monkeypatch, arguments, words
):
  monkeypatch.chdir(files)
  older = tmp_path / "plan"
  files_lib.write(PLAN, older)
  before = {p.name: p.read_bytes() for p in older.iterdir()}
  for folder in (older, files / "fresh"):
    outcome = run("tune", *arguments, f"--out={folder}")
    assert_refused(outcome, words)
  assert {p.name: p.read_bytes() for p in older.iterdir()} == before
  assert not (files / "fresh").exists()
  assert run("inspect", *arguments) == outcome


# Prints bash's completions of these words.
_TAB = """\
source {script}
COMP_WORDS=(lagom-xla {words}) COMP_CWORD={index}
_comp=$(complete -p lagom-xla); _comp=${{_comp#*-F }}
${{_comp%% *}} lagom-xla "${{COMP_WORDS[COMP_CWORD]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def test_bash_completes_commands_options_and_choices(tmp_path):
  script = tmp_path / "completion.bash"
  script.write_text(run("completion", "bash").out)
  listed = re.search(r"\{([\w,]+)\}", run("--help").out)
  assert listed is not None
  for words, completed in (
    ([""], set(listed[1].split(","))),
    (["ins"], {"inspect"}),
    (["tune", "--clu"], {"--cluster"}),
    (["schema", "pl"], {"plan"}),
  ):
    quoted = " ".join(f"'{word}'" for word in words)
    tab = _TAB.format(script=script, words=quoted, index=len(words))
    assert set(bash(tmp_path, tab).split()) == completed


def test_zsh_loads_the_completion_script(tmp_path):
  zsh = shutil.which("zsh")
  if zsh is None:
    pytest.skip("there is no zsh: apt-get install zsh")
  script = tmp_path / "_lagom-xla"
  script.write_text(run("completion", "zsh").out)
  lines = (
    "fpath=($PWD $fpath)",
    "autoload -Uz compinit; compinit -u -d dump",
    "autoload +X $_comps[lagom-xla] && print $_comps[lagom-xla]",
  )
  done = subprocess.run(
    [zsh, "-f", "-c", "\n".join(lines)],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stdout.strip() == script.name and not done.stderr


def test_completion_without_shtab_names_the_extra_to_install(monkeypatch):
  monkeypatch.setitem(sys.modules, "shtab", None)
  done = run("completion", "bash")
  assert done.status == 2 and not done.out
  assert done.err.endswith("'.[completion]' in a checkout of lagom_xla.\n")


def test_version_matches_the_package_as_command_and_as_module():
  version = f"lagom-xla {lagom_xla.__version__}\n"
  assert run("--version") == Outcome(0, version, "")
  done = subprocess.run(
    [sys.executable, "-m", "lagom_xla", "--version"],
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stdout == version


@pytest.mark.parametrize(
  "arguments",
  [
    ("inspect", "fifo", CLUSTER),
    ("inspect", "/dev/zero", CLUSTER),
    ("inspect", "step.hlo", "--cluster=fifo.json"),
    ("flags", "fifo"),
    ("verify", "fifo", "step.hlo", CLUSTER),
    ("explain", "plan"),
    ("calibrate", "fifo", CLUSTER, "--out=c.json"),
  ],
  ids=" ".join,
)
def test_fifos_and_devices_are_not_read(tmp_path, monkeypatch, arguments):
  monkeypatch.chdir(tmp_path)
  write_hlo(tmp_path)
  os.mkfifo(tmp_path / "fifo")
  os.mkfifo(tmp_path / "fifo.json")
  (tmp_path / "plan").mkdir()
  for name in beside.NAMES:
    os.mkfifo(tmp_path / "plan" / name)
  outcome = run(*arguments)
  assert (outcome.status, outcome.out) == (2, "")
  assert "is a FIFO or a device, not a file" in outcome.err
  num_lines = 2 if arguments[0] == "calibrate" else 1  # One for each log.
  assert outcome.err.count("\n") == num_lines


def test_a_fifo_named_by_xla_flags_is_not_read(tmp_path, monkeypatch):
  os.mkfifo(tmp_path / "fifo")
  monkeypatch.setenv("XLA_FLAGS", str(tmp_path / "fifo"))
  outcome = run("inspect", write_hlo(tmp_path), CLUSTER)
  assert_refused(outcome, "XLA_FLAGS is")
  checked = run("flags", "--check", str(tmp_path / "fifo"))
  assert (checked.status, checked.err) == (1, "")
  assert "there is no such file" in checked.out


def test_a_process_substitution_of_the_shell_is_read(tmp_path):
  (tmp_path / "step.hlo.gz").write_bytes(gzip.compress(HLO.encode()))
  inspect = f"$LAGOM inspect {CLUSTER} --format=json -q"
  report = json.loads(bash(tmp_path, f"{inspect} <(gzip -dc step.hlo.gz)"))
  assert report["module"]["num_instructions"] == 2


def test_a_cluster_of_more_than_262144_gpus_is_refused(tmp_path):
  for name in ("1000000x8xh100", "1x1000000xh100"):
    outcome = run("tune", write_hlo(tmp_path), f"--cluster={name}")
    assert_refused(outcome, f"'{name}'", "262144 at most")
  assert cluster_lib.parse("32768x8xh100").num_devices == 262144
