# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What runs today: XLA's defaults, and all that changes a compile.

These are XLA_FLAGS of this process, JAX's settings that reach XLA, and the
compiler_options of `jax.jit`; each overrides those before it. The last two
belong to one step, so ask for values inside `beside`.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
import contextlib
import contextvars
import dataclasses
import os
from typing import TYPE_CHECKING, Literal
import warnings

from lagom_xla import errors
from lagom_xla.flags import debug_options
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import probe
from lagom_xla.flags import syntax

if TYPE_CHECKING:
  from lagom_xla.jax_internals import request

# Options that do not change how a step is compiled for GPUs: those of other
# platforms, dumps, and paths, some of which JAX sets for its caches.
NOT_OF_THE_STEP = (
  *("xla_cpu_", "xla_dump_", "xla_force_host_", "xla_tpu_", "xla_gpu_dump_"),
  *("xla_detailed_logging", "xla_hlo_graph_", "xla_gpu_cuda_data_dir"),
  *("xla_gpu_kernel_cache_file", "xla_gpu_per_fusion_autotune_cache_dir"),
  "xla_gpu_enable_llvm_module_compilation_parallelism",
  "xla_gpu_experimental_autotune_cache_mode",
  "xla_gpu_force_compilation_parallelism",
)
# What JAX passes to XLA by itself, if not 0, false or empty. The levels are
# those of xla.ExecutionOptions.EffortLevel.
_OF_JAX: Mapping[str, debug_options.Value] = {
  "memory_fitting_level": "EFFORT_O2",
  "optimization_level": "EFFORT_UNKNOWN",
  "profile_version": -1,
  "use_shardy_partitioner": True,
}

# Why options cannot be changed.
BEATS = "compiler_options of jax.jit and JAX's settings override XLA_FLAGS"

Values = Mapping[str, debug_options.Value]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own:
  """A change that a program makes to XLA_FLAGS.

  Attributes:
    place: its file and line.
    does: what happens to existing flags: it drops them, keeps them and adds its
      own, or yields to them and adds none.
    names: names of the flags that it sets.
    is_late: whether XLA had already read its flags.
  """

  place: str
  does: Literal["drops", "keeps", "yields"]
  names: tuple[str, ...]
  is_late: bool

  @property
  def is_of_the_step(self) -> bool:
    """Whether it could change how a step is compiled."""
    return not self.names or not all(
      name.startswith(NOT_OF_THE_STEP) for name in self.names
    )

  def about(self, options: Collection[str]) -> str:
    """How it breaks a plan that sets these options in XLA_FLAGS, or ""."""
    remedy = (
      "Have it append os.environ['XLA_FLAGS'] to its own:"
      " os.environ['XLA_FLAGS'] = '--its_own ' + os.environ.get('XLA_FLAGS',"
      " '')"
    )
    if not self.names and self.does == "drops":
      return (
        f"{self.place} removes flags from XLA_FLAGS, so those of env.sh are"
        " lost. Have it keep them."
      )
    if self.does == "drops":
      return (
        f"{self.place} overwrites XLA_FLAGS, so the flags of env.sh are lost."
        f" {remedy}."
      )
    if self.does == "yields":
      return (
        f"{self.place} sets XLA_FLAGS only if they are empty, so with env.sh"
        f" its own flags, under which the plan was made, are lost. {remedy}."
      )
    if both := [name for name in self.names if name in options]:
      return (
        f"{self.place} also sets {', '.join(both)}, and the last one in"
        f" XLA_FLAGS counts. {remedy}."
      )
    return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beside:
  """What changes the compile of a step besides XLA_FLAGS.

  Attributes:
    jax: JAX's settings as XLA gets them: option or level -> value.
    jit: the compiler_options of `jax.jit`.
    build: the part of `jax` that is not an XLA option.
    is_beaten: whether the plan is applied in the step's process, where it
      overrides all of this.
    own: changes that its program makes to XLA_FLAGS.
  """

  jax: Values = dataclasses.field(default_factory=dict)
  jit: Values = dataclasses.field(default_factory=dict)
  build: Values = dataclasses.field(default_factory=dict)
  is_beaten: bool = False
  own: tuple[Own, ...] = ()

  @property
  def values(self) -> Values:
    """All of it."""
    return {**self.jax, **self.jit}

  @property
  def fixed(self) -> Values:
    """The XLA options among them, which XLA_FLAGS cannot change."""
    return {n: v for n, v in self.values.items() if n not in self.build}

  def in_words(self) -> Iterator[str]:
    """All of it, each part with where it is set."""
    if self.jax:
      yield f"{in_words(self.jax)} by JAX's settings"
    if self.jit:
      yield f"{in_words(self.jit)} by compiler_options of jax.jit"


NOTHING = Beside()
_beside = contextvars.ContextVar("_beside", default=NOTHING)
_text: contextvars.ContextVar[str | None] = contextvars.ContextVar(
  "_text", default=None
)


@contextlib.contextmanager
def beside(found: Beside) -> Iterator[None]:
  """Sets what changes the compile besides XLA_FLAGS, for the code inside."""
  token = _beside.set(found)
  try:
    yield
  finally:
    _beside.reset(token)


def note(found: Beside) -> None:
  """As `beside`, until the end of the surrounding `beside`."""
  _beside.set(found)


def found() -> Beside:
  """What changes the compile besides XLA_FLAGS."""
  return _beside.get()


def unchangeable() -> Values:
  """Options that neither XLA_FLAGS nor a plan can change."""
  return {} if found().is_beaten else found().fixed


def of_compile(
  handed: request.Handed | None, own: Collection[Own] = ()
) -> Beside:
  """What changes a compile besides XLA_FLAGS, as far as jaxlib shows it.

  Args:
    handed: what JAX passes to XLA for it; None if it is already compiled.
    own: changes that its program makes to XLA_FLAGS.
  """
  if handed is None:
    return NOTHING
  try:
    found = _of_compile(handed)
  except errors.OptionsError:
    found = NOTHING
  return dataclasses.replace(found, own=tuple(own))


def _of_compile(handed: request.Handed) -> Beside:
  read = handed.read
  known = debug_options.of_debug(read)
  usual = {**debug_options.of_build(read), **_OF_JAX}
  build = {
    name: value
    for name, value in debug_options.of_build(handed.options).items()
    if value != usual.get(name)
  }
  changed = {
    name: value
    for name, value in debug_options.of_debug(handed.options).items()
    if value != known[name]
  }
  of_jax, jit = {**build, **changed}, {}
  for name, value in handed.jit.items():
    if (option := debug_options.find(name)) is not None:
      with contextlib.suppress(xla_options.ValueRuleError):
        value = xla_options.convert(option, value)
    # If JAX keeps it apart from XLA's options, the value that it passes on.
    jit[name] = of_jax.pop(name, value)
  return Beside(jax=of_step(of_jax), jit=of_step(jit), build=build)


def of_step(values: Values) -> Values:
  """The values that may change how a step is compiled for GPUs."""
  return {
    name: value
    for name, value in sorted(values.items())
    if not name.startswith(NOT_OF_THE_STEP)
  }


def in_words(values: Values) -> str:
  """Options or levels with their values, in one line."""
  return " ".join(f"{name}={shown(value)}" for name, value in values.items())


def shown(value: debug_options.Value) -> str:
  """A value as a user writes it."""
  return str(value).removeprefix("EFFORT_")


_ADVICE = (
  'Run `lagom-xla flags --check "$XLA_FLAGS"` to see what is wrong and what to'
  " write instead."
)


def xla_flags() -> str:
  """The flags that XLA will read, in one line; "" for none.

  Raises:
    FlagsError: the variable names a missing file. `unread`, `value` and
      `is_set` raise it, too.
  """
  text, rest = _read()
  return " ".join(text.removesuffix(rest).split())


def step_flags() -> str:
  """The part of `xla_flags` that affects how steps are compiled for GPUs."""
  flags, _ = syntax.parse(xla_flags())
  return " ".join(
    str(flag) for flag in flags if not flag.name.startswith(NOT_OF_THE_STEP)
  )


def unread() -> str:
  """The word at which XLA stops reading the variable; "" for none."""
  _, rest = _read()
  return rest.split()[0] if rest else ""


@contextlib.contextmanager
def as_read(text: str) -> Generator[None]:
  """Makes code in the block use the XLA_FLAGS that XLA has read."""
  token = _text.set(text)
  try:
    yield
  finally:
    _text.reset(token)


def text_read(read: bytes) -> str:
  """XLA_FLAGS; if it changed since XLA read it, flags equal to what XLA read.

  In that case a RuntimeWarning says so. `read` is the result of `request.read`.
  """
  text = os.environ.get("XLA_FLAGS", "")
  try:
    known = of_step(debug_options.of_debug(read))
    with contextlib.suppress(OSError, ValueError):  # XLA would not start.
      if of_step(debug_options.under(syntax.follow(text))) == known:
        return text
    flags = xla_options.xla_flags(debug_options.without_defaults(known))
  except (errors.OptionsError, errors.ProbeError):
    return text
  warnings.warn(
    "XLA_FLAGS was changed after XLA had read it, which has no effect: XLA"
    f" uses {flags or 'no flags'}.",
    RuntimeWarning,
    stacklevel=2,
  )
  return flags


def _read() -> tuple[str, str]:
  """The value of the variable, and its end that XLA does not read."""
  text = _text.get()
  if text is None:
    text = os.environ.get("XLA_FLAGS", "")
  try:
    followed = syntax.follow(text).rstrip(syntax.SPACE)
    return followed, syntax.parse(followed)[1]
  except (OSError, ValueError) as error:
    raise errors.FlagsError(
      f"XLA_FLAGS is {text!r}, which is neither a flag nor a file with flags."
      f" {_ADVICE}"
    ) from error


def value(name: str) -> str | None:
  """The value that an option is set to; None if it is not set."""
  fixed = found().fixed
  if name in fixed:
    return str(fixed[name])
  flags, _ = syntax.parse(xla_flags())
  # For plain values the last one wins.
  return {flag.name: flag.value for flag in flags}.get(name)


def is_set() -> bool:
  """Whether anything affects how steps are compiled for GPUs."""
  return bool(found().values or step_flags())


def options_in_words() -> str:
  """A name for the options with which XLA compiles the step today."""
  if found().values:
    return "today's options"
  return "today's XLA_FLAGS" if step_flags() else "XLA's defaults"


def what_runs() -> str:
  """What runs today, in words."""
  return ", ".join(
    ["XLA's defaults", *filter(None, [step_flags()]), *found().in_words()]
  ).replace(", ", " with ", 1)


def changed_by(flags: str) -> Values:
  """The options of the step that an XLA_FLAGS changes.

  Empty if XLA would end the process, or its options cannot be read.
  """
  try:
    values = debug_options.under(syntax.follow(flags))
    return of_step(debug_options.without_defaults(values))
  except (OSError, ValueError, errors.OptionsError, errors.ProbeError):
    return {}


def already(options: Mapping[str, object]) -> frozenset[str]:
  """Those options that already have these values, by default or as set."""
  try:
    known = debug_options.options()
  except errors.OptionsError:
    return frozenset()
  today = {**changed_by(xla_flags()), **found().fixed}
  return frozenset(
    name
    for name, value in options.items()
    if name in known and today.get(name, known[name].default) == value
  )


def differences(
  flags: str, options: Values, planned: Collection[str] = ()
) -> Iterator[str]:
  """What differs from when a plan was made, in sentences.

  Args:
    flags: the XLA_FLAGS then, in one line.
    options: what else changed the compile then.
    planned: the plan's own options, which may be set now.
  """

  def others(values: Values) -> Values:
    return {n: v for n, v in values.items() if n not in planned}

  here, values = xla_flags(), found().values
  by_flags, were_by_flags = others(changed_by(here)), others(changed_by(flags))
  now = {**by_flags, **others(values)}
  then = {**were_by_flags, **others(options)}
  if now != then and by_flags != were_by_flags:
    yield (
      f"XLA_FLAGS is {here or 'not set'}, but was {flags or 'not set'} when"
      " the plan was made."
    )
  for name in sorted({**others(options), **others(values)}):
    is_now, was_then = (
      shown(them[name]) if name in them else "at its default"
      for them in (now, then)
    )
    if is_now != was_then:
      yield (
        f"{name} is {is_now} (compiler_options of jax.jit, or JAX's settings),"
        f" but was {was_then} when the plan was made."
      )


def check() -> None:
  """Checks that XLA accepts XLA_FLAGS, before it ends this process.

  Raises:
    FlagsError: it does not.
    ProbeError: the installed jaxlib could not be asked.
  """
  if not xla_flags():
    return
  (answer,) = probe.ask([os.environ["XLA_FLAGS"]])
  if answer.unknown:
    raise errors.FlagsError(f"{answer.error}. {_ADVICE}")
  if answer.is_fatal:
    raise errors.FlagsError(
      f"XLA_FLAGS has a value that XLA rejects. {_ADVICE}"
    )
