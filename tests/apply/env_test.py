# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""env.sh applies a plan in real shells, and prints what it does."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import shutil
import subprocess
import sys

from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from lagom_xla.apply import env
from lagom_xla.apply import files
from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import table
from lagom_xla.cli.commands import flags as flags_command
from lagom_xla.compile import config as config_lib
from lagom_xla.flags import syntax
from lagom_xla.passes.program import form as form_lib
from sample_plan import GATHER
from sample_plan import PLAN
import sourced

_DEFAULT = dataclasses.replace(
  PLAN, xla=config_lib.DEFAULT, nccl_env={}, nccl_settings=()
)
_WITHOUT_TABLE = dataclasses.replace(PLAN, nccl_settings=())


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
  return sourced.write_plan(tmp_path)


@pytest.fixture
def shell(tmp_path) -> sourced.Shell:
  return sourced.shell_with_plugin(tmp_path)


@pytest.fixture
def shell_without_plugin(tmp_path) -> sourced.Shell:
  shell = sourced.Shell(tmp_path / "bin")
  shell.has_command('echo "There is no C compiler." >&2; exit 1')
  return shell


def test_env_sh_sets_flags_plugin_table_and_checksum(folder, shell):
  found, said = shell.source(folder / "env.sh")
  checksum = table.checksum(table.read(folder / "nccl_table.bin").rules)
  assert {**found, "XLA_FLAGS": found["XLA_FLAGS"].strip()} == {
    "XLA_FLAGS": sourced.FLAG,
    "NCCL_TUNER_PLUGIN": sourced.PLUGIN,
    "LAGOM_XLA_NCCL_TABLE": str(folder / "nccl_table.bin"),
    "LAGOM_XLA_NCCL_CHECKSUM": checksum,
  }
  assert said == ""


@pytest.mark.parametrize(
  ("cwd", "file"),
  [
    ("my runs", "plan/env.sh"),
    ("my runs/plan", "env.sh"),
    ("bin", "../my runs/plan/env.sh"),
  ],
)
def test_env_sh_finds_the_table_from_any_working_folder(
  tmp_path, folder, shell, cwd, file
):
  # With CDPATH, `cd` prints where it goes.
  for cdpath in ({}, {"CDPATH": str(tmp_path)}):
    if "/" not in file:  # Bash would look in PATH first.
      file = f"{folder}/{file}"
    found, _ = shell.source(file, cwd=tmp_path / cwd, **cdpath)
    path = pathlib.Path(found["LAGOM_XLA_NCCL_TABLE"])
    assert path.is_absolute()
    assert path.samefile(folder / "nccl_table.bin")


def test_env_sh_sets_the_channel_cap_if_the_plugin_cannot_be_built(
  folder, shell_without_plugin
):
  found, said = shell_without_plugin.source(folder / "env.sh")
  assert found.keys() == {"XLA_FLAGS", "NCCL_MAX_CTAS"}
  assert found["NCCL_MAX_CTAS"] == "8"
  assert "There is no C compiler." in said
  assert "NCCL gets one cap" in said
  files.write(dataclasses.replace(PLAN, nccl_env={}), folder)
  found, _ = shell_without_plugin.source(folder / "env.sh")
  assert found.keys() == {"XLA_FLAGS"}


def test_another_tuner_plugin_is_kept_unless_replacing_is_requested(
  folder, shell
):
  theirs = {"NCCL_TUNER_PLUGIN": "libnccl-tuner.so"}
  found, said = shell.source(folder / "env.sh", **theirs)
  assert found.keys() == {"XLA_FLAGS", "NCCL_TUNER_PLUGIN"}
  assert found["NCCL_TUNER_PLUGIN"] == "libnccl-tuner.so"
  assert "kept NCCL_TUNER_PLUGIN=libnccl-tuner.so" in said
  assert "without this plan's settings" in said
  found, said = shell.source(
    folder / "env.sh", LAGOM_XLA_REPLACE_TUNER="1", **theirs
  )
  assert found["NCCL_TUNER_PLUGIN"] == sourced.PLUGIN
  assert said == ""


def test_the_tuner_plugin_of_an_earlier_plan_is_replaced_silently(
  tmp_path, folder, shell
):
  files.write(PLAN, tmp_path / "earlier")
  earlier, _ = shell.source(tmp_path / "earlier/env.sh")
  found, said = shell.source(folder / "env.sh", **earlier)
  assert found["LAGOM_XLA_NCCL_TABLE"] == str(folder / "nccl_table.bin")
  assert said == ""
  twice, said = shell.source(folder / "env.sh", times=2)
  assert {**twice, "XLA_FLAGS": ""} == {**found, "XLA_FLAGS": ""}
  assert said == ""


@pytest.mark.parametrize("name", sourced.SHELLS)
def test_a_later_plan_replaces_flags_and_variables_of_an_earlier_one(
  tmp_path, folder, shell, name
):
  mine = "--xla_gpu_autotune_level=2"
  other = config_lib.XlaConfig(options={GATHER: 1})
  for later, names in (
    (dataclasses.replace(_WITHOUT_TABLE, xla=other), {"NCCL_MAX_CTAS"}),
    (_DEFAULT, set()),
  ):
    files.write(later, tmp_path / "later")
    both = tmp_path / "both.sh"
    both.write_text(f". '{folder}/env.sh'\n. '{tmp_path}/later/env.sh'\n")
    found, said = shell.source(both, shell=name, XLA_FLAGS=mine)
    assert found.keys() == {"XLA_FLAGS", *names}
    flags = [mine] if later is _DEFAULT else [mine, f"--{GATHER}=1"]
    assert found["XLA_FLAGS"].split() == flags
    assert "this plan replaces one" in said


def test_flags_are_appended_once_however_often_env_sh_is_sourced(
  tmp_path, folder, shell
):
  files.write(_WITHOUT_TABLE, tmp_path / "capped")
  for file in (folder / "env.sh", tmp_path / "capped/env.sh"):
    for there in ({}, {"XLA_FLAGS": "--xla_a=1"}, {"XLA_FLAGS": sourced.FLAG}):
      once, _ = shell.source(file, **there)
      twice, said = shell.source(file, times=2, **there)
      assert twice == once
      assert once["XLA_FLAGS"].split().count(sourced.FLAG) == 1
      assert said == ""
  other = config_lib.XlaConfig(options={GATHER: 1})
  files.write(dataclasses.replace(PLAN, xla=other), tmp_path / "other")
  found = {}
  for file in (folder, tmp_path / "other", folder):
    found, _ = shell.source(file / "env.sh", **found)
  assert found["XLA_FLAGS"].split()[-1] == sourced.FLAG


@pytest.mark.parametrize("name", ["NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS"])
def test_an_inherited_channel_cap_is_unset_with_a_message(folder, shell, name):
  expected, _ = shell.source(folder / "env.sh")
  found, said = shell.source(folder / "env.sh", **{name: "2"})
  assert found == expected
  assert "NCCL_MAX_CTAS" not in found
  assert f"{name}" in said and "unset" in said


def test_env_sh_with_a_damaged_table_fails_and_sets_nothing(
  tmp_path, folder, shell
):
  build.ensure()  # The shell below has no compiler.
  shell.has_command(f'exec "{sys.executable}" -m lagom_xla "$@"')
  path = str(pathlib.Path(__file__).parents[2])
  found, said = shell.source(folder / "env.sh", PYTHONPATH=path)
  assert found["LAGOM_XLA_NCCL_TABLE"] == str(folder / "nccl_table.bin")
  assert said == ""
  table_path = folder / "nccl_table.bin"
  table_path.write_bytes(table_path.read_bytes()[:100])
  with pytest.raises(subprocess.CalledProcessError) as failed:
    shell.source(folder / "env.sh", PYTHONPATH=path)
  assert failed.value.returncode == 2
  assert f"{table_path}" in failed.value.stderr
  assert "the plan was not applied" in failed.value.stderr
  # A shell that continues after the error has nothing set.
  lax = f'. "{folder}/env.sh" || env -0'
  done = subprocess.run(
    [shutil.which("bash") or "bash", "-c", lax],
    env={"PATH": str(tmp_path / "bin"), "PYTHONPATH": path},
    capture_output=True,
    text=True,
    check=True,
  )
  names = {line.partition("=")[0] for line in done.stdout.split("\0")}
  assert names.isdisjoint(sourced.VARIABLES)


def test_zsh_sources_env_sh_like_bash(folder, shell):
  found, said = shell.source(folder / "env.sh", shell="zsh")
  assert found["LAGOM_XLA_NCCL_TABLE"] == str(folder / "nccl_table.bin")
  assert found["NCCL_TUNER_PLUGIN"] == sourced.PLUGIN
  assert said == ""


@pytest.mark.parametrize("name", ["dash", "busybox"])
def test_other_shells_get_flags_and_the_cap_with_a_message(folder, shell, name):
  found, said = shell.source(folder / "env.sh", shell=name)
  assert found.keys() == {"XLA_FLAGS", "NCCL_MAX_CTAS"}
  assert "this is neither" in said
  assert "Use bash or zsh" in (folder / "env.sh").read_text()


# Earlier XLA_FLAGS.


@pytest.mark.parametrize("name", sourced.SHELLS)
def test_plan_flags_precede_the_word_at_which_xla_stops_reading(
  folder, shell, name
):
  found, said = shell.source(
    folder / "env.sh",
    shell=name,
    XLA_FLAGS="--xla_a=1 --xla_b='c d' NCCL_DEBUG=INFO --xla_e=2",
  )
  assert found["XLA_FLAGS"] == (
    f"--xla_a=1 --xla_b='c d' {sourced.FLAG} NCCL_DEBUG=INFO --xla_e=2"
  )
  assert "XLA stops reading XLA_FLAGS at NCCL_DEBUG=INFO" in said


_TEXTS = st.text("ab '\"\\=-\n", max_size=8).map(lambda text: f"--a{text}")


@pytest.mark.parametrize("name", sourced.SHELLS)
@settings(
  max_examples=15,
  suppress_health_check=[HealthCheck.function_scoped_fixture],
  deadline=None,
)
@given(text=_TEXTS)
def test_plan_flags_are_appended_after_the_flags_that_xla_reads(
  folder, shell, name, text
):
  found, _ = shell.source(folder / "env.sh", shell=name, XLA_FLAGS=text)
  before, rest = syntax.parse(text)
  after, rest_after = syntax.parse(found["XLA_FLAGS"])
  assert after[:-1] == before
  assert str(after[-1]) == sourced.FLAG
  assert rest_after == rest


@pytest.mark.parametrize("name", sourced.SHELLS)
def test_flags_of_a_file_are_copied_into_xla_flags(
  tmp_path, folder, shell, name
):
  file = tmp_path / "my flags"
  file.write_text("--xla_a=1\n--xla_b=2\n")
  given_flags = {"XLA_FLAGS": str(file)}
  found, said = shell.source(folder / "env.sh", shell=name, **given_flags)
  assert found["XLA_FLAGS"].split() == ["--xla_a=1", "--xla_b=2", sourced.FLAG]
  assert f"XLA_FLAGS named the file {file}" in said


def _refused(
  shell: sourced.Shell, file: pathlib.Path, name: str, **env: str
) -> str:
  """The message if env.sh sets nothing; its status stops a script."""
  with pytest.raises(subprocess.CalledProcessError) as failed:
    shell.run('set -e; . "$1"', file, shell=name, env=env)
  assert failed.value.returncode == 2
  lax = shell.run('. "$1" || :', file, shell=name, env=env)
  left = sourced.environ_of(lax)
  kept = {name: left[name] for name in sourced.VARIABLES if name in left}
  assert kept == env
  return lax.stderr


@pytest.mark.parametrize("name", sourced.SHELLS)
@pytest.mark.parametrize("flags", ["absent.txt", "NCCL_DEBUG=INFO --xla_a=1"])
def test_xla_flags_at_which_xla_aborts_are_refused(folder, shell, name, flags):
  said = _refused(shell, folder / "env.sh", name, XLA_FLAGS=flags)
  assert f"XLA_FLAGS is '{flags}', neither a flag nor a" in said


@pytest.mark.parametrize("name", sourced.SHELLS)
def test_another_jax_version_is_refused_unless_allowed(folder, shell, name):
  file = folder / "env.sh"
  shell.has_command('echo "jax 0.1.0, jaxlib 0.1.0"', "python")
  assert "and this is jax 0.1.0, jaxlib 0.1.0" in _refused(shell, file, name)
  found, _ = shell.source(file, shell=name, LAGOM_XLA_OTHER_JAX="1")
  assert found["XLA_FLAGS"] == sourced.FLAG
  # The plan's version, as reported by the Python here.
  shell.has_command(f'exec "{sys.executable}" "$@"', "python")
  found, _ = shell.source(file, shell=name)
  assert found["XLA_FLAGS"] == sourced.FLAG


# Variables that NCCL prefers to a table.


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_nccl_variables_that_override_settings_are_kept_and_named(
  folder, shell, name
):
  for variable, value in (
    ("NCCL_ALGO", "Ring"),
    ("NCCL_PROTO", "LL"),
    ("NCCL_NVLS_ENABLE", "0"),
  ):
    there = {variable: value}
    done = shell.run(
      'set -eu; . "$1"', folder / "env.sh", shell=name, env=there
    )
    assert sourced.environ_of(done)[variable] == value
    assert (
      f"NCCL prefers {variable}={value} to this plan's settings, which were"
      " made under no"
    ) in done.stderr
  _, said = shell.source(folder / "env.sh", shell=name, NCCL_NVLS_ENABLE="1")
  assert said == ""


def test_nccl_variables_that_a_plan_was_made_under_are_not_named(
  tmp_path, shell
):
  under = {"NCCL_ALGO": "ring;allreduce:^tree"}
  plan = dataclasses.replace(PLAN, nccl_variables=under)
  files.write(plan, tmp_path / "plan")
  _, said = shell.source(tmp_path / "plan/env.sh", **under)
  assert said == ""
  _, said = shell.source(tmp_path / "plan/env.sh")
  assert f"which were made under NCCL_ALGO={under['NCCL_ALGO']}" in said


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_variables_of_nccls_configuration_files_are_found(
  tmp_path, folder, shell, name
):
  file = tmp_path / "nccl.conf"
  file.write_text("NCCL_MAX_CTAS=4\nNCCL_PROTO=Simple\n")
  there = {"NCCL_CONF_FILE": str(file)}
  found, said = shell.source(folder / "env.sh", shell=name, **there)
  assert found["NCCL_MAX_CTAS"] == ""  # Only "" overrides the 4 of the file.
  assert "NCCL's files have 4" in said
  assert "NCCL prefers NCCL_PROTO=Simple to" in said
  # NCCL takes an empty variable before its files.
  emptied = {"NCCL_MAX_CTAS": "", "NCCL_PROTO": ""}
  found, said = shell.source(folder / "env.sh", shell=name, **there, **emptied)
  assert (found.get("NCCL_MAX_CTAS", ""), said) == ("", "")
  file.write_text("NCCL_TUNER_PLUGIN=theirs\n")
  found, said = shell.source(folder / "env.sh", shell=name, **there)
  assert found.keys() == {"XLA_FLAGS"}
  assert "kept NCCL_TUNER_PLUGIN=theirs" in said


def test_the_aws_tuner_is_suggested_where_an_aws_network_is_set(folder, shell):
  for there in ({"FI_PROVIDER": "efa"}, {"NCCL_NET_PLUGIN": "aws-ofi"}):
    _, said = shell.source(folder / "env.sh", **there)
    assert "set NCCL_TUNER_PLUGIN=libnccl-tuner-ofi.so." in said


def test_a_plan_that_changes_nothing_sets_nothing(tmp_path, shell):
  files.write(_DEFAULT, tmp_path / "plan")
  assert shell.source(tmp_path / "plan/env.sh") == ({}, "")


def test_values_with_quotes_and_spaces_reach_the_environment_unchanged(
  tmp_path, shell
):
  value = "a b'c\"d$e`f"
  plan = dataclasses.replace(
    _WITHOUT_TABLE,
    xla=config_lib.XlaConfig(options={"xla_dump_to": value}),
    nccl_env={"NCCL_MAX_CTAS": value},
  )
  files.write(plan, tmp_path / "plan")
  found, _ = shell.source(tmp_path / "plan/env.sh")
  ((flag,), rest) = syntax.parse(found["XLA_FLAGS"])
  assert (flag.name, flag.value, rest) == ("xla_dump_to", value, "")
  assert found["NCCL_MAX_CTAS"] == value


def test_options_that_cannot_be_set_are_only_comments(tmp_path, shell):
  options = {"xla_dump_t": "x\nexit 3", GATHER: "z\nexit 3"}
  xla = config_lib.XlaConfig(options=options)
  plan = dataclasses.replace(_DEFAULT, xla=xla)
  files.write(plan, tmp_path / "plan")
  assert shell.source(tmp_path / "plan/env.sh") == ({}, "")
  text = (tmp_path / "plan/env.sh").read_text()
  assert "xla_dump_t" in text and GATHER in text


@pytest.mark.parametrize("name", sourced.SHELLS)
def test_the_flags_command_sets_the_same_as_env_sh_without_a_plugin(
  tmp_path, folder, shell_without_plugin, capsys, name
):
  parser = argparse.ArgumentParser()
  flags_command.add(parser.add_subparsers())
  arguments = parser.parse_args(["flags", str(folder)])
  arguments.function(arguments)
  printed = tmp_path / "printed"
  printed.write_text(capsys.readouterr().out)
  for flags in ("--xla_a=1", "--xla_a=1 NCCL_DEBUG=INFO"):
    there = {"XLA_FLAGS": flags}
    expected, _ = shell_without_plugin.source(
      folder / "env.sh", shell=name, **there
    )
    found, said = shell_without_plugin.source(printed, shell=name, **there)
    assert found == expected
    assert found.keys() == {"XLA_FLAGS", "NCCL_MAX_CTAS"}
    assert bool(said) == ("NCCL_DEBUG" in flags)


def test_env_sh_of_a_rewritten_program_points_to_lagom_xla_tune():
  form = form_lib.Form(strands="rotated", slices={"mlp\nrm -rf": 4})
  xla = config_lib.XlaConfig(program=form, options={GATHER: 1})
  text = env.script(
    dataclasses.replace(PLAN, xla=xla), table_checksum="0123456789abcdef"
  )
  assert "lagom_xla.tune(plan=...)" in text
  (line,) = [line for line in text.splitlines() if "strands rotated" in line]
  assert line.startswith("# ")
  assert "mlp rm -rf in 4 pieces" in line


def test_env_sh_names_the_clouds_whose_tuner_it_replaces(tmp_path, folder):
  text = (folder / "env.sh").read_text()
  assert "Google" in text and "AWS" in text
  assert "LAGOM_XLA_REPLACE_TUNER=1" in text
  # A plan without a tuner replaces none.
  files.write(_WITHOUT_TABLE, tmp_path / "plan")
  assert "AWS" not in (tmp_path / "plan/env.sh").read_text()
