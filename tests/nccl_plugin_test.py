# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The NCCL tuner plugin, called as NCCL calls it, and by NCCL itself.

Most tests go through ctypes. The driver in C beside this file does what takes
100,000 calls or a process of its own, also with sanitizers. The real NCCL is
asked where its simulation is beside the repository (../shared) and
LAGOM_XLA_TEST_NCCL names a libnccl.so.2 of version 2.32.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import contextlib
import ctypes
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from benchmarks import plugin_call
from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import layout
from lagom_xla.apply.nccl import rules as rules_lib
from lagom_xla.apply.nccl import table as table_lib

_MIB = 2**20
_VERSIONS = tuple(build.INTERFACES)
_ALL_REDUCE = rules_lib.KINDS["all-reduce"]
_ALL_GATHER = rules_lib.KINDS["all-gather"]
_RING, _SIMPLE = rules_lib.ALGORITHMS["ring"], rules_lib.PROTOCOLS["simple"]
_RULE = rules_lib.Rule(
  kind="all-reduce",
  num_ranks=8,
  num_nodes=1,
  min_bytes=15 * _MIB,
  max_bytes=16 * _MIB,
  algorithm="ring",
  protocol="simple",
  num_channels=4,
  chunk_bytes=131072,
)
_DRIVER = pathlib.Path(__file__).with_name("nccl_plugin_driver.c")
_ORACLE = pathlib.Path(__file__).parents[2] / "shared/tools/nccl_oracle/run.sh"


# The plugin through ctypes.

_GET_COLL_INFO = ctypes.CFUNCTYPE(
  ctypes.c_int,
  ctypes.c_void_p,
  ctypes.c_int,
  ctypes.c_size_t,
  ctypes.c_int,
  ctypes.c_void_p,
  ctypes.c_int,
  ctypes.c_int,
  ctypes.c_int,
  ctypes.POINTER(ctypes.c_int),
)
_LOG = ctypes.CFUNCTYPE(
  None,
  ctypes.c_int,
  ctypes.c_ulong,
  ctypes.c_char_p,
  ctypes.c_int,
  ctypes.c_char_p,
)
_INIT_V4 = ctypes.CFUNCTYPE(
  ctypes.c_int,
  ctypes.c_size_t,
  ctypes.c_size_t,
  _LOG,
  ctypes.POINTER(ctypes.c_void_p),
)
_INIT_V5 = ctypes.CFUNCTYPE(
  ctypes.c_int,
  ctypes.POINTER(ctypes.c_void_p),
  ctypes.c_uint64,
  ctypes.c_size_t,
  ctypes.c_size_t,
  _LOG,
  ctypes.c_void_p,
  ctypes.c_void_p,
)
_FINALIZE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_GET_CHUNK_SIZE = ctypes.CFUNCTYPE(
  ctypes.c_int,
  ctypes.c_void_p,
  ctypes.c_int,
  ctypes.c_size_t,
  ctypes.c_int,
  ctypes.c_int,
  ctypes.c_int,
  ctypes.POINTER(ctypes.c_size_t),
)
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


_STRUCTURES = {"v4": _V4, "v5": _V5, "v6": _V6}
_COSTS = tuple(100.0 + i for i in range(21))


@dataclasses.dataclass
class _Communicator:
  """A communicator's tuner, as NCCL has it."""

  interface: ctypes.Structure
  context: ctypes.c_void_p

  def choose(
    self, kind: int, num_bytes: int, costs: Sequence[float] = _COSTS
  ) -> tuple[list[float], int]:
    """The costs and channels that NCCL gets back."""
    cells = (ctypes.c_float * 21)(*costs)
    num_channels = ctypes.c_int(0)
    assert 0 == self.interface.get_coll_info(
      self.context,
      kind,
      num_bytes,
      1,
      ctypes.addressof(cells),
      7,
      3,
      0,
      ctypes.byref(num_channels),
    )
    return list(cells), num_channels.value

  def chosen(self, kind: int, num_bytes: int) -> tuple[int, int, int] | None:
    """(algorithm, protocol, channels) where a rule is applied."""
    costs, num_channels = self.choose(kind, num_bytes)
    changed = [i for i in range(21) if costs[i] != _COSTS[i]]
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
    algorithm: int = _RING,
    protocol: int = _SIMPLE,
  ) -> int:
    """The chunk size that NCCL gets back."""
    size = ctypes.c_size_t(default_bytes)
    assert 0 == self.interface.get_chunk_size(
      self.context,
      kind,
      share_bytes,
      algorithm,
      protocol,
      1,
      ctypes.byref(size),
    )
    return size.value


@pytest.fixture(scope="session")
def plugin(tmp_path_factory) -> pathlib.Path:
  try:
    build.compiler()
  except build.BuildError as error:
    pytest.skip(str(error))
  folder = tmp_path_factory.mktemp("plugin")
  return build.compile_to(folder / build.LIBRARY, ["-Wall", "-Wextra"])


@contextlib.contextmanager
def _communicator(
  plugin: pathlib.Path,
  table: pathlib.Path | None,
  *,
  version: str = "v6",
  num_ranks: int = 8,
  num_nodes: int = 1,
  log: Callable[..., None] | None = None,
  env: dict[str, str] | None = None,
) -> Iterator[_Communicator]:
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
  yield _Communicator(interface, context)
  assert interface.finalize(context) == 0


@pytest.fixture
def table(tmp_path) -> pathlib.Path:
  path = tmp_path / "table.bin"
  table_lib.write(path, [_RULE])
  return path


def test_one_library_has_all_three_interfaces(plugin):
  assert build.interfaces(plugin) == ("v4", "v5", "v6")


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_rule_is_applied_to_its_sizes_alone(plugin, table, version):
  with _communicator(plugin, table, version=version) as communicator:
    for num_bytes in (15 * _MIB, 16 * _MIB):
      costs, num_channels = communicator.choose(_ALL_REDUCE, num_bytes)
      assert num_channels == 4
      assert costs[3 * _RING + _SIMPLE] == 0.0
      assert sum(a != b for a, b in zip(costs, _COSTS, strict=True)) == 1
    for num_bytes in (0, 15 * _MIB - 1, 16 * _MIB + 1, 2**63):
      assert communicator.chosen(_ALL_REDUCE, num_bytes) is None
    for kind in (-1, 0, 1, 2, 3, 5, 99):
      assert communicator.chosen(kind, 16 * _MIB) is None
  (counts,) = table_lib.read(table).counts
  assert counts == layout.Counts(num_applied=2, num_unavailable=0, num_chunks=0)


@pytest.mark.parametrize("version", _VERSIONS)
@pytest.mark.parametrize(("num_ranks", "num_nodes"), [(8, 2), (16, 1)])
def test_another_communicator_is_left_alone(
  plugin, table, version, num_ranks, num_nodes
):
  with _communicator(
    plugin, table, version=version, num_ranks=num_ranks, num_nodes=num_nodes
  ) as communicator:
    assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) is None


@pytest.mark.parametrize("cost", [-1.0, float("nan")])
def test_what_nccl_cannot_run_is_neither_chosen_nor_given_channels(
  plugin, table, cost
):
  costs = list(_COSTS)
  costs[3 * _RING + _SIMPLE] = cost
  with _communicator(plugin, table) as communicator:
    after, num_channels = communicator.choose(_ALL_REDUCE, 16 * _MIB, costs)
    assert [repr(c) for c in after] == [repr(c) for c in costs]
    assert num_channels == 0
    assert communicator.chunk(_ALL_REDUCE, 2 * _MIB, 2097152) == 2097152
  (counts,) = table_lib.read(table).counts
  assert (counts.num_applied, counts.num_unavailable) == (0, 1)


def test_a_rule_without_channels_and_chunk_leaves_them_to_nccl(plugin, table):
  rule = dataclasses.replace(_RULE, num_channels=0, chunk_bytes=0)
  table_lib.write(table, [rule])
  with _communicator(plugin, table) as communicator:
    assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) == (_RING, _SIMPLE, 0)
    assert communicator.chunk(_ALL_REDUCE, 2 * _MIB, 2097152) == 2097152


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_choice_is_the_tables(plugin, tmp_path_factory, data):
  """Many rules, against a search in the list of them."""
  rules = []
  for kind in data.draw(st.sets(st.sampled_from(sorted(rules_lib.KINDS)))):
    bounds = sorted(data.draw(st.sets(st.integers(1, 60), max_size=12)))
    for least, most in zip(bounds[::2], bounds[1::2], strict=False):
      rules.append(
        rules_lib.Rule(
          kind=kind,
          num_ranks=data.draw(st.sampled_from((8, 16))),
          num_nodes=data.draw(st.sampled_from((1, 2))),
          min_bytes=least,
          max_bytes=most,
          algorithm=data.draw(st.sampled_from(sorted(rules_lib.ALGORITHMS))),
          protocol=data.draw(st.sampled_from(sorted(rules_lib.PROTOCOLS))),
          num_channels=data.draw(st.integers(0, 64)),
        )
      )
  path = tmp_path_factory.mktemp("table") / "table.bin"
  table_lib.write(path, rules)
  with _communicator(plugin, path) as communicator:
    for kind, number in rules_lib.KINDS.items():
      for num_bytes in range(62):
        wanted = [
          (
            rules_lib.ALGORITHMS[rule.algorithm],
            rules_lib.PROTOCOLS[rule.protocol],
            rule.num_channels,
          )
          for rule in rules
          if (rule.kind, rule.num_ranks, rule.num_nodes) == (kind, 8, 1)
          and rule.min_bytes <= num_bytes <= rule.max_bytes
        ]
        chosen = communicator.chosen(number, num_bytes)
        assert ([] if chosen is None else [chosen]) == wanted


# Chunks.


@pytest.mark.parametrize(
  ("kind", "algorithm", "protocol", "asked", "nccls", "gets"),
  [
    ("all-reduce", "ring", "simple", 131072, 2097152, 131072),
    ("all-reduce", "ring", "simple", 131583, 2097152, 131072),
    ("all-reduce", "ring", "simple", 1, 2097152, 512),
    ("all-reduce", "ring", "simple", 2**31 - 1, 65536, 2097152),
    ("reduce", "ring", "simple", 2**31 - 1, 65536, 524288),
    ("all-reduce", "tree", "simple", 2**31 - 1, 65536, 524288),
    ("all-reduce", "ring", "ll", 1, 32768, 16),
    ("all-reduce", "ring", "ll", 1000000, 16, 32768),
    ("all-reduce", "ring", "ll128", 1919, 576000, 1920),
    ("all-reduce", "tree", "ll128", 2**31 - 1, 17280, 576000),
    ("all-gather", "nvls", "simple", 2**31 - 1, 16384, 131072),
    ("all-gather", "nvls", "simple", 2**31 - 1, 524288, 524288),
    ("all-reduce", "nvlstree", "simple", 262144, 32768, 131072),
    ("all-gather", "pat", "simple", 70000, 131072, 69632),
  ],
)
def test_a_chunk_is_whole_grains_and_fits_the_buffer(
  plugin, table, kind, algorithm, protocol, asked, nccls, gets
):
  rule = dataclasses.replace(
    _RULE,
    kind=kind,
    algorithm=algorithm,
    protocol=protocol,
    chunk_bytes=asked,
  )
  table_lib.write(table, [rule])
  number = rules_lib.KINDS[kind]
  pair = rules_lib.ALGORITHMS[algorithm], rules_lib.PROTOCOLS[protocol]
  with _communicator(plugin, table) as communicator:
    assert communicator.chosen(number, 16 * _MIB) == (*pair, 4)
    assert communicator.chunk(number, 4 * _MIB, nccls, *pair) == gets
  assert table_lib.read(table).counts[0].num_chunks == 1


def test_a_chunk_is_for_the_pair_that_was_chosen(plugin, table):
  with _communicator(plugin, table) as communicator:
    communicator.choose(_ALL_REDUCE, 16 * _MIB)
    assert communicator.chunk(_ALL_REDUCE, _MIB, 16384, 4, _SIMPLE) == 16384
    assert communicator.chunk(_ALL_REDUCE, _MIB, 32768, _RING, 0) == 32768
    assert communicator.chunk(_ALL_GATHER, _MIB, 2097152) == 2097152
    for protocol in (-1, 3):
      assert communicator.chunk(_ALL_REDUCE, _MIB, 7, _RING, protocol) == 7


def test_collectives_of_one_group_have_their_own_chunks(plugin, table):
  large = dataclasses.replace(
    _RULE, min_bytes=64 * _MIB, max_bytes=64 * _MIB, chunk_bytes=262144
  )
  table_lib.write(table, [_RULE, large])
  with _communicator(plugin, table) as communicator:
    for num_bytes in (64 * _MIB, 16 * _MIB):
      communicator.choose(_ALL_REDUCE, num_bytes)
    assert communicator.chunk(_ALL_REDUCE, 16 * _MIB + 1, 2097152) == 262144
    assert communicator.chunk(_ALL_REDUCE, 4 * _MIB, 2097152) == 131072


def test_a_collective_with_no_rule_keeps_its_chunk_after_one_with_a_rule(
  plugin, table
):
  with _communicator(plugin, table) as communicator:
    communicator.choose(_ALL_REDUCE, 16 * _MIB)
    assert communicator.chunk(_ALL_REDUCE, _MIB, 2097152) == 131072
    communicator.choose(_ALL_REDUCE, 8 * _MIB)
    assert communicator.chunk(_ALL_REDUCE, _MIB, 2097152) == 2097152


# Tables that are none.


def _with(content: bytes, at: int, word: int) -> bytes:
  return content[:at] + word.to_bytes(8, "little") + content[at + 8 :]


_WHOLE = layout.encode([_RULE])
_SLOT_1, _RULES_1 = 64 + 24, 4096 + 64 * 32


@pytest.mark.parametrize(
  ("content", "reason"),
  [
    pytest.param(None, b"is not used", id="missing"),
    pytest.param(b"", b"is not used", id="empty"),
    pytest.param(b"\x00" * len(_WHOLE), b"is not used", id="zeros"),
    pytest.param(_WHOLE[:-4096], b"is not used", id="cut"),
    pytest.param(_WHOLE + bytes(4096), b"is not used", id="too long"),
    pytest.param(_with(_WHOLE, 8, 2 + (64 << 32)), b"is not used", id="format"),
    pytest.param(_with(_WHOLE, 8, 1), b"is not used", id="no capacity"),
    pytest.param(_with(_WHOLE, 16, 2), b"not whole", id="other slot"),
    pytest.param(_with(_WHOLE, 16, 3), b"not whole", id="other version"),
    pytest.param(_with(_WHOLE, _SLOT_1 + 8, 2), b"not whole", id="num_rules"),
    pytest.param(_with(_WHOLE, _SLOT_1 + 8, 2**63), b"not whole", id="many"),
    pytest.param(_with(_WHOLE, _SLOT_1 + 16, 0), b"not whole", id="checksum"),
    pytest.param(_with(_WHOLE, _RULES_1 + 8, 1), b"not whole", id="torn"),
  ],
)
def test_without_a_whole_table_the_choice_is_nccls(
  plugin, tmp_path, content, reason
):
  path = tmp_path / "table.bin"
  if content is not None:
    path.write_bytes(content)
  logged = []
  with _communicator(
    plugin, path, log=lambda *message: logged.append(message)
  ) as communicator:
    assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) is None
    assert communicator.chunk(_ALL_REDUCE, _MIB, 2097152) == 2097152
  warnings = [text for level, *_, text in logged if level == 2]
  assert len(warnings) == 1
  assert reason in warnings[0]


def test_without_a_variable_there_is_no_table_and_no_warning(plugin):
  logged = []
  with _communicator(
    plugin, None, log=lambda *message: logged.append(message)
  ) as communicator:
    assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) is None
  assert [level for level, *_ in logged] == [3]


def test_a_stale_copy_is_refused_where_the_checksum_is_known(plugin, table):
  for checksum, chosen in (
    (layout.checksum([_RULE]), (_RING, _SIMPLE, 4)),
    (layout.checksum([]), None),
    ("nonsense", None),
  ):
    env = {"LAGOM_XLA_NCCL_CHECKSUM": checksum}
    with _communicator(plugin, table, env=env) as communicator:
      assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) == chosen


# A table in use.


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_running_job_follows_a_switch_and_counts_anew(plugin, table, version):
  other = dataclasses.replace(_RULE, algorithm="tree", num_channels=9)
  with _communicator(plugin, table, version=version) as communicator:
    assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) == (_RING, _SIMPLE, 4)
    for rules, chosen, num_applied in (
      ([other], (0, _SIMPLE, 9), [1]),
      ([], None, []),
      ([_RULE], (_RING, _SIMPLE, 4), [1]),
    ):
      table_lib.switch(table, rules)
      assert communicator.chosen(_ALL_REDUCE, 16 * _MIB) == chosen
      counts = table_lib.read(table).counts
      assert [count.num_applied for count in counts] == num_applied


def test_the_choices_can_be_logged(plugin, table):
  logged = []
  with _communicator(
    plugin,
    table,
    log=lambda *message: logged.append(message[-1]),
    env={"LAGOM_XLA_NCCL_LOG": "1"},
  ) as communicator:
    communicator.choose(_ALL_REDUCE, 16 * _MIB)
    communicator.chunk(_ALL_REDUCE, _MIB, 2097152)
    communicator.choose(_ALL_REDUCE, 1)
  assert [text.split(b": ", 1)[1] for text in logged[2:4]] == [
    b"%s of %zu bytes: %s/%s, %d channels",
    b"%s, %zu bytes on a channel: chunks of %zu bytes",
  ]
  assert b"applied %llu times" in logged[4]  # At the end, for each rule.


def test_communicators_share_a_table_and_its_counters(plugin, table):
  with contextlib.ExitStack() as stack:
    communicators = [
      stack.enter_context(_communicator(plugin, table, version=version))
      for version in _VERSIONS
    ]
    for communicator in communicators:
      communicator.choose(_ALL_REDUCE, 16 * _MIB)
  assert table_lib.read(table).counts[0].num_applied == 3


# Another process.


_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@dataclasses.dataclass(frozen=True)
class _Driver:
  program: pathlib.Path
  plugin: pathlib.Path

  def start(
    self, *arguments: object, user: int | None = None
  ) -> subprocess.Popen[str]:
    return subprocess.Popen(
      [str(self.program), str(self.plugin), *map(str, arguments)],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
      user=user,
    )


def _finished(process: subprocess.Popen[str]) -> list[int]:
  output, error = process.communicate(timeout=120)
  assert process.returncode == 0, error
  return [int(word) for word in output.split()]


def _compile_driver(folder: pathlib.Path, flags: Sequence[str]) -> _Driver:
  program = folder / "driver"
  command = [
    *build.compiler(),
    "-std=c11",
    "-O1",
    "-g",
    *flags,
    *("-o", str(program), str(_DRIVER), "-ldl", "-lpthread"),
  ]
  subprocess.run(command, check=True, capture_output=True)
  library = build.compile_to(folder / build.LIBRARY, ["-g", *flags])
  return _Driver(program, library)


@pytest.fixture(scope="session")
def sanitized(plugin, tmp_path_factory) -> _Driver:
  try:
    return _compile_driver(tmp_path_factory.mktemp("sanitized"), _SANITIZERS)
  except subprocess.CalledProcessError as error:
    pytest.skip(f"this compiler has no sanitizers: {error.stderr[-200:]!r}")


def _fuzzed_rules() -> list[rules_lib.Rule]:
  return [
    dataclasses.replace(
      _RULE,
      kind=kind,
      num_ranks=num_ranks,
      num_nodes=num_ranks // 8,
      min_bytes=1024 << 2 * i,
      max_bytes=1536 << 2 * i,
      algorithm=algorithm,
      protocol=protocol,
      num_channels=8 * i,
      chunk_bytes=500 << 2 * i,
    )
    for num_ranks in (8, 16)
    for kind in rules_lib.KINDS
    for i, (algorithm, protocol) in enumerate(
      [("ring", "ll"), ("tree", "ll128"), ("nvls", "simple"), ("pat", "simple")]
    )
  ]


def test_no_damage_to_a_table_makes_a_choice_out_of_range(sanitized, tmp_path):
  """100,000 mutations, half of them signed; under the sanitizers."""
  path = tmp_path / "table.bin"
  table_lib.write(path, _fuzzed_rules())
  (num_applied,) = _finished(sanitized.start("fuzz", path, 100_000, 20261120))
  assert num_applied > 100_000


def test_answers_are_one_tables_or_the_others_while_it_is_switched(
  sanitized, tmp_path
):
  first = dataclasses.replace(
    _RULE, min_bytes=_MIB, max_bytes=_MIB, chunk_bytes=65536
  )
  second = dataclasses.replace(
    first, algorithm="tree", protocol="ll", num_channels=9, chunk_bytes=16384
  )
  more = [dataclasses.replace(_RULE, num_ranks=n) for n in range(20, 50)]
  path = tmp_path / "table.bin"
  table_lib.write(path, [first])
  process = sanitized.start("follow", path, 1.5)
  num_switches = 0
  while process.poll() is None:
    table_lib.switch(path, [[second, *more], [first]][num_switches % 2])
    num_switches += 1
    time.sleep(0.001)
  num_first, num_second, num_others = _finished(process)
  assert num_switches > 20
  assert num_first > 100 and num_second > 100
  assert num_others == 0


def test_a_table_that_cannot_be_written_is_read(plugin):
  """As from a Kubernetes ConfigMap."""
  rule = dataclasses.replace(
    _RULE, min_bytes=_MIB, max_bytes=_MIB, chunk_bytes=65536
  )
  with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    driver = _compile_driver(folder, [])
    table = folder / "table.bin"
    table_lib.write(table, [rule])
    table.chmod(0o444)
    folder.chmod(0o755)
    nobody = 65534 if os.geteuid() == 0 else None
    num_applied, *others = _finished(
      driver.start("follow", table, 0.02, user=nobody)
    )
    assert num_applied > 0 and others == [0, 0]
    assert table_lib.read(table).counts[0].num_applied == 0


def test_a_call_takes_less_than_200_ns(plugin, tmp_path):
  program = plugin_call.compile_loop(tmp_path)
  table = tmp_path / "table.bin"
  table_lib.write(table, plugin_call.rules(4096))
  times = plugin_call.measure(program, plugin, table, 4097 * _MIB)
  assert 0 < times.choice_ns < 200
  assert 0 < times.chunk_ns < 200
  assert table_lib.read(table).counts[2048].num_applied == 1_000_000


# The real NCCL.


def _oracle(
  plugin: pathlib.Path | None, table: pathlib.Path, **env: str
) -> dict[str, str]:
  """What NCCL 2.32.3 says of each case on one node of eight H100s."""
  library = os.environ.get("LAGOM_XLA_TEST_NCCL", "")
  if not _ORACLE.is_file():
    pytest.skip("no shared/tools/nccl_oracle beside the repository")
  if not pathlib.Path(library).is_file():
    pytest.skip("LAGOM_XLA_TEST_NCCL names no libnccl.so.2 of NCCL 2.32.3")
  if shutil.which("gdb") is None:
    pytest.skip("there is no gdb, which drives NCCL without a GPU")
  output = subprocess.run(
    [_ORACLE, library, "h100", "1", *([plugin] if plugin else [])],
    env={
      **os.environ,
      "CHUNKS": "1",
      "LAGOM_XLA_NCCL_TABLE": str(table),
      **env,
    },
    check=True,
    capture_output=True,
    text=True,
  ).stdout
  said = {}
  for line in output.splitlines():
    if match := re.match(r"(\w+ +2\^ ?\d+) rc=0 +(\w+ +\w+ +nCh= *\d+)", line):
      said[" ".join(match[1].split())] = " ".join(match[2].split())
    elif match := re.match(r"CHUNK (.*?) (\[.*)", line):
      said[match[1]] = match[2]
  return said


@pytest.fixture(scope="module")
def nccls_own(plugin, tmp_path_factory) -> dict[str, str]:
  return _oracle(None, tmp_path_factory.mktemp("none"))


def _only(version: str, folder: pathlib.Path) -> pathlib.Path:
  """The plugin with one interface, as an older NCCL sees it."""
  script = folder / f"{version}.map"
  script.write_text(f"{{ global: ncclTunerPlugin_{version}; local: *; }};")
  return build.compile_to(
    folder / f"{version}.so", [f"-Wl,--version-script={script}"]
  )


@pytest.mark.parametrize("version", _VERSIONS)
def test_nccl_itself_does_what_the_table_says(nccls_own, tmp_path, version):
  gather = dataclasses.replace(
    _RULE,
    kind="all-gather",
    min_bytes=2**26,
    max_bytes=2**26,
    protocol="ll128",
    num_channels=8,
    chunk_bytes=100_000,
  )
  reduce = dataclasses.replace(
    _RULE, min_bytes=2**28, max_bytes=2**28, num_channels=6, chunk_bytes=65537
  )
  too_many = dataclasses.replace(
    _RULE, kind="reduce-scatter", max_bytes=2**24, num_channels=40
  )
  impossible = dataclasses.replace(
    _RULE, algorithm="pat", min_bytes=2**20, max_bytes=2**20
  )
  path = tmp_path / "table.bin"
  table_lib.write(path, [gather, reduce, too_many, impossible])
  tuned = _oracle(_only(version, tmp_path), path)
  changed = {key: v for key, v in tuned.items() if v != nccls_own[key]}
  chunks = changed.pop("AllReduce RING SIMPLE", "")
  assert changed == {
    "AllGather 2^26": "RING LL128 nCh= 8",
    "AllReduce 2^28": "RING SIMPLE nCh= 6",
    "ReduceScatter 2^24": "RING SIMPLE nCh= 24",
  }
  # (log2 of the share, chunk, steps, slice)
  assert chunks.startswith("[(14, 65536, 56, 32768)" if version == "v6" else "")
  assert bool(chunks) == (version == "v6")
  table = table_lib.read(path)
  assert {
    rule.kind + rule.algorithm: (count.num_applied, count.num_unavailable)
    for rule, count in zip(table.rules, table.counts, strict=True)
  } == {
    "all-gatherring": (1, 0),
    "reduce-scatterring": (1, 0),
    "all-reducepat": (0, 1),
    "all-reducering": (1, 0),
  }


def test_nccl_takes_the_variables_that_stand_in_for_the_plugin(
  nccls_own, tmp_path
):
  said = _oracle(
    None,
    tmp_path,
    NCCL_ALGO="allgather:ring;allreduce:tree,ring",
    NCCL_PROTO="allreduce:simple",
  )
  assert nccls_own["AllReduce 2^28"] == "NVLS SIMPLE nCh= 16"
  assert said["AllReduce 2^28"] == "RING SIMPLE nCh= 24"
  assert nccls_own["AllReduce 2^10"] == "RING LL nCh= 1"
  assert said["AllReduce 2^10"] == "RING SIMPLE nCh= 1"
  assert said["AllGather 2^24"] == nccls_own["AllGather 2^24"]
