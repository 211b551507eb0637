# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Variables of NCCL as it will read them: of the process, and of its files.

NCCL sets what its files say in the environment, where that does not say it
already: first the user's file, then the machine's (src/misc/param.cc). So a
node whose /etc/nccl.conf is not that of the others has settings that no
launcher shows.
"""

from __future__ import annotations

from collections.abc import Mapping
import os
import pathlib
import pwd

_MACHINE_FILE = pathlib.Path("/etc/nccl.conf")
_MAX_CHARACTERS = 1023  # NCCL cuts longer names and values.

# Those by which each rank decides for itself how a collective is run, and that
# NCCL's ranks do not exchange when a communicator starts: algorithm and
# protocol (src/graph/tuning.cc), channels and threads (src/graph/connect.cc,
# paths.cc, src/init.cc), buffers and the chunks they are cut in (src/init.cc,
# src/enqueue.cc). Interfaces, topology and debugging may well be a node's own.
DECISIVE = (
  "NCCL_ALGO",
  "NCCL_PROTO",
  "NCCL_PAT_ENABLE",
  "NCCL_NVLS_ENABLE",
  "NCCL_COLLNET_ENABLE",
  "NCCL_CTA_POLICY",
  "NCCL_MIN_CTAS",
  "NCCL_MAX_CTAS",
  "NCCL_MIN_NCHANNELS",
  "NCCL_MAX_NCHANNELS",
  "NCCL_MIN_P2P_NCHANNELS",
  "NCCL_MAX_P2P_NCHANNELS",
  "NCCL_NCHANNELS_PER_NET_PEER",
  "NCCL_NVLS_NCHANNELS",
  "NCCL_CGA_CLUSTER_SIZE",
  "NCCL_NTHREADS",
  "NCCL_LL128_NTHREADS",
  "NCCL_THREAD_THRESHOLDS",
  "NCCL_BUFFSIZE",
  "NCCL_LL_BUFFSIZE",
  "NCCL_LL128_BUFFSIZE",
  "NCCL_CHUNK_SIZE",
  "NCCL_NVLS_CHUNKSIZE",
  "NCCL_NVLSTREE_MAX_CHUNKSIZE",
  "NCCL_P2P_NET_CHUNKSIZE",
  "NCCL_P2P_PCI_CHUNKSIZE",
  "NCCL_P2P_NVL_CHUNKSIZE",
)


def read(
  environ: Mapping[str, str], machine_file: pathlib.Path = _MACHINE_FILE
) -> Mapping[str, str]:
  """The environment as NCCL completes it.

  Args:
    environ: of the process.
    machine_file: the machine's settings.

  Returns:
    Variable -> value, also those that are not NCCL's.
  """
  user_file = _user_file(environ)
  files = [machine_file] if user_file is None else [machine_file, user_file]
  completed: dict[str, str] = {}
  for file in files:  # What comes later wins.
    completed.update(_in_file(file))
  return {**completed, **environ}


def _user_file(environ: Mapping[str, str]) -> pathlib.Path | None:
  """NCCL_CONF_FILE, or else .nccl.conf in the home that the system knows."""
  named = environ.get("NCCL_CONF_FILE")
  if named:
    return pathlib.Path(named)
  try:
    return pathlib.Path(pwd.getpwuid(os.getuid()).pw_dir) / ".nccl.conf"
  except KeyError:
    return None


def _in_file(file: pathlib.Path) -> dict[str, str]:
  """What a file sets; nothing where it cannot be read, as for NCCL."""
  try:
    lines = file.read_text(errors="surrogateescape").split("\n")
  except OSError:
    return {}
  found: dict[str, str] = {}
  for line in lines:
    name, equals, value = line.partition("=")
    if equals and not line.startswith("#"):
      # The first line that sets a variable stands.
      found.setdefault(name[:_MAX_CHARACTERS], value[:_MAX_CHARACTERS])
  return found
