# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds software GPUs in seconds, and runs a command on them.

    python tests/software_gpu/cuda_libraries.py [--num=8] COMMAND...

README.md describes them and their limits.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

_FOLDER = pathlib.Path(__file__).parent
_SOURCES = _FOLDER / "src"

_FLAGS = (
  *("-std=gnu17", "-D_GNU_SOURCE", "-O2", "-g", "-fPIC", "-shared", "-pthread"),
  *("-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"),
)
# File names that JAX's plugin looks for, and the sources of each.
_DRIVER = "libcuda.so.1"
_LIBRARIES: Mapping[str, tuple[str, ...]] = {
  _DRIVER: (
    *("device.c", "memory.c", "module.c", "task.c", "stream.c", "graph.c"),
  ),
  "libcudart.so.13": ("runtime.c",),
  "libnvidia-ml.so.1": ("nvml.c",),
  "libcupti.so.13": ("cupti.c",),
  "libcublas.so.13": ("blas.c",),
  "libcublasLt.so.13": ("blas.c",),
  "libcudnn.so.9": ("dnn.c",),
  "libnccl.so.2": ("nccl.c",),
}
# Headers with all functions of a library; missing ones report that.
_STUBBED = {
  "libcudart.so.13": ("cuda_runtime_api.h", "cuda"),
  "libcupti.so.13": ("cupti_*.h", "cupti"),
}


def obstacle() -> str:
  """What is missing for a build; "" if nothing is."""
  if not shutil.which("cc"):
    return "there is no C compiler (cc)"
  missing = [
    name
    for name in ("cuda.h", "cuda_runtime_api.h", "cupti.h")
    if not (_include() / name).is_file()
  ]
  if missing:
    return (
      f"CUDA's headers {', '.join(missing)} are missing: pip install"
      " nvidia-cuda-runtime nvidia-cuda-cupti"
    )
  return ""


def build(folder: pathlib.Path) -> None:
  """Builds all libraries.

  Raises:
    CalledProcessError: a compiler fails.
  """
  folder.mkdir(parents=True, exist_ok=True)
  include = _include()
  stubs = folder / "stubs"
  stubs.mkdir(exist_ok=True)
  (stubs / f"{_DRIVER}.c").write_text("\n".join(_driver_stubs(include)))
  for library, (headers, prefix) in _STUBBED.items():
    names = _declared(include.glob(headers), prefix)
    (stubs / f"{library}.c").write_text("\n".join(_stubs(names)))
  for library, sources in _LIBRARIES.items():
    inputs = [_SOURCES / source for source in sources]
    more: list[str] = []
    if (stub := stubs / f"{library}.c").is_file():
      compiled = stub.with_suffix(".o")
      _compile("-w", "-fPIC", f"-I{_SOURCES}", "-c", stub, "-o", compiled)
      inputs.append(compiled)
    if library != _DRIVER:
      more += [f"-L{folder}", f"-l:{_DRIVER}"]
    if library == "libcublasLt.so.13":
      more.append("-DLT")
    if library == "libcudart.so.13":  # Its symbols have a version.
      symbols = stubs / "runtime.map"
      symbols.write_text(f"{library} {{ global: cuda*; __cuda*; local: *; }};")
      more.append(f"-Wl,--version-script={symbols}")
    if library == "libcupti.so.13":
      more += _records(include)
    _compile(
      *_FLAGS,
      f"-I{_SOURCES}",
      f"-isystem{include}",
      f"-Wl,-soname,{library}",
      *("-o", folder / library),
      *inputs,
      *more,
    )


def environment(
  built: pathlib.Path,
  *,
  num_devices: int = 8,
  settings: Mapping[str, object] | None = None,
) -> dict[str, str]:
  """The environment of a process with software GPUs.

  Args:
    built: the folder of the libraries.
    num_devices: the number of GPUs.
    settings: more of README.md's variables, without SOFTWARE_GPU_.
  """
  folders = [str(_FOLDER / "site"), os.environ.get("PYTHONPATH", "")]
  preloaded = [str(built / name) for name in _LIBRARIES if name != _DRIVER]
  return {
    # XLA fills 32 MiB of host memory for each GiB that it preallocates.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    **os.environ,
    "JAX_PLATFORMS": "cuda",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "LD_LIBRARY_PATH": str(built),
    "LD_PRELOAD": ":".join(preloaded),
    "PATH": os.pathsep.join((str(_FOLDER / "bin"), os.environ["PATH"])),
    "PYTHONPATH": os.pathsep.join(filter(None, folders)),
    "SOFTWARE_GPU_COUNT": str(num_devices),
    **{f"SOFTWARE_GPU_{k}": str(v) for k, v in (settings or {}).items()},
  }


def _include() -> pathlib.Path:
  """The folder with the headers of the CUDA 13 wheels."""
  spec = importlib.util.find_spec("nvidia")
  for folder in spec.submodule_search_locations or () if spec else ():
    include = pathlib.Path(folder) / "cu13" / "include"
    if include.is_dir():
      return include
  return pathlib.Path("no CUDA")


def _compile(*arguments: str | pathlib.Path) -> None:
  subprocess.run(("cc", *map(str, arguments)), check=True)


def _records(include: pathlib.Path) -> Iterator[str]:
  """The latest names of CUPTI's records, which get new numbers as they grow."""
  text = (include / "cupti_activity.h").read_text()
  for name in ("Kernel", "Memcpy", "Memset"):
    numbers = re.findall(rf"}} CUpti_Activity{name}(\d+);", text)
    macro = {"Kernel": "KERNEL", "Memcpy": "COPY", "Memset": "SET"}[name]
    latest = max(map(int, numbers))
    yield f"-D{macro}_RECORD=CUpti_Activity{name}{latest}"


def _declared(headers: Iterable[pathlib.Path], prefix: str) -> list[str]:
  """The functions declared in headers."""
  text = "\n".join(h.read_text(errors="replace") for h in headers)
  text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
  macros = set(re.findall(r"#\s*define\s+(\w+)\s*\(", text))
  names = set(re.findall(rf"\b({prefix}[A-Z]\w+)\s*\(", text))
  return sorted(names - macros)


def _stubs(names: Iterable[str]) -> Iterator[str]:
  """Weak stubs, which report that they do nothing."""
  yield "int missing(const char *name);"
  for name in names:
    yield (
      '__attribute__((weak, visibility("default")))'
      f' int {name}(void) {{ return missing("{name}"); }}'
    )


def _driver_stubs(include: pathlib.Path) -> Iterator[str]:
  """The driver's stubs, with the CUDA version of each.

  cuGetProcAddress looks a name up for a version: cuMemAlloc is cuMemAlloc_v2
  since 3.2.
  """
  text = (include / "cuda.h").read_text()
  macros = re.findall(
    r"#\s*define\s+(cu[A-Z]\w+)\s+(cu[A-Z]\w+)\s*$", text, re.M
  )
  names = set(re.findall(r"CUresult\s+CUDAAPI\s+(cu[A-Z]\w+)\s*\(", text))
  names |= {name for pair in macros for name in pair}
  names = {n for n in names if not n.endswith(("_ptds", "_ptsz"))}
  versions: dict[str, set[int]] = {}
  types = (include / "cudaTypedefs.h").read_text()
  for name, version in re.findall(r"\bPFN_(cu[A-Z]\w+?)_v(\d+)\)", types):
    versions.setdefault(name, set()).add(int(version))
  yield '#include "stubs.h"'
  yield from _stubs(sorted(names))
  yield "const StubVersion stub_versions[] = {"
  plain = {n for n in names if not re.search(r"_v\d+$", n)}
  for name in sorted(plain | versions.keys()):
    numbered = [n for n in names if re.fullmatch(rf"{name}_v\d+", n)]
    symbols = [name] if name in names else []
    symbols += sorted(numbered, key=lambda n: int(n.rpartition("_v")[2]))
    # The latest version is the highest number.
    pairs = zip(
      reversed(sorted(versions.get(name, {0}))), reversed(symbols), strict=False
    )
    for version, symbol in sorted(pairs):
      yield f'  {{"{name}", {version}, (void *)&{symbol}}},'
  yield "};"
  yield (
    "const int num_stub_versions ="
    " sizeof stub_versions / sizeof *stub_versions;"
  )


def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns its exit status."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--num", type=int, default=8)
  parser.add_argument("command", nargs=argparse.REMAINDER)
  parsed = parser.parse_args(arguments)
  if found := obstacle():
    parser.error(found)
  with tempfile.TemporaryDirectory() as folder:
    built = pathlib.Path(folder)
    build(built)
    env = environment(built, num_devices=parsed.num)
    return subprocess.run(parsed.command, env=env, check=False).returncode


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
