# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL's variables in this process, and how they limit its choice.

NCCL adds the variables in its files to the environment, unless they are already
set: first those of the user's file, then those of the machine's
(src/misc/param.cc). So a node with its own /etc/nccl.conf has settings that no
launcher shows.

Some variables exclude algorithms and protocols from NCCL's choice and from a
tuner's. Sites set them because a link or a switch needs them, so they stay set,
and all predicted times respect them. NCCL_ALGO and NCCL_PROTO are lists by
function, such as "ring;allreduce:^tree" (parseList in src/graph/tuning.cc, the
same from NCCL 2.24 to 2.32). Predicted times ignore the variables in
`UNCOSTED`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import os
import pathlib
import pwd
import re

from lagom_xla import errors

_MACHINE_FILE = pathlib.Path("/etc/nccl.conf")
_FILE = "NCCL_CONF_FILE"
_MAX_CHARACTERS = 1023  # NCCL cuts longer names and values.

# A collective's kind -> the name of its function in NCCL's lists.
FUNCTIONS: Mapping[str, str] = {
  "collective-broadcast": "broadcast",
  "reduce": "reduce",
  "all-gather": "allgather",
  "reduce-scatter": "reducescatter",
  "all-reduce": "allreduce",
}
_ALGORITHMS = (
  *("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree"),
  "pat",
)
_PROTOCOLS = ("ll", "ll128", "simple")
# A switch -> the algorithms that it turns off if it is 0.
_SWITCHES = {
  "NCCL_NVLS_ENABLE": frozenset({"nvls", "nvlstree"}),
  "NCCL_PAT_ENABLE": frozenset({"pat"}),
}
# Sizes of buffers and of their chunks, and the CTAs of NVLS.
_SIZES = (
  *("NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE"),
  *("NCCL_NVLS_NCHANNELS", "NCCL_NVLS_CHUNKSIZE"),
  *("NCCL_NVLSTREE_MAX_CHUNKSIZE", "NCCL_P2P_NET_CHUNKSIZE"),
  *("NCCL_P2P_PCI_CHUNKSIZE", "NCCL_P2P_NVL_CHUNKSIZE"),
)
# The variables that predicted times respect.
COSTED = ("NCCL_ALGO", "NCCL_PROTO", *_SWITCHES, *_SIZES)
# Other variables that change how NCCL runs collectives: more algorithms,
# channels and threads (src/graph/connect.cc, paths.cc, src/init.cc).
UNCOSTED = (
  *("NCCL_COLLNET_ENABLE", "NCCL_CTA_POLICY", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
  *("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_P2P_NCHANNELS"),
  *("NCCL_MAX_P2P_NCHANNELS", "NCCL_NCHANNELS_PER_NET_PEER"),
  *("NCCL_CGA_CLUSTER_SIZE", "NCCL_NTHREADS", "NCCL_LL128_NTHREADS"),
  *("NCCL_THREAD_THRESHOLDS", "NCCL_CHUNK_SIZE"),
)
# Variables that disable links; links are the cluster's to describe.
_LINKS = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE")
# Variables that disable links by value, with those values in lower case.
_LINKS_BY_VALUE: Mapping[str, tuple[str, ...]] = {
  "NCCL_P2P_LEVEL": ("loc", "0"),
  "NCCL_NET_GDR_LEVEL": ("loc", "0"),
  "NCCL_MNNVL_ENABLE": ("0",),
  "NCCL_NET": ("socket",),
}
_CAPS = ("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS")
TUNER = "NCCL_TUNER_PLUGIN"


def as_nccl_reads(
  environ: Mapping[str, str], machine_file: pathlib.Path = _MACHINE_FILE
) -> Mapping[str, str]:
  """`environ`, completed from NCCL's files as NCCL does it."""
  user_file = _user_file(environ)
  of_user = {} if user_file is None else _in_file(user_file)
  return {**_in_file(machine_file), **of_user, **environ}


def _user_file(environ: Mapping[str, str]) -> pathlib.Path | None:
  """NCCL_CONF_FILE, or else .nccl.conf in the home directory from passwd."""
  named = environ.get(_FILE)
  if named:
    return pathlib.Path(named)
  try:
    return pathlib.Path(pwd.getpwuid(os.getuid()).pw_dir) / ".nccl.conf"
  except KeyError:
    return None


def _in_file(file: pathlib.Path) -> dict[str, str]:
  """The variables that a file sets; as in NCCL, none if it is unreadable."""
  try:
    # NCCL treats a carriage return as part of a value.
    text = file.read_bytes().decode(errors="surrogateescape")
  except OSError:
    return {}
  found: dict[str, str] = {}
  for line in text.split("\n"):
    name, equals, value = line.partition("=")
    if equals and not line.startswith("#"):
      # The first line that sets a variable wins.
      found.setdefault(name[:_MAX_CHARACTERS], value[:_MAX_CHARACTERS])
  return found


def _here(names: Sequence[str]) -> Mapping[str, str]:
  """Those of `names` that are set in this process, as NCCL reads them."""
  known = as_nccl_reads(os.environ)
  return {name: known[name] for name in names if known.get(name)}


def costed() -> Mapping[str, str]:
  """The variables set in this process that predicted times respect."""
  return {
    name: value
    for name, value in _here(COSTED).items()
    if (
      not _number(value)
      if name in _SWITCHES
      else name not in _SIZES or size(name)
    )
  }


def size(name: str) -> int | None:
  """The value of one of `_SIZES` in this process; None if NCCL decides."""
  return _size(name, os.environ.get(_FILE), os.environ.get(name))


@functools.lru_cache(maxsize=256)
def _size(name: str, file: str | None, value: str | None) -> int | None:
  own = {_FILE: file, name: value}
  known = as_nccl_reads({n: v for n, v in own.items() if v is not None})
  number = _number(known.get(name, ""))
  return number if 0 < number < 2**31 else None


def uncosted() -> Mapping[str, str]:
  """The variables set in this process that predicted times ignore.

  NCCL_TUNER_PLUGIN is among them. NCCL ignores numbers of channels that are not
  positive (src/init.cc), so they are left out.
  """
  numbers = (*_LINKS, *(n for n in UNCOSTED if "CTAS" in n or "CHANNELS" in n))
  found = {
    name: value
    for name, value in _here((*UNCOSTED, *_LINKS, TUNER)).items()
    if (_number(value) > 0 if name in numbers else value != "none")
  }
  return found | {
    name: value
    for name, value in _here(tuple(_LINKS_BY_VALUE)).items()
    if value.lower() in _LINKS_BY_VALUE[name]
  }


def caps() -> Mapping[str, int]:
  """The caps on channels in this process, by variable."""
  found = uncosted()
  return {name: _number(found[name]) for name in _CAPS if name in found}


def in_words(variables: Mapping[str, str]) -> str:
  """Variables with their values, in shell syntax."""
  *others, last = [f"{n}={v}" for n, v in variables.items()] or ["no variable"]
  return f"{', '.join(others)} and {last}" if others else last


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
  """The choice that the variables leave NCCL for a function.

  Attributes:
    algorithms: algorithms that it may use.
    protocols: protocols that it may use.
    trusts_ll128: whether LL128 is listed. NCCL then uses it even on links that
      it does not know to be safe.
    is_listed: whether NCCL_ALGO or NCCL_PROTO is set for the function, which
      overrides a cloud's scripts.
  """

  algorithms: frozenset[str] = frozenset(_ALGORITHMS)
  protocols: frozenset[str] = frozenset(_PROTOCOLS)
  trusts_ll128: bool = False
  is_listed: bool = False

  def allows(self, algorithm: str, protocol: str) -> bool:
    """Whether NCCL may use the pair."""
    return algorithm in self.algorithms and protocol in self.protocols


def choice(kind: str) -> Choice:
  """The choice that this process leaves NCCL for a kind of collective.

  Raises:
    FlagsError: NCCL would refuse NCCL_ALGO or NCCL_PROTO.
  """
  return _choice(kind, *map(os.environ.get, (_FILE, *COSTED)))


@functools.lru_cache(maxsize=256)
def _choice(kind: str, *values: str | None) -> Choice:
  names = (_FILE, *COSTED)
  own = {n: v for n, v in zip(names, values, strict=True) if v is not None}
  known = as_nccl_reads(own)
  function = FUNCTIONS[kind]
  algorithms = _listed("NCCL_ALGO", known, _ALGORITHMS).get(function)
  protocols = _listed("NCCL_PROTO", known, _PROTOCOLS).get(function)
  off = {
    algorithm
    for name, algorithms_off in _SWITCHES.items()
    if known.get(name) and not _number(known[name])
    for algorithm in algorithms_off
  }
  return Choice(
    algorithms=frozenset(_ALGORITHMS if algorithms is None else algorithms)
    - off,
    protocols=frozenset(_PROTOCOLS) if protocols is None else protocols,
    trusts_ll128=protocols is not None and "ll128" in protocols,
    is_listed=not (algorithms is None and protocols is None),
  )


def _number(text: str) -> int:
  """The number that C's strtoll reads; 0 if there is none."""
  found = re.match(r"\s*[-+]?(0[xX][0-9a-fA-F]+|\d+)", text)
  if found is None:
    return 0
  digits = found[0].strip()
  is_octal = digits.lstrip("+-").isdecimal() and digits.lstrip("+-")[0] == "0"
  octal = re.match(r"[-+]?[0-7]+", digits)
  return int(octal[0], 8) if is_octal and octal else int(digits, 0)


def check() -> None:
  """Checks NCCL_ALGO and NCCL_PROTO before NCCL creates a communicator.

  Raises:
    FlagsError: NCCL would refuse one of them.
  """
  choice("all-reduce")


def _listed(
  name: str, variables: Mapping[str, str], elements: Sequence[str]
) -> Mapping[str, frozenset[str]]:
  """The elements that a list allows, by function; only functions it sets."""
  allowed: dict[str, frozenset[str]] = {}
  text = variables.get(name, "")

  def refused(reason: str) -> errors.FlagsError:
    return errors.FlagsError(
      f"NCCL would end the job because {name} is {text!r}: {reason}."
    )

  for entry in filter(None, text.split(";")):
    prefix, *lists = filter(None, entry.split(":")) or [""]
    if not lists and not text.startswith(entry):
      raise refused(f"only the first part may omit a function, not {entry!r}")
    listed = (lists or [prefix])[0]
    functions = [
      function
      for function in FUNCTIONS.values()
      if not lists or function == prefix.lower()
    ]
    if not functions:
      raise refused(f"NCCL has no function {prefix!r}")
    words = {word.lower() for word in listed.removeprefix("^").split(",")}
    if unknown := sorted(words - {"", *elements}):
      raise refused(f"{unknown[0]!r} is not one of {', '.join(elements)}")
    if listed.startswith("^"):
      words = {*elements} - words
    allowed |= dict.fromkeys(functions, frozenset(words - {""}))
  return allowed
