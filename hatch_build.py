# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The build hook that compiles the NCCL tuner plugin.

An editable installation gets the library beside its source, a wheel holds it
and is then for one platform. Without a C compiler the wheel is for any, and
`lagom-xla plugin` builds the library where it is installed, if it can.
"""

from __future__ import annotations

import importlib.util
import pathlib
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_BUILD = "lagom_xla/apply/nccl/build.py"


class PluginHook(BuildHookInterface):
  """See the module's docstring."""

  def initialize(self, version: str, build_data: dict[str, Any]) -> None:
    """Hatchling calls this before it collects the files of a wheel.

    Args:
      version: "standard" or "editable".
      build_data: what hatchling is told about this wheel.
    """
    root = pathlib.Path(self.root)
    # By its path: lagom_xla itself imports packages that a build lacks.
    spec = importlib.util.spec_from_file_location("build", root / _BUILD)
    if spec is None or spec.loader is None:
      raise ImportError(f"{_BUILD} is missing")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    library = build.packaged()
    try:
      build.compile_to(library)
    except (build.BuildError, OSError) as error:
      self.app.display_warning(
        f"lagom_xla: built without its NCCL tuner plugin. {error} Once there is"
        " a compiler, `lagom-xla plugin` builds it."
      )
      return
    if version == "editable":
      return
    build_data["artifacts"].append(f"/{library.relative_to(root).as_posix()}")
    build_data["pure_python"] = False
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    build_data["tag"] = f"py3-none-{platform}"
