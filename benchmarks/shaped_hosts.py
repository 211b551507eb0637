# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine, connected by a slow link, with a JAX process each.

    with shaped_hosts.pair_of_hosts(mbit_per_s=200) as pair:
      process = pair.start(0, [sys.executable, "prog.py"])

A pair of virtual Ethernet devices connects two network namespaces, and a token
bucket limits the rate of each. Needs root, and `ip` and `tc` of iproute2. The
block always removes its processes and namespaces at the end.

JAX processes on the two hosts run real collectives and compute. The slow link
makes communication long enough to hide, and XLA:CPU hides it if a collective
follows a product (`benchmarks/live/cpu/behind_products.py`). `run` starts the
processes; each begins with `joined`. Steps alternate, and `ratio` compares
their times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
from typing import Any

import jax
import numpy as np

from lagom_xla import errors

# The bucket passes this much at the machine's full rate. It must be well below
# the bytes of one collective.
_BURST_KB = 128
_LATENCY_MS = 50
_PREFIX = "lagom"
_HOSTS_FILES = pathlib.Path("/etc/netns")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
  """Two hosts: their namespaces, and addresses on the link between them."""

  names: tuple[str, str]
  addresses: tuple[str, str]
  _processes: list[subprocess.Popen[str]] = dataclasses.field(
    default_factory=list
  )

  def start(
    self, host: int, command: Sequence[str], environment: Mapping[str, str]
  ) -> subprocess.Popen[str]:
    """Starts a command on a host; its standard output is a pipe."""
    process = subprocess.Popen(
      ["ip", "netns", "exec", self.names[host], *command],
      env={**os.environ, **environment},
      stdout=subprocess.PIPE,
      text=True,
      start_new_session=True,
    )
    self._processes.append(process)
    return process

  def kill(self) -> None:
    """Kills the started processes and all their children."""
    for process in self._processes:
      with contextlib.suppress(ProcessLookupError):
        # A handler may catch SIGTERM.
        os.killpg(process.pid, signal.SIGKILL)
      process.wait()
      if process.stdout is not None:
        process.stdout.close()
    self._processes.clear()


def obstacle() -> str | None:
  """Why hosts cannot be made here; None if they can."""
  if os.geteuid() != 0:
    return "two hosts on one machine need root, to make network namespaces"
  for tool in ("ip", "tc"):
    if shutil.which(tool) is None:
      return (
        f"two hosts on one machine need iproute2, and there is no {tool}:"
        " apt-get install iproute2"
      )
  name = f"{_PREFIX}{os.getpid()}probe"
  try:
    _run("ip", "netns", "add", name)
  except subprocess.CalledProcessError as error:
    reason = error.stderr.strip().partition("\n")[0]
    return f"this machine makes no network namespaces ({reason})"
  _run("ip", "netns", "del", name)
  return None


@contextlib.contextmanager
def pair_of_hosts(*, mbit_per_s: int) -> Iterator[Pair]:
  """Two hosts, connected by a link of this rate in both directions."""
  _remove_left_over()
  pid = os.getpid()
  # Each run has an address range of its own.
  third = pid % 250 + 1
  made = Pair(
    names=(f"{_PREFIX}{pid}a", f"{_PREFIX}{pid}b"),
    addresses=(f"10.77.{third}.1", f"10.77.{third}.2"),
  )
  try:
    _make(made, mbit_per_s)
    with _terminable():
      yield made
  finally:
    made.kill()
    for name in made.names:
      _remove(name)


def _make(made: Pair, mbit_per_s: int) -> None:
  (first, second), pid = made.names, os.getpid()
  devices = (f"lx{pid}a", f"lx{pid}b")
  _run("ip", "netns", "add", first)
  _run("ip", "netns", "add", second)
  _run(
    *("ip", "link", "add", devices[0], "netns", first, "type", "veth"),
    *("peer", "name", devices[1], "netns", second),
  )
  for name, device, address in zip(
    made.names, devices, made.addresses, strict=True
  ):
    _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", device)
    _run("ip", "-n", name, "link", "set", "lo", "up")
    _run("ip", "-n", name, "link", "set", device, "up")
    _run(
      *("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", device),
      *("root", "tbf", "rate", f"{mbit_per_s}mbit"),
      *("burst", f"{_BURST_KB}kb", "latency", f"{_LATENCY_MS}ms"),
    )
    # gloo listens on the address of the machine's own name.
    folder = _HOSTS_FILES / name
    folder.mkdir(parents=True)
    (folder / "hosts").write_text(
      f"127.0.0.1 localhost\n{address} {socket.gethostname()}\n"
    )


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
  """Lets SIGTERM unwind the stack, so that nothing is left behind."""

  def stop(number: int, frame: object) -> None:
    del frame
    raise SystemExit(128 + number)

  before = signal.signal(signal.SIGTERM, stop)
  try:
    yield
  finally:
    signal.signal(signal.SIGTERM, before)


def _remove_left_over() -> None:
  """Removes the namespaces of runs that were killed."""
  for line in _run("ip", "netns", "list").splitlines():
    name = line.partition(" ")[0]
    pid = name.removeprefix(_PREFIX)[:-1]
    if name.startswith(_PREFIX) and pid.isdigit():
      if not pathlib.Path("/proc", pid).exists():
        _remove(name)


def _remove(name: str) -> None:
  """Removes a namespace, its devices and its files, if they exist."""
  with contextlib.suppress(subprocess.CalledProcessError):
    _run("ip", "netns", "del", name)
  shutil.rmtree(_HOSTS_FILES / name, ignore_errors=True)


def _run(*command: str) -> str:
  return subprocess.run(
    command, check=True, capture_output=True, text=True
  ).stdout


# Threads of XLA:CPU's pool: 1 cannot hide anything, 2 can hide everything, and
# more would compete for two cores.
_NUM_THREADS = 2
_PORT = 12921
# Notes for tables of such measurements.
MEASURED_ON = (
  "Measured: XLA:CPU with two threads a host, gloo, two network namespaces on"
  " one machine with a rate limit between them."
)
TO_BE_TRUSTED = "Do not trust figures at a load above 10."
_ENVIRONMENT = {
  "JAX_PLATFORMS": "cpu",
  "PJRT_NPROC": str(_NUM_THREADS),
  "OMP_NUM_THREADS": "1",
  "XLA_FLAGS": "",
}


def run(
  module: str, task: Mapping[str, Any], *, mbit_per_s: int
) -> Sequence[dict[str, Any]]:
  """Runs a module on two fresh hosts; returns the result of each.

  The module gets a JSON object: the task with `rank` and `address` for
  `jax.distributed.initialize`. The last line that it prints is its result, as
  JSON.

  Raises:
    LagomError: a host ended without a result.
  """
  with pair_of_hosts(mbit_per_s=mbit_per_s) as pair:
    address = f"{pair.addresses[0]}:{_PORT}"
    processes = [
      pair.start(
        rank,
        [
          *(sys.executable, "-m", module),
          json.dumps({**task, "rank": rank, "address": address}),
        ],
        _ENVIRONMENT,
      )
      for rank in range(len(pair.names))
    ]
    return [_result(process.communicate()[0]) for process in processes]


def _result(printed: str) -> dict[str, Any]:
  """A host's result: its last line, because gloo prints other lines."""
  lines: Sequence[str] = printed.splitlines()
  try:
    return json.loads(lines[-1])
  except (IndexError, json.JSONDecodeError):
    raise errors.LagomError(
      "A host ended before it measured anything; its output is above."
    ) from None


_NUM_HOSTS = 2
_PR_SET_PDEATHSIG = 1  # prctl(2)


def joined() -> dict[str, Any]:
  """Joins the other host; returns the task on the command line."""
  # A host ends with the process that started it.
  ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
  task = json.loads(sys.argv[1])
  jax.config.update("jax_cpu_collectives_implementation", "gloo")
  jax.distributed.initialize(task["address"], _NUM_HOSTS, task["rank"])
  return task


def in_turns(names: Sequence[str], num_rounds: int) -> Iterator[str]:
  """Names, round by round; each comes first in equally many rounds."""
  for turn in range(num_rounds):
    shift = turn % len(names)
    yield from (*names[shift:], *names[:shift])


def bits(outputs: Any) -> list[bytes]:
  """This host's part of a step's outputs as bytes, to compare them."""
  return [
    np.asarray(shard.data).tobytes()
    for leaf in jax.tree.leaves(outputs)
    for shard in leaf.addressable_shards
  ]


# One launch: form -> host -> seconds of each round.
Launch = Mapping[str, Sequence[Sequence[float]]]

_NUM_RESAMPLES = 2000


def slower_host(launch: Launch, form: str) -> np.ndarray:
  """Seconds of each round on the host that took longer."""
  return np.max(np.asarray(launch[form], float), axis=0)


def ratio(launches: Sequence[Launch], form: str, over: str) -> dict[str, float]:
  """Time of a form over that of another, with a 95 % bootstrap interval.

  In each launch, both forms alternated, so rounds are pairs, and a resample
  takes the same rounds of both. Launches differ, so they are resampled, too.
  The result is the geometric mean over launches of the ratio of medians.
  """
  pairs = [
    (slower_host(launch, form), slower_host(launch, over))
    for launch in launches
  ]
  rng = np.random.default_rng(0)

  def resampled() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for index in rng.integers(len(pairs), size=len(pairs)):
      one, other = pairs[index]
      rounds = rng.integers(len(one), size=len(one))
      yield one[rounds], other[rounds]

  def mean(some: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    logs = [np.log(np.median(a) / np.median(b)) for a, b in some]
    return float(np.exp(np.mean(logs)))

  found = [mean(resampled()) for _ in range(_NUM_RESAMPLES)]
  low, high = map(float, np.quantile(found, (0.025, 0.975)))
  return {"ratio": mean(pairs), "low": low, "high": high}


def median(launches: Sequence[Launch], form: str) -> float:
  """Seconds of a form: the median over launches of their medians."""
  return float(
    np.median([np.median(slower_host(launch, form)) for launch in launches])
  )
