# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calls the NCCL tuner plugin through ctypes, like NCCL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import contextlib
import ctypes
import dataclasses
import pathlib

from hypothesis import strategies as st
import pytest

from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import table as table_lib

MIB = 2**20
VERSIONS = tuple(build.INTERFACES)
ALL_REDUCE = table_lib.KINDS["all-reduce"]
ALL_GATHER = table_lib.KINDS["all-gather"]
RING, SIMPLE = table_lib.ALGORITHMS["ring"], table_lib.PROTOCOLS["simple"]
RULE = table_lib.Rule(
  kind="all-reduce",
  num_ranks=8,
  num_nodes=1,
  min_bytes=15 * MIB,
  max_bytes=16 * MIB,
  algorithm="ring",
  protocol="simple",
  num_channels=4,
  chunk_bytes=131072,
)


@st.composite
def rules(
  draw: st.DrawFn,
  num_ranks: st.SearchStrategy[int],
  num_nodes: st.SearchStrategy[int],
  num_bytes: st.SearchStrategy[int],
) -> tuple[table_lib.Rule, ...]:
  """Ordered rules, several per communicator, some of them adjacent."""
  found = []
  communicators = st.tuples(
    st.sampled_from(sorted(table_lib.KINDS)), num_ranks, num_nodes
  )
  for kind, ranks, nodes in draw(st.sets(communicators, max_size=4)):
    bounds = sorted(draw(st.sets(num_bytes, min_size=1, max_size=9)))
    for least, most in zip(bounds[::2], bounds[1::2], strict=False):
      rule = table_lib.Rule(
        kind=kind,
        num_ranks=ranks,
        num_nodes=nodes,
        min_bytes=least,
        max_bytes=most,
        algorithm=draw(st.sampled_from(sorted(table_lib.ALGORITHMS))),
        protocol=draw(st.sampled_from(sorted(table_lib.PROTOCOLS))),
        num_channels=draw(st.integers(0, 64)),
        chunk_bytes=draw(st.integers(0, 2**31 - 1)),
      )
      found.append(rule)
  return table_lib.in_order(found)


_INT, _SIZE, _PTR = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
_INTS, _SIZES, _PTRS = map(ctypes.POINTER, (_INT, _SIZE, _PTR))
_LOG = ctypes.CFUNCTYPE(
  None, _INT, ctypes.c_ulong, ctypes.c_char_p, _INT, ctypes.c_char_p
)
_INIT_V4 = ctypes.CFUNCTYPE(_INT, _SIZE, _SIZE, _LOG, _PTRS)
_INIT_V5 = ctypes.CFUNCTYPE(
  _INT, _PTRS, ctypes.c_uint64, _SIZE, _SIZE, _LOG, _PTR, _PTR
)
_GET_COLL_INFO = ctypes.CFUNCTYPE(
  _INT, _PTR, _INT, _SIZE, _INT, _PTR, _INT, _INT, _INT, _INTS
)
_GET_CHUNK_SIZE = ctypes.CFUNCTYPE(
  _INT, _PTR, _INT, _SIZE, _INT, _INT, _INT, _SIZES
)
_FINALIZE = ctypes.CFUNCTYPE(_INT, _PTR)
_HEAD = [("name", ctypes.c_char_p)]
_TAIL = [("get_coll_info", _GET_COLL_INFO), ("finalize", _FINALIZE)]


class _V4(ctypes.Structure):
  _fields_ = [*_HEAD, ("init", _INIT_V4), *_TAIL]


class _V5(ctypes.Structure):
  _fields_ = [*_HEAD, ("init", _INIT_V5), *_TAIL]


class _V6(ctypes.Structure):
  _fields_ = [
    *_HEAD,
    ("init", _INIT_V5),
    *_TAIL,
    ("get_chunk_size", _GET_CHUNK_SIZE),
  ]


_STRUCTURES = {"v4": _V4, "v5": _V5, "v6": _V6, "v7": _V6}
COSTS = tuple(100.0 + i for i in range(21))


@dataclasses.dataclass
class Communicator:
  """The tuner of a communicator, as in NCCL."""

  interface: ctypes.Structure
  context: ctypes.c_void_p

  def choose(
    self, kind: int, num_bytes: int, costs: Sequence[float] = COSTS
  ) -> tuple[list[float], int]:
    """The costs and channels that NCCL gets back."""
    cells = (ctypes.c_float * 21)(*costs)
    num_channels = ctypes.c_int(0)
    assert 0 == self.interface.get_coll_info(
      *(self.context, kind, num_bytes, 1, ctypes.addressof(cells)),
      *(7, 3, 0, ctypes.byref(num_channels)),
    )
    return list(cells), num_channels.value

  def chosen(self, kind: int, num_bytes: int) -> tuple[int, int, int] | None:
    """(algorithm, protocol, channels) if a rule applies."""
    costs, num_channels = self.choose(kind, num_bytes)
    changed = [i for i in range(21) if costs[i] != COSTS[i]]
    if not changed:
      assert num_channels == 0
      return None
    (cell,) = changed
    assert costs[cell] == 0.0
    return cell // 3, cell % 3, num_channels

  def chunk(
    self,
    kind: int,
    share_bytes: int,
    default_bytes: int,
    algorithm: int = RING,
    protocol: int = SIMPLE,
  ) -> int:
    """The chunk size that NCCL gets back."""
    size = ctypes.c_size_t(default_bytes)
    assert 0 == self.interface.get_chunk_size(
      *(self.context, kind, share_bytes, algorithm, protocol, 1),
      ctypes.byref(size),
    )
    return size.value


@pytest.fixture(scope="session")
def plugin(tmp_path_factory) -> pathlib.Path:
  """The plugin, compiled once for all files with this fixture."""
  try:
    build.compiler()
  except build.BuildError as error:
    pytest.skip(str(error))
  library = tmp_path_factory.getbasetemp() / "plugin" / build.LIBRARY
  if library.exists():
    return library
  library.parent.mkdir()
  return build.compile_to(library, ["-Wall", "-Wextra"])


@contextlib.contextmanager
def communicator(
  plugin: pathlib.Path,
  table: pathlib.Path | None,
  *,
  version: str = "v7",
  num_ranks: int = 8,
  num_nodes: int = 1,
  log: Callable[..., None] | None = None,
  env: dict[str, str] | None = None,
) -> Iterator[Communicator]:
  variables = {"LAGOM_XLA_NCCL_TABLE": str(table or ""), **(env or {})}
  library = ctypes.CDLL(str(plugin))
  interface = _STRUCTURES[version].in_dll(library, f"ncclTunerPlugin_{version}")
  assert interface.name == b"lagom_xla"
  context = ctypes.c_void_p()
  at, callback = ctypes.byref(context), _LOG(log) if log else _LOG()
  with pytest.MonkeyPatch.context() as patch:
    for name, value in variables.items():
      patch.setenv(name, value)
    if version == "v4":
      assert interface.init(num_ranks, num_nodes, callback, at) == 0
    else:
      status = interface.init(at, 7, num_ranks, num_nodes, callback, None, None)
      assert status == 0
  yield Communicator(interface, context)
  assert interface.finalize(context) == 0


@pytest.fixture
def table(tmp_path) -> pathlib.Path:
  """A table with only `RULE`."""
  path = tmp_path / "table.bin"
  table_lib.write(path, [RULE])
  return path
