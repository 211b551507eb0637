# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""MPS, under which kernels of two processes run on one GPU at a time.

Without it the processes take turns, and NCCL kernels that wait for each other
spin away theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from benchmarks.gpu import part as part_lib

_CONTROL = "nvidia-cuda-mps-control"
# Where containers have the driver's programs, beside PATH.
_PLACES = ("/usr/local/nvidia/bin", "/usr/local/cuda/bin", "/usr/bin")
_TIMEOUT_S = 20.0


@contextlib.contextmanager
def running() -> Iterator[Mapping[str, str]]:
  """Starts a daemon of its own, and ends it at the end of the block.

  Yields:
    The variables with which processes find it.

  Raises:
    NotMeasuredError: there is none, or it does not start.
  """
  path = os.pathsep.join((os.environ.get("PATH", ""), *_PLACES))
  control = shutil.which(_CONTROL, path=path)
  if control is None:
    raise part_lib.NotMeasuredError(
      f"There is no {_CONTROL}, without which two ranks take turns on a GPU."
    )
  with tempfile.TemporaryDirectory(prefix="mps-") as name:
    folder = pathlib.Path(name)
    variables = {
      "CUDA_MPS_PIPE_DIRECTORY": str(folder),
      "CUDA_MPS_LOG_DIRECTORY": str(folder),
    }
    environ = {**os.environ, **variables}
    started = subprocess.run(
      (control, "-d"),
      env=environ,
      capture_output=True,
      text=True,
      timeout=_TIMEOUT_S,
    )
    if started.returncode:
      raise part_lib.NotMeasuredError(
        f"{_CONTROL} does not start:"
        f" {(started.stderr or started.stdout).strip()[-300:]}"
      )
    try:
      yield variables
    finally:
      with contextlib.suppress(subprocess.SubprocessError):
        subprocess.run(
          (control,), env=environ, input="quit\n", text=True, timeout=_TIMEOUT_S
        )
