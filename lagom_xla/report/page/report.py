# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A report: all that its page shows as plain data, and that page.

The data is what `report --format=json` prints, and is kept beside a plan, so
that a page can be made again without compiling. A page is one HTML file with
all that it shows inside: plotly, which draws the figures, too, so that it needs
no network, now or in ten years.
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

# Raised whenever a field changes its meaning.
FORMAT_VERSION: Final = 1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
  """A time and what it is between, 9 times in 10, in microseconds.

  Attributes:
    us: as predicted.
    low_us: the lower end.
    high_us: the upper end.
    is_open: whether it may be far above that, by calls of unknown work.
  """

  us: float
  low_us: float
  high_us: float
  is_open: bool = False

  @classmethod
  def of(cls, found: uncertainty.Estimate) -> Estimate:
    """What the cost model says of a time, in microseconds."""
    return cls(
      us=found.mean,
      low_us=found.low,
      high_us=found.high,
      is_open=found.is_open,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
  """What a stream did, slice by slice, a list for each of a slice's fields.

  Attributes:
    name: "compute", "communication" or a stream of copies.
    begin_us: when each began.
    end_us: when it ended.
    kind: "kernel", "wait", "collective", "copy", "folded" for trips of a loop
      that are alike, or "several" for slices too short to be kept apart.
    label: index of its words in `Picture.labels`; -1 for none.
    lone_us: what it takes alone; of trips and of several, their kernels.
    wait_us: waits that it is or, of trips and of several, that are in it.
    num: of folded trips, or of several slices; else 1.
    beside: what it ran beside: indices of words, and what each cost it in
      microseconds; of trips and of several, the sum under -1.
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
  """An instruction in words.

  Attributes:
    name: of it.
    what: it does.
    moves: what a collective moves; "" where that is not known.
    source: where it is from; "" where that is not known.
  """

  name: str
  what: str
  moves: str = ""
  source: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
  """One step, drawn; times in microseconds.

  Attributes:
    name: "before" or "after".
    step_us: the step.
    kernel_us: kernels alone.
    slowdown_us: what kernels lost to collectives and copies.
    wait_us: waits for them.
    labels: of the slices.
    streams: that of kernels first.
    detail_us: begin and end of a trip of the loop that costs most, where there
      is a loop whose trips are folded.
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
  """What a collective, with those like it, costs a step; in microseconds.

  Attributes:
    label: what it is.
    num_others: collectives like it, which its times have too: as many bytes,
      from the same line, waited for and slowing kernels for the same reason.
    executions: times they run per step.
    lone_us: all its runs alone.
    wait_us: what kernels wait for it.
    slows_us: what kernels lose to it.
    why_waits: why it is waited for, in a sentence; "" where it is not.
    slowed: the kernel that loses most to it; "" for none.
    why_slows: why that one does, in a sentence.
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
    name: what is set.
    value: to what.
    sentence: what that replaces and does.
  """

  name: str
  value: str
  sentence: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
  """A configuration that was tried.

  Attributes:
    name: what it sets.
    us: step time under NCCL's own choices; None where it was refused.
    tuned_us: with NCCL settings searched, or as far as it was searched.
    verdict: "kept", or why it was not.
  """

  name: str
  us: float | None
  tuned_us: float | None
  verdict: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Command:
  """A thing to do.

  Attributes:
    words: when, or why.
    text: what to type; "" where there is nothing.
  """

  words: str
  text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
  """What a page tells of a step.

  Attributes:
    format_version: raised when a field changes its meaning.
    module_name: of the step.
    cluster: its name.
    made_with: versions, in words.
    basis: what times are: "predicted", or "predicted from measured costs".
    before: the step as it runs today.
    measured_us: the median of the steps that a profile of it has; None without
      one.
    after: with the plan; None of an inspection.
    gain: what the plan gains; None of an inspection.
    lower_bound_us: what no order of what XLA made can beat, nor any settings of
      NCCL; the lower one of both modules.
    notes: what to know of the figures.
    pictures: of the step before, and after.
    collectives_before: that cost most, as it runs today.
    collectives_after: with the plan.
    settings: of the plan, with a sentence each.
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
  """What came of a search, in words."""
  if after_us is None:
    tried = in_words.count(num, "configuration")
    return f"none of {tried} is surely faster than what runs today"
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
  """Checks that what draws pages is installed, before any work is done.

  Raises:
    OutputError: it is not.
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
  """A report as HTML.

  Raises:
    OutputError: what draws pages is not installed.
  """
  words = ""
  if data.after is not None and data.gain is not None:
    words = verdict(
      data.before.us,
      data.after.us if data.settings else None,
      (data.gain.low_us, data.gain.high_us),
      len(data.tried),
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
    has_details=all(picture.detail_us for picture in data.pictures),
    title=f"{data.module_name} on {data.cluster}",
    drawn=[dataclasses.asdict(p) for p in data.pictures],
  )


def _why(data: Report) -> str:
  """What costs today's step most, and why; "" where nothing does."""
  row = next(iter(data.collectives_before), None)
  if row is None or not (row.why_waits or row.why_slows):
    return ""
  label = row.label
  others = f" and {row.num_others:,} like it" * bool(row.num_others)
  source = f" ({label.source})" * bool(label.source)
  verb, us = "wait", row.wait_us
  if not row.why_waits:
    verb, us = "lose", row.slows_us
  return (
    f"Today the {label.what}{source}{others} costs most: kernels {verb}"
    f" {in_words.milliseconds(us)}. {row.why_waits or row.why_slows}"
  )


def draw(data: Report, path: pathlib.Path) -> None:
  """Writes a report as an HTML file.

  Raises:
    OutputError: it cannot be written, or what draws pages is not installed.
  """
  save(html(data), path)


def filled(folder: pathlib.Path, **values: object) -> str:
  """The page of a folder, page.html.j2, with page.js and all else inside.

  `values` has the `title`, and what is `drawn` by the script.

  Raises:
    OutputError: what draws pages is not installed.
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
    path.write_text(text, encoding="utf-8")
  except OSError as error:
    raise errors.OutputError(
      f"The report {path} cannot be written: {error.strerror}."
    ) from error
