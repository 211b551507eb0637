# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Has JAX see GPUs where there are no device files of NVIDIA's.

And no process gives way to others: tests share the cores, and a search of the
lowest priority would wait for all of them.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import types

_NAME = "jax._src.hardware_utils"


class _Finder(importlib.abc.MetaPathFinder):
  """Answers for the module that looks for device files."""

  def find_spec(self, name, path, target=None):
    if name != _NAME:
      return None
    sys.meta_path.remove(self)
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    assert spec and spec.loader
    execute = spec.loader.exec_module

    def exec_module(module: types.ModuleType) -> None:
      execute(module)
      vars(module)["has_visible_nvidia_gpu"] = lambda: True

    spec.loader.exec_module = exec_module
    return spec


sys.meta_path.insert(0, _Finder())
os.nice = lambda _: 0
