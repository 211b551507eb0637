# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The software GPU's libraries, built once per run of the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import fcntl
import os
import pathlib
import subprocess
import sys

import pytest

import cuda_libraries


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """The libraries' folder; skips if they cannot be built."""
  if obstacle := cuda_libraries.obstacle():
    pytest.skip(obstacle)
  base = tmp_path_factory.getbasetemp()
  if base.name.startswith("popen-"):  # A worker of pytest-xdist.
    base = base.parent
  folder = base / "software_gpu"
  with (base / "software_gpu.lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not folder.exists():
      cuda_libraries.build(folder)
  return folder


@pytest.fixture
def on_gpus(built: pathlib.Path, tmp_path: pathlib.Path) -> Callable[..., str]:
  """Calls a function of a test's module in a process with software GPUs."""

  def call(
    function: Callable[[], None],
    *,
    num_devices: int = 2,
    kernels: str = "",
    variables: dict[str, str] | None = None,
    launcher: Sequence[str] = (),
    **settings: object,
  ) -> str:
    """Returns its output and log.

    Args:
      function: the function; it fails by an exception.
      num_devices: GPUs of the process.
      kernels: times by the name of a kernel, in README.md's format.
      variables: additions to its environment.
      launcher: a command that starts the command at the end of its arguments.
      settings: settings of the GPUs.
    """
    (times := tmp_path / "kernels.txt").write_text(kernels)
    module, name = function.__module__, function.__name__
    env = cuda_libraries.environment(
      built, num_devices=num_devices, settings={**settings, "KERNELS": times}
    )
    # Compiles are slow, and all algorithms are equally fast.
    env.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0")
    folders = [str(pathlib.Path(__file__).parent), *sys.path]
    env["PYTHONPATH"] += os.pathsep + os.pathsep.join(filter(None, folders))
    done = subprocess.run(
      (
        *launcher,
        *(sys.executable, "-c", f"import {module}; {module}.{name}()"),
      ),
      cwd=tmp_path,
      env={**env, **(variables or {})},
      capture_output=True,
      text=True,
      check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout + done.stderr

  return call
