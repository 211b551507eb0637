# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A report: the data of its page, and the page.

`report --format=json` prints the data. It is kept beside a plan, so that the
page can be redrawn without compiling. A page is one self-contained HTML file:
it includes plotly, which draws the figures, and needs no network.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import pathlib
from typing import Any, Final, Literal

from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.costs import in_words
from lagom_xla.costs import uncertainty
from lagom_xla.plan import beside
from lagom_xla.report.page import marked
from lagom_xla.validation import whole_files

# Raised whenever a field changes its meaning.
FORMAT_VERSION: Final = 1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
  """A predicted time and its range, 9 times in 10, in microseconds.

  Attributes:
    us: the prediction.
    low_us: the lower end of the range.
    high_us: the upper end of the range.
    is_open: whether it may be far above the range, because of library calls of
      unknown work.
  """

  us: float
  low_us: float
  high_us: float
  is_open: bool = False

  @classmethod
  def of(cls, found: uncertainty.Estimate) -> Estimate:
    """An estimate of the cost model, in microseconds."""
    return cls(
      us=found.mean,
      low_us=found.low,
      high_us=found.high,
      is_open=found.is_open,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
  """The slices of a stream: one list per field, with an entry for each slice.

  Attributes:
    name: "compute", "communication" or a copy stream.
    begin_us: begin of the slice.
    end_us: end of the slice.
    kind: "kernel", "wait", "collective", "copy", "folded" for equal trips of a
      loop, or "several" for short slices that were joined.
    label: index of its label in `Picture.labels`; -1 for none.
    lone_us: time alone; for "folded" and "several", the lone time of kernels.
    wait_us: wait time; for "folded" and "several", the waits inside.
    num: number of folded trips or joined slices; else 1.
    beside: (index of a label that it ran beside, loss to it in microseconds);
      for "folded" and "several", the sum at index -1.
  """

  name: str
  begin_us: tuple[float, ...]
  end_us: tuple[float, ...]
  kind: tuple[str, ...]
  label: tuple[int, ...]
  lone_us: tuple[float, ...]
  wait_us: tuple[float, ...]
  num: tuple[int, ...]
  beside: tuple[tuple[tuple[int, float], ...], ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Label:
  """The description of an instruction.

  Attributes:
    name: name of the instruction.
    what: a description, such as "all-gather of 34.6 MB over 8 GPUs".
    moves: the arrays that a collective moves; "" if unknown.
    source: source line; "" if unknown.
  """

  name: str
  what: str
  moves: str = ""
  source: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
  """The picture of one step; times in microseconds.

  Attributes:
    name: "before" or "after".
    step_us: step time.
    kernel_us: time of kernels alone.
    slowdown_us: time by which collectives and copies slow kernels.
    wait_us: time that kernels wait for collectives and copies.
    labels: labels of the slices.
    streams: the streams, compute first.
    detail_us: begin and end of one trip of the costliest loop; None if no loop
      has folded trips.
  """

  name: str
  step_us: float
  kernel_us: float
  slowdown_us: float
  wait_us: float
  labels: tuple[Label, ...]
  streams: tuple[Stream, ...]
  detail_us: tuple[float, float] | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
  """The cost of a collective and others like it in a step, in microseconds.

  Attributes:
    label: label of the collective.
    num_others: number of other collectives included in its times: with the same
      bytes, source line, and reasons for waits and slowdowns.
    executions: number of runs per step.
    lone_us: time of all runs alone.
    wait_us: time that kernels wait for them.
    slows_us: time by which they slow kernels.
    why_waits: why kernels wait, in a sentence; "" if they do not.
    slowed: the kernel that is slowed most; "" for none.
    why_slows: why that kernel is slower, in a sentence.
  """

  label: Label
  num_others: int
  executions: int
  lone_us: float
  wait_us: float
  slows_us: float
  why_waits: str
  slowed: str
  why_slows: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
  """A setting of a plan.

  Attributes:
    name: the setting.
    value: its value.
    sentence: the value that it replaces, and its effect.
  """

  name: str
  value: str
  sentence: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
  """A configuration that was tried.

  Attributes:
    name: its settings, in words.
    us: step time with NCCL's own choices; None if XLA refused it.
    tuned_us: step time with searched NCCL settings; None if not searched.
    verdict: "kept", or why it was not.
  """

  name: str
  us: float | None
  tuned_us: float | None
  verdict: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Command:
  """A command for the user to run.

  Attributes:
    words: when or why to run it.
    text: the command; "" if there is nothing to run.
  """

  words: str
  text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
  """The data of a page about a step.

  Attributes:
    format_version: raised when a field changes its meaning.
    module_name: name of the step's module.
    cluster: name of the cluster.
    made_with: versions, as text.
    basis: the basis of times: "predicted", or "predicted from measured costs".
    before: step time as it runs today.
    measured_us: median step time in the profile; None without one.
    after: step time with the plan; None for an inspection.
    gain: the plan's gain; None for an inspection.
    lower_bound_us: step time that no order of the modules' instructions and no
      NCCL settings can beat; the lower of both modules.
    notes: notes on the figures.
    pictures: the step before, and after.
    collectives_before: the costliest collectives as the step runs today.
    collectives_after: the costliest collectives with the plan.
    settings: the plan's settings, with a sentence each.
    tried: all configurations that were tried.
    commands: how to apply the plan.
  """

  __pydantic_config__ = validation.STRICT

  format_version: Literal[1] = FORMAT_VERSION
  module_name: str
  cluster: str
  made_with: str
  basis: str
  before: Estimate
  measured_us: float | None
  after: Estimate | None
  gain: Estimate | None
  lower_bound_us: float
  notes: tuple[str, ...]
  pictures: tuple[Picture, ...]
  collectives_before: tuple[Collective, ...]
  collectives_after: tuple[Collective, ...]
  settings: tuple[Setting, ...]
  tried: tuple[Tried, ...]
  commands: tuple[Command, ...]


def verdict(
  before_us: float,
  after_us: float | None,
  gain_us: tuple[float, float],
  num: int,
) -> str:
  """The result of a search of `num` configurations with today's, a clause."""
  if after_us is None:
    if num == 1:
      return "nothing to set: no other configuration was tried"
    others = in_words.count(num - 1, "other configuration")
    return f"nothing to set: none of {others} is surely faster than today's"
  shorter = 1 - after_us / before_us if before_us else 0.0
  if gain_us[0] <= 0 <= gain_us[1]:
    return f"the plan may gain {shorter:.1%}, which is within the noise"
  way = "shorter" if shorter >= 0 else "longer"
  return f"the plan makes the step {abs(shorter):.1%} {way}"


def _between(known: Estimate) -> str:
  ends = f"{in_words.ms_range(known.low_us, known.high_us)} ms"
  return f"{ends}, or more: some calls are unknown" if known.is_open else ends


NAME = beside.REPORT
_FILE = beside.File(
  name=NAME,
  noun="report",
  of=Report,
  format_version=FORMAT_VERSION,
)
write = _FILE.write
read = _FILE.read

_FOLDER = pathlib.Path(__file__).parent


def check_can_render() -> None:
  """Checks that the packages that render pages are installed.

  Raises:
    OutputError: one is missing.
  """
  try:
    import jinja2  # noqa: F401
    import plotly  # noqa: F401
  except ImportError as error:
    raise errors.OutputError(
      f"A report page needs {error.name}, which is not installed: pip install"
      " '.[report]' in a checkout of lagom_xla."
    ) from error


def html(data: Report) -> str:
  """A report as HTML; a plan that sets nothing has no step after it.

  Raises:
    OutputError: a package that renders pages is missing.
  """
  words = ""
  if data.after is not None and data.gain is not None:
    words = verdict(
      data.before.us,
      data.after.us if data.settings else None,
      (data.gain.low_us, data.gain.high_us),
      len(data.tried),
    )
  if not data.settings:
    data = dataclasses.replace(
      data,
      after=None,
      gain=None,
      pictures=data.pictures[:1],
      collectives_after=(),
    )
  kinds = {
    kind
    for picture in data.pictures
    for stream in picture.streams
    for kind in stream.kind
  }
  return filled(
    _FOLDER,
    data=data,
    verdict=words,
    why=_why(data),
    has_copies="copy" in kinds,
    has_folds="folded" in kinds,
    has_nccl_settings=any(
      one.tuned_us not in (None, one.us) for one in data.tried
    ),
    has_details=all(picture.detail_us for picture in data.pictures),
    title=f"{data.module_name} on {data.cluster}",
    drawn=[dataclasses.asdict(p) for p in data.pictures],
  )


def _why(data: Report) -> str:
  """The costliest collective of today's step, and why; "" without any."""
  row = next(iter(data.collectives_before), None)
  if row is None or not (row.why_waits or row.why_slows):
    return ""
  label = row.label
  others = f" and {row.num_others:,} like it" * bool(row.num_others)
  source = f" ({label.source})" * bool(label.source)
  cost, it, then = "costs", "it", ", "
  if row.num_others:
    cost, it, then = "cost", f"the {1 + row.num_others:,}", ". "
  costly = f"Today the {label.what}{source}{others} {cost} most. Kernels"
  if row.why_waits:
    waits = in_words.milliseconds(row.wait_us)
    return f"{costly} wait {waits} for {it}{then}{row.why_waits}"
  return (
    f"{costly} run {in_words.milliseconds(row.slows_us)} longer beside {it}."
    f" {row.why_slows}"
  )


def draw(data: Report, path: pathlib.Path) -> None:
  """Writes a report as an HTML file.

  Raises:
    OutputError: it cannot be written, or a package that renders pages is
      missing.
  """
  save(html(data), path)


def filled(folder: pathlib.Path, **values: object) -> str:
  """Renders a folder's page.html.j2, with all scripts and styles inside.

  `values` includes the `title`, and `drawn`, the data for the script.

  Raises:
    OutputError: a package that renders pages is missing.
  """
  check_can_render()
  import jinja2
  from plotly import offline

  environment = jinja2.Environment(
    autoescape=True,
    loader=jinja2.FileSystemLoader([folder, _FOLDER]),
    undefined=jinja2.StrictUndefined,
  )
  filters: dict[str, Callable[[Any], str]] = {
    "ms": lambda us: "-" if us is None else in_words.milliseconds(us),
    "between": _between,
    "marked": marked.html,
    "gb": in_words.gigabytes,
    "short": in_words.short,
  }
  environment.filters |= filters
  environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
  return environment.get_template("page.html.j2").render(
    **values,
    css=(_FOLDER / "page.css").read_text(),
    script=(_FOLDER / "common.js").read_text()
    + (folder / "page.js").read_text(),
    plotly=offline.get_plotlyjs(),
  )


def save(text: str, path: pathlib.Path) -> None:
  """Writes a page.

  Raises:
    OutputError: it cannot be written.
  """
  try:
    whole_files.write(path, text.encode())
  except OSError as error:
    raise errors.OutputError(
      f"The report {path} cannot be written: {error.strerror}."
    ) from error
