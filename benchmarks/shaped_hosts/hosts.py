# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine: network namespaces joined by a slow link.

    with hosts.pair(mbit_per_s=200) as pair:
      process = pair.start(0, [sys.executable, "prog.py"])

A pair of virtual Ethernet devices joins the namespaces, and a token bucket
limits what each sends. Needs root, and `ip` and `tc` of iproute2. Processes and
namespaces are gone after the block, whatever happens in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import socket
import subprocess

# The bucket passes this much at the full rate of the machine. It has to be well
# below what one collective sends.
_BURST_KB = 128
_LATENCY_MS = 50
_PREFIX = "lagom"
_HOSTS_FILES = pathlib.Path("/etc/netns")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
  """Two hosts.

  Attributes:
    names: of their namespaces.
    addresses: on the link between them.
  """

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
    """Ends what was started, with all its children."""
    for process in self._processes:
      with contextlib.suppress(ProcessLookupError):
        # A handler may catch SIGTERM.
        os.killpg(process.pid, signal.SIGKILL)
      process.wait()
      if process.stdout is not None:
        process.stdout.close()
    self._processes.clear()


def obstacle() -> str | None:
  """Why there can be no hosts here; None where there can."""
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
def pair(*, mbit_per_s: int) -> Iterator[Pair]:
  """Two hosts, joined by a link of this rate in both directions."""
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
    # gloo listens on the address that the machine's own name stands for.
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
  """Removes a namespace, its devices and its files, if they are there."""
  with contextlib.suppress(subprocess.CalledProcessError):
    _run("ip", "netns", "del", name)
  shutil.rmtree(_HOSTS_FILES / name, ignore_errors=True)


def _run(*command: str) -> str:
  return subprocess.run(
    command, check=True, capture_output=True, text=True
  ).stdout
