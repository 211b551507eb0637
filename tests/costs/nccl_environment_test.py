# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL's variables limit its own choices and a tuner's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.costs import nccl
from lagom_xla.costs.nccl import environment

_NODE = cluster_lib.parse("1x8xh100")
_RANKS = nccl.Communicator(num_ranks=8, num_nodes=1)
_MIB = 2**20


@pytest.fixture(autouse=True)
def _no_file(monkeypatch):
  """Ignores the configuration files of this machine."""
  monkeypatch.setenv("NCCL_CONF_FILE", "/none")


def _chosen(kind: str, num_bytes: int = 64 * _MIB) -> str:
  setting = nccl.default_setting(_NODE, _RANKS, kind, num_bytes)
  return f"{setting.algorithm} {setting.protocol}"


@pytest.mark.parametrize(
  ("variables", "gather", "reduction"),
  [
    ({}, "ring simple", "nvls simple"),
    ({"NCCL_NVLS_ENABLE": "0"}, "ring simple", "ring simple"),
    ({"NCCL_NVLS_ENABLE": "1"}, "ring simple", "nvls simple"),
    # C parses "off" as 0.
    ({"NCCL_NVLS_ENABLE": "off"}, "ring simple", "ring simple"),
    ({"NCCL_NVLS_ENABLE": ""}, "ring simple", "nvls simple"),
    ({"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}, "ring ll", "ring ll"),
    ({"NCCL_ALGO": "^nvls"}, "ring simple", "ring simple"),
    ({"NCCL_ALGO": "allreduce:ring"}, "ring simple", "ring simple"),
    ({"NCCL_ALGO": "ring;allreduce:TREE"}, "ring simple", "tree simple"),
    ({"NCCL_ALGO": "RING;allreduce:^ring"}, "ring simple", "nvls simple"),
    ({"NCCL_PROTO": "^Simple"}, "ring ll128", "ring ll128"),
  ],
)
def test_nccl_chooses_among_algorithms_that_its_variables_allow(
  monkeypatch, variables, gather, reduction
):
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  assert (_chosen("all-gather"), _chosen("all-reduce")) == (gather, reduction)


@pytest.mark.parametrize(
  ("variables", "kind", "num_channels", "chunk_kib"),
  [
    ({}, "all-gather", 24, 2048),
    ({"NCCL_BUFFSIZE": "1048576"}, "all-gather", 24, 512),
    ({"NCCL_BUFFSIZE": "-1"}, "all-gather", 24, 2048),
    ({"NCCL_PROTO": "LL", "NCCL_LL_BUFFSIZE": "0x40000"}, "all-gather", 24, 16),
    ({}, "all-reduce", 16, 128),
    ({"NCCL_NVLS_NCHANNELS": "8"}, "all-reduce", 8, 128),
    ({"NCCL_NVLS_CHUNKSIZE": "65536"}, "all-reduce", 16, 64),
    ({}, "collective-permute", 32, 512),
    ({"NCCL_P2P_NVL_CHUNKSIZE": "262144"}, "collective-permute", 32, 256),
  ],
)
def test_nccl_variables_set_channels_buffers_and_chunks(
  monkeypatch, variables, kind, num_channels, chunk_kib
):
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  setting = nccl.default_setting(_NODE, _RANKS, kind, 2**30)
  assert setting.num_channels == num_channels
  assert setting.chunk_bytes == chunk_kib * 2**10
  ours = {n: v for n, v in variables.items() if v != "-1"}
  assert environment.costed() == ours and not environment.uncosted()


def test_variables_that_remove_links_are_reported_as_not_costed(monkeypatch):
  monkeypatch.setenv("NCCL_P2P_LEVEL", "LOC")
  monkeypatch.setenv("NCCL_NET_GDR_LEVEL", "PHB")
  monkeypatch.setenv("NCCL_NET", "Socket")
  expected = {"NCCL_P2P_LEVEL": "LOC", "NCCL_NET": "Socket"}
  assert environment.uncosted() == expected


def test_nccls_files_set_variables_missing_from_the_environment(
  monkeypatch, tmp_path
):
  file = tmp_path / "nccl.conf"
  file.write_text("NCCL_ALGO=ring\nNCCL_PROTO=LL\n")
  monkeypatch.setenv("NCCL_CONF_FILE", str(file))
  monkeypatch.setenv("NCCL_PROTO", "Simple")
  assert _chosen("all-reduce") == "ring simple"
  assert environment.costed() == {"NCCL_ALGO": "ring", "NCCL_PROTO": "Simple"}


def test_a_carriage_return_in_nccls_files_is_part_of_the_value(
  monkeypatch, tmp_path
):
  file = tmp_path / "nccl.conf"
  file.write_bytes(b"NCCL_DEBUG=INFO\r\nNCCL_ALGO=ring\r\n")
  monkeypatch.setenv("NCCL_CONF_FILE", str(file))
  with pytest.raises(errors.FlagsError, match=r"'ring.*r' is not one of tree"):
    environment.check()


def test_ll128_listed_in_nccl_proto_is_used_even_on_unsafe_links(
  monkeypatch,
):
  l40s = cluster_lib.parse("1x2xl40s")
  ranks = nccl.Communicator(num_ranks=2, num_nodes=1)
  assert ("ring", "ll128") not in nccl.candidates(l40s, ranks, "all-gather")
  monkeypatch.setenv("NCCL_PROTO", "allgather:LL128")
  assert nccl.candidates(l40s, ranks, "all-gather") == (("ring", "ll128"),)


def test_nccl_algo_replaces_the_choice_of_a_clouds_scripts(monkeypatch):
  tcpx = cluster_lib.parse("2xa3_highgpu_8g")
  ranks = nccl.Communicator(num_ranks=16, num_nodes=2)
  assert nccl.candidates(tcpx, ranks, "all-reduce") == (("ring", "simple"),)
  monkeypatch.setenv("NCCL_ALGO", "tree")
  found = {a for a, _ in nccl.candidates(tcpx, ranks, "all-reduce")}
  assert found == {"tree"}


def test_a_list_that_leaves_a_collective_no_algorithm_is_an_error(monkeypatch):
  monkeypatch.setenv("NCCL_ALGO", "Tree")
  assert _chosen("all-reduce") == "tree simple"
  with pytest.raises(errors.FlagsError, match="NCCL_ALGO=Tree leaves NCCL"):
    _chosen("all-gather")


@pytest.mark.parametrize(
  ("text", "what"),
  [
    ("rign", "'rign' is not one of tree, ring, coll"),
    ("ring, tree", "' tree' is not one of"),
    ("ring;tree", "only the first part"),
    ("alltoall:ring", "no function 'alltoall'"),
    ("allreduce:", "'allreduce' is not one of"),
  ],
)
def test_a_list_that_nccl_rejects_is_an_error(monkeypatch, text, what):
  monkeypatch.setenv("NCCL_ALGO", text)
  with pytest.raises(errors.FlagsError, match=what):
    environment.check()


_NAMES = st.lists(st.sampled_from(["tree", "Ring", "NVLS", "pat"]), min_size=1)


@given(listed=_NAMES, kind=st.sampled_from(list(environment.FUNCTIONS)))
def test_a_list_and_its_inverse_partition_all_algorithms(listed, kind):
  names = ",".join(listed)
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("NCCL_ALGO", names)
    taken = environment.choice(kind).algorithms
    patch.setenv("NCCL_ALGO", f"^{names}")
    left = environment.choice(kind).algorithms
    patch.delenv("NCCL_ALGO")
    assert taken == {name.lower() for name in listed}
    assert taken | left == environment.choice(kind).algorithms
    assert not taken & left
