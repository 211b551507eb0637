# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The picture of how a plan is made; run as a program, it writes the SVG.

python docs/site/picture.py > docs/how_it_works.svg
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import html

_WIDTH, _HEIGHT = 720, 500
_LINE_PX = 17
# Drawn on a card of its own, so that it reads on dark pages too.
_CARD, _INK, _SOFT = "#ffffff", "#1f2933", "#52606d"
_OURS, _THEIRS = "#e3f2e9", "#e8eef7"
_FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"


@dataclasses.dataclass(frozen=True)
class _Box:
  """A thing, or what works on it.

  Attributes:
    x: its left side, in pixels, as the others.
    y: its top.
    width: of it.
    fill: its color: ours, or what we did not write.
    lines: its words, the first of which is its name.
  """

  x: int
  y: int
  width: int
  fill: str
  lines: tuple[str, ...]

  @property
  def height(self) -> int:
    return 16 + _LINE_PX * len(self.lines)


_BOXES = (
  _Box(30, 30, 200, _THEIRS, ("Your step", "jax.jit, nnx.jit or an HLO file")),
  _Box(
    *(280, 30, 200, _THEIRS),
    ("XLA's GPU compiler", "ahead of time, in workers;", "no GPU is needed"),
  ),
  _Box(
    530, 30, 160, _THEIRS, ("Schedule", "the module as XLA", "would launch it")
  ),
  _Box(
    *(530, 160, 160, _OURS),
    ("Overlaps", "kernels that run", "beside a collective"),
  ),
  _Box(
    *(280, 160, 200, _OURS),
    ("Costs", "kernels, NCCL's own choice,", "contention for SMs, HBM"),
  ),
  _Box(
    *(530, 275, 160, _OURS),
    ("Replay", "who waits for whom,", "who slows whom"),
  ),
  _Box(
    *(30, 275, 220, _OURS),
    ("Search", "XLA options, forms of the", "program, NCCL settings"),
  ),
  _Box(
    *(30, 400, 220, _OURS),
    ("Plan", "env.sh, a NCCL table,", "what each part should gain"),
  ),
  _Box(
    *(330, 400, 200, _THEIRS),
    ("Your job", "trains with the plan", "on GPUs"),
  ),
)
# Corners of a line, and the words beside it, where they begin.
_ARROWS = (
  (((230, 55), (280, 55)), "", (0, 0)),
  (((480, 60), (530, 60)), "", (0, 0)),
  (((610, 97), (610, 160)), "", (0, 0)),
  (((610, 227), (610, 275)), "", (0, 0)),
  (((460, 227), (460, 250), (570, 250), (570, 275)), "", (0, 0)),
  (((530, 310), (250, 310)), "step time, and its range", (258, 302)),
  (
    ((140, 275), (140, 130), (380, 130), (380, 97)),
    "next options, next form",
    (150, 122),
  ),
  (((140, 342), (140, 400)), "only what is sure to gain", (150, 376)),
  (((250, 435), (330, 435)), "env.sh", (264, 427)),
  (((430, 400), (430, 227)), "its trace: measured costs", (438, 376)),
)


def draw() -> str:
  """The picture, as SVG."""
  return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
  yield (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    f' role="img" font-family="{html.escape(_FONT)}" font-size="13">'
  )
  yield "<title>How a plan is made</title>"
  yield (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4"'
    ' markerWidth="8" markerHeight="8" orient="auto">'
    f'<path d="M0 0L8 4L0 8z" fill="{_SOFT}"/></marker></defs>'
  )
  yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="8" fill="{_CARD}"/>'
  for corners, words, (x, y) in _ARROWS:
    points = " ".join(f"{x},{y}" for x, y in corners)
    yield (
      f'<polyline points="{points}" fill="none" stroke="{_SOFT}"'
      ' stroke-width="1.5" marker-end="url(#tip)"/>'
    )
    if words:
      yield _text(x, y, words, color=_SOFT)
  for box in _BOXES:
    yield from _box(box)
  yield "</svg>"


def _box(box: _Box) -> Iterator[str]:
  yield (
    f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"'
    f' rx="6" fill="{box.fill}" stroke="{_SOFT}"/>'
  )
  for number, line in enumerate(box.lines):
    y = box.y + 21 + _LINE_PX * number
    yield _text(box.x + 12, y, line, is_bold=number == 0)


def _text(
  x: int, y: int, text: str, *, color: str = _INK, is_bold: bool = False
) -> str:
  weight = ' font-weight="600"' if is_bold else ""
  return (
    f'<text x="{x}" y="{y}" fill="{color}"{weight}>{html.escape(text)}</text>'
  )


if __name__ == "__main__":
  print(draw(), end="")
