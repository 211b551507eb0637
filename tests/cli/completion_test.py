# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""`lagom-xla completion`, by shells that complete, and other ways in."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from commands import run
import lagom_xla

# What bash does at a TAB behind these words, printed.
_TAB = """\
source {script}
COMP_WORDS=({words}) COMP_CWORD={index}
_comp=$(complete -p lagom-xla); _comp=${{_comp#*-F }}
${{_comp%% *}} lagom-xla "${{COMP_WORDS[COMP_CWORD]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  path = tmp_path_factory.mktemp("bash") / "completion.bash"
  path.write_text(run("completion", "bash").out)
  return path


def _completed(script: pathlib.Path, *words: str) -> set[str]:
  quoted = " ".join(f"'{word}'" for word in words)
  tab = _TAB.format(script=script, words=quoted, index=len(words) - 1)
  done = subprocess.run(
    ["bash", "-c", tab], capture_output=True, text=True, check=True
  )
  return set(done.stdout.split())


def test_bash_completes_the_commands_that_help_lists(bash_script):
  listed = re.search(r"\{([\w,]+)\}", run("--help").out)
  assert listed is not None
  assert _completed(bash_script, "lagom-xla", "") == set(listed[1].split(","))
  assert _completed(bash_script, "lagom-xla", "ins") == {"inspect"}


def test_bash_completes_the_options_of_a_command(bash_script):
  found = _completed(bash_script, "lagom-xla", "tune", "--clu")
  assert found == {"--cluster"}


def test_bash_completes_choices(bash_script):
  found = _completed(bash_script, "lagom-xla", "schema", "pl")
  assert found == {"plan"}


def test_zsh_reads_its_script(tmp_path: pathlib.Path):
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


def test_without_shtab_the_message_says_what_to_install(
  monkeypatch: pytest.MonkeyPatch,
):
  monkeypatch.setitem(sys.modules, "shtab", None)
  done = run("completion", "bash")
  assert done.status == 2 and not done.out
  assert done.err.endswith("pip install 'lagom_xla[completion]'.\n")


def test_version_is_that_of_the_package():
  done = run("--version")
  assert (done.status, done.out) == (0, f"lagom-xla {lagom_xla.__version__}\n")


def test_python_runs_the_package_as_the_command():
  done = subprocess.run(
    [sys.executable, "-m", "lagom_xla", "--version"],
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stdout == run("--version").out
