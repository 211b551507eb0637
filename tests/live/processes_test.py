# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Processes whose NCCL would choose differently are detected.

Each process has the environment of a plan's env.sh on its node, from a real
shell, where the plugin, the table or NCCL's own settings may be broken.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import re
import socket
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import jax
from jax.experimental import custom_partitioning
import jax.numpy as jnp
import pytest

from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import state
from lagom_xla.apply.nccl import table as table_lib
from lagom_xla.costs.nccl import environment
from lagom_xla.live import processes
from plan_nodes import Node
from plan_nodes import maker
from sample_plan import PLAN

_HOST = socket.gethostname()


@pytest.fixture
def new_node(tmp_path) -> Callable[..., Node]:
  return maker(tmp_path)


def _difference(*environs: dict[str, str]) -> str | None:
  votes = {n: processes.vote(environ) for n, environ in enumerate(environs)}
  return processes.difference(votes)


def test_nodes_with_the_same_plan_in_different_folders_do_not_differ(new_node):
  here, there = new_node().environ(), new_node().environ()
  assert here["LAGOM_XLA_NCCL_TABLE"] != there["LAGOM_XLA_NCCL_TABLE"]
  assert _difference(here, there) is None
  assert _difference({}, {}) is None


def test_a_node_with_a_channel_cap_instead_of_the_plugin_is_reported(new_node):
  node, without = new_node(), new_node()
  without.has_plugin(1)
  capped = without.environ()
  assert capped["NCCL_MAX_CTAS"] == "8"
  said = _difference(node.environ(), node.environ(), capped) or ""
  assert "NCCL_TUNER_PLUGIN is lagom_xla's (source" in said
  assert "not set in process 2 on" in said
  assert "NCCL_MAX_CTAS is not set in processes 0-1 on" in said
  assert "8 in process 2 on" in said
  assert _HOST in said
  assert _difference(capped, capped) is None


def test_a_table_damaged_after_env_sh_is_reported(new_node):
  node, damaged = new_node(), new_node()
  before, after = node.environ(), damaged.environ()
  damaged.table.write_bytes(damaged.table.read_bytes()[:100])
  said = _difference(before, after) or ""
  assert "the NCCL table is the one with checksum" in said
  assert f"refused ({damaged.table} is not a table: it is too short.)" in said
  node.table.unlink()  # Now neither process has a table.
  assert _difference(before, after) is None


def test_a_table_switched_after_env_sh_is_reported(new_node):
  node, switched = new_node(), new_node()
  before, after = node.environ(), switched.environ()
  rules = table_lib.read(switched.table).rules
  table_lib.switch(switched.table, rules)
  said = _difference(before, after) or ""
  assert "refused" in said and "LAGOM_XLA_NCCL_CHECKSUM is" in said


@pytest.mark.parametrize("num_bytes", [0, 1000, 9000])
def test_a_truncated_plugin_on_one_node_is_reported(
  new_node, tmp_path, num_bytes
):
  broken = tmp_path / build.LIBRARY
  broken.write_bytes(build.ensure().read_bytes()[:num_bytes])
  node, other = new_node(), new_node()
  other.has_plugin(0, broken)
  said = _difference(node.environ(), other.environ()) or ""
  assert f"a plugin that does not load ({broken} " in said
  assert "in process 1 on" in said


@pytest.mark.parametrize("name", state.DECISIVE)
def test_a_differing_setting_that_decides_nccls_choices_is_reported(name):
  said = _difference({name: "1"}, {name: "2"}) or ""
  assert f"{name} is 1 in process 0 on {_HOST} and 2 in process 1" in said


def test_nccl_config_files_are_read_with_nccls_precedence(tmp_path):
  file = tmp_path / "nccl.conf"
  file.write_text("#NCCL_PROTO=LL\nNCCL_ALGO=ring\nNCCL_ALGO=tree\nnothing\n")
  said = _difference({"NCCL_CONF_FILE": str(file)}, {}) or ""
  assert "NCCL_ALGO is ring in process 0" in said
  assert "NCCL_PROTO" not in said
  # The environment first, then the user's file, then the machine's.
  machine = tmp_path / "etc"
  machine.write_text("NCCL_ALGO=nvls\nNCCL_NTHREADS=256")
  environ = {"NCCL_CONF_FILE": str(file), "NCCL_NTHREADS": "512"}
  read = environment.as_nccl_reads(environ, machine)
  assert (read["NCCL_ALGO"], read["NCCL_NTHREADS"]) == ("ring", "512")
  assert environment.as_nccl_reads({"NCCL_CONF_FILE": "/none"}, machine) == {
    "NCCL_CONF_FILE": "/none",
    "NCCL_ALGO": "nvls",
    "NCCL_NTHREADS": "256",
  }


@given(st.lists(st.sampled_from(["ring", "tree", "nvls"]), min_size=2))
def test_a_difference_is_reported_exactly_if_values_differ(algorithms):
  said = _difference(*({"NCCL_ALGO": name} for name in algorithms))
  assert (said is None) == (len(set(algorithms)) == 1)
  for name in set(algorithms):
    assert said is None or f"{name} in process" in said


_Make = Callable[..., Node]


def _bare(new_node: _Make) -> dict[str, str]:
  return {}


def _planned(new_node: _Make, **changes: Any) -> dict[str, str]:
  return new_node(dataclasses.replace(PLAN, **changes)).environ()


def _refused(new_node: _Make) -> dict[str, str]:
  """The environment of a node where env.sh failed and the launcher went on."""
  node = new_node()
  node.has_plugin(2)
  return node.environ()


def _with_another_tuner(new_node: _Make) -> dict[str, str]:
  return new_node().environ(NCCL_TUNER_PLUGIN="/opt/libmy.so")


_WITHOUT_TABLE = functools.partial(_planned, nccl_settings=(), nccl_env={})
_WITH_NINE = functools.partial(_planned, nccl_env={"NCCL_MAX_CTAS": "9"})


@pytest.mark.parametrize(
  ("here", "there", "words"),
  [
    (_planned, _refused, ":plugin in process 0 .*:refused in process 1"),
    (_bare, _planned, "LAGOM_XLA_ENV is not set in process 0"),
    (_planned, _WITH_NINE, "LAGOM_XLA_ENV is "),
    (_planned, _with_another_tuner, ":other_tuner .*libmy.so in process 1"),
    (_WITHOUT_TABLE, _bare, ":no_table in process 0"),
  ],
)
def test_different_outcomes_of_env_sh_are_reported(
  here, there, words, new_node
):
  assert re.search(words, _difference(here(new_node), there(new_node)) or "")


_FLAG = "--xla_gpu_nccl_collective_max_nchannels"


def test_differing_gpu_xla_flags_are_reported_but_dump_flags_are_not():
  here = {"XLA_FLAGS": f"--xla_dump_to=/a {_FLAG}=4 {_FLAG}=8"}
  said = _difference(here, {"XLA_FLAGS": "--xla_dump_to=/b"}) or ""
  assert f"{_FLAG} is 8 in process 0" in said and "dump" not in said
  option = "--xla_gpu_all_reduce_combine_threshold_bytes"
  one, other = ({"XLA_FLAGS": f"{option}={size}"} for size in (2**20, 2**28))
  said = _difference(one, other) or ""
  assert f"{option} is {2**20} in process 0" in said
  # Spelling, order and explicit defaults make no difference.
  hiding = "--xla_gpu_enable_latency_hiding_scheduler"
  assert (
    _difference(
      {"XLA_FLAGS": f"{hiding} {option}=8"},
      {"XLA_FLAGS": f"{option}=8 {hiding}=true --xla_gpu_autotune_level=4"},
    )
    is None
  )


def test_a_jax_setting_that_changes_the_program_is_reported():
  here = processes.vote({})
  with jax.enable_x64(True):
    there = processes.vote({})
  said = processes.difference({0: here, 1: there}) or ""
  assert "jax_enable_x64 is False in process 0" in said
  assert "True in process 1" in said
  assert processes.difference({0: here, 1: here}) is None


def test_settings_that_may_differ_between_nodes_are_not_reported(monkeypatch):
  here = {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO"}
  assert _difference(here, {"NCCL_IB_HCA": "mlx5_0"}) is None
  # Tuners are compared by file name; ours also has a short name.
  name = "NCCL_TUNER_PLUGIN"
  assert _difference({name: "/lib/libmy.so"}, {name: "/opt/libmy.so"}) is None
  monkeypatch.setenv("LD_LIBRARY_PATH", str(build.ensure().parent))
  long = {name: str(build.ensure())}
  assert _difference({name: "lagom_xla"}, long) is None


def _partitioned_by_python() -> jax.stages.Lowered:
  """A step in which XLA asks a function of this process how to partition."""
  sine = custom_partitioning.custom_partitioning(jnp.sin)
  sine.def_partition(
    infer_sharding_from_operands=lambda *_: None,
    partition=lambda *_: None,
    sharding_rule="i -> i",
  )
  mesh = jax.sharding.Mesh(jax.devices()[:2], ("x",))
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  x = jax.ShapeDtypeStruct((4,), jnp.float32, sharding=rows)
  return jax.jit(lambda x: sine(x)).lower(x)


def test_pointers_to_python_functions_in_a_program_are_ignored():
  one, other = (_partitioned_by_python() for _ in range(2))
  assert "CustomSPMDPartitioning" in one.as_text()
  assert one.as_text() != other.as_text()
  votes = {n: processes.vote({}, it) for n, it in enumerate((one, other))}
  assert processes.difference(votes) is None
