# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Guesses what was meant by an XLA_FLAGS that XLA misreads or stops reading.

XLA's syntax is strict (syntax.py), and the variable passes through shells, env
files, YAML and web pages. These leave quotes, commas and backslashes at the
ends of words, typographic dashes, values in separate words, and other programs'
variables. XLA silently stops reading at most of these. Here all words are read,
and each that is not a flag is repaired or reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import re

from lagom_xla.flags import debug_options
from lagom_xla.flags import syntax

# Typographic quotes -> ASCII ones, one character each.
_QUOTES = str.maketrans("“”„‟‘’‚‛", "\"\"\"\"''''")
_DASHES = "-‐‑‒–—―−﹣－"
# Typographic spaces, one of zero width, and a byte order mark.
_SPACES = "\u00a0\u2009\u200b\u202f\u3000\ufeff"
# A word may end in a quoted value, or be quoted as a whole.
_WORD = re.compile(
  r"""(?:(?:(?<==)|(?<![^ \t\r\n])(?!.-))(?:'[^']*'|"(?:\\.|[^"])*")
  |[^ \t\r\n])+""",
  re.DOTALL | re.VERBOSE,
)
_LEAD = re.compile(
  rf"""([("'\[{{{_SPACES}]*)((?:XLA_FLAGS\+?=)?)(["']?)([{_DASHES}]*)(.*)""",
  re.DOTALL,
)
# With the semicolon that may follow it in a shell script.
_ASSIGNED = re.compile(r"""XLA_FLAGS\+?=(["'])(?P<flags>.*)\1;?""", re.DOTALL)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=.*", re.DOTALL)
# Two flags with no space between them.
_SEAM = re.compile(r"(?<=[^- \t\r\n])--(?=xla_\w+(?:=|$|--))")
_MARKS = f",;:\\])}}\"'{_SPACES}"
_NAMES: Mapping[str, str] = {
  **dict.fromkeys(_SPACES, "typographic space"),
  ",": "comma",
  ":": "colon",
  "\\": "backslash",
}
_LINE_ENDS = ("\\n", "\\r", "\\t")  # In escaped form.
_ASSIGNS = "XLA_FLAGS= must not be part of the value."
_UNEXPANDED = "The variable was not expanded."
_BOOLEANS = ("true", "false", "1", "0", "yes", "no", "on", "off")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Word:
  """A word, or several that belong together, and what was meant.

  Attributes:
    at: its position.
    written: as it is in the text.
    flags: what was meant; empty if it is not a flag.
    why: what is wrong with it, in a sentence; "" for nothing.
    is_variable: whether it sets another environment variable.
  """

  at: int
  written: str
  flags: tuple[syntax.Flag, ...] = ()
  why: str = ""
  is_variable: bool = False


def words(text: str) -> tuple[Word, ...]:
  """All words of a text, including those that XLA does not read."""
  return tuple(_joined(list(_split(text))))


def _split(text: str) -> Iterator[Word]:
  """The words in order."""
  plain, at = text.translate(_QUOTES), 0
  while (found := _WORD.search(plain, at)) is not None:
    at, end = found.span()
    word = found[0]
    lead = word[0] if word[0] in "\"'" and word[1:2] == "-" else ""
    if lead or word[0] == "-":
      flag, length, is_closed = syntax.first(plain[at + len(lead) :])
      after = at + len(lead) + length
      # XLA needs neither the last quote nor a space after it.
      is_open = after == end and word.partition("=")[2][:1] in ("'", '"')
      is_whole = plain[after : after + 1] in ("", lead, *syntax.SPACE, "-")
      if (is_closed and is_whole) or (is_open and not lead):
        why = _part_of_all(lead) if lead else ""
        if text[at:after] != plain[at:after]:
          why = f"{why} The quotes are typographic ones.".lstrip()
        after += bool(lead) and plain[after : after + 1] == lead
        yield Word(at=at, written=text[at:after], flags=(flag,), why=why)
        at = after
        continue
    whole = _ASSIGNED.fullmatch(word)
    meant = _of_all(whole["flags"]) if whole else _meant(word)
    yield dataclasses.replace(meant, at=at, written=text[at:end])
    at = end


def _of_all(text: str) -> Word:
  """What was meant by an assignment of the whole variable."""
  inside = words(text)
  whys = [_ASSIGNS, *(w.why for w in inside)]
  return _word(
    flags=[flag for word in inside for flag in word.flags],
    why=" ".join(dict.fromkeys(filter(None, whys))),
  )


def _meant(word: str) -> Word:
  """What was meant by a word without spaces."""
  if not word.strip("\\"):
    return _word(
      why="A backslash continues a line only in a shell, outside quotes."
    )
  if re.match(r"\$\{?\w", word):
    return _word(why=_UNEXPANDED)
  match = _LEAD.fullmatch(word)
  assert match is not None  # Each of its parts may be empty.
  opened, variable, quote, dashes, body = match.groups()
  is_known = body.startswith("xla_") or bool(
    debug_options.find(re.split(r"\W", body)[0])
  )
  if not dashes and not is_known:
    if variable:  # As in XLA_FLAGS=$XLA_FLAGS.
      whys = [_ASSIGNS, _UNEXPANDED] if body.startswith("$") else [_ASSIGNS]
      return _word(why=" ".join(whys))
    is_variable = bool(_VARIABLE.fullmatch(word))
    why = "It is another variable: export it separately." if is_variable else ""
    return _word(why=why, is_variable=is_variable)
  whys = [
    why
    for why, is_so in (
      (_ASSIGNS, variable),
      (_part_of_all(opened or quote), opened or quote),
      ("The leading dashes are missing.", not dashes),
      ("The dash is a typographic one.", set(dashes) - {"-"}),
    )
    if is_so
  ]
  is_plain = set(dashes) == {"-"}
  flags = []
  parts = _SEAM.split(body)
  if len(parts) > 1:
    whys.append("There is no space between two flags.")
  for part in parts:
    flag, mark = _without_marks(part)
    if mark:
      whys.append(f"XLA reads the {mark} as part of the value.")
    flags.append(dataclasses.replace(flag, dashes=dashes if is_plain else "--"))
  return _word(flags=flags, why=" ".join(dict.fromkeys(whys)))


def _part_of_all(mark: str) -> str:
  name = _NAMES.get(mark[:1], mark)
  return f"XLA reads the {name} before it, too."


def _word(
  flags: Sequence[syntax.Flag] = (), why: str = "", *, is_variable: bool = False
) -> Word:
  return Word(
    at=0, written="", flags=tuple(flags), why=why, is_variable=is_variable
  )


def _without_marks(body: str) -> tuple[syntax.Flag, str]:
  """A flag without marks around its value, and one of those marks, or ""."""
  name, equals, value = body.partition("=")
  text, mark = value if equals else name, ""
  if not equals and ":" in text:
    (name, _, text), equals, mark = text.partition(":"), "=", "colon"
    name = name.rstrip("\"'")  # As in JSON.
  elif text.startswith("="):
    text, mark = text.lstrip("="), "second ="
  while text and (text[-1] in _MARKS or text.endswith(_LINE_ENDS)):
    last = text[-1]
    if text.endswith(_LINE_ENDS):
      text, mark = text[:-1], "backslash"
    elif last in "\"'" and text.find(last) == 0 and len(text) > 1:
      text = text[1:]  # They are a pair.
    elif text.count({"]": "[", ")": "(", "}": "{"}.get(last, "\0")):
      break  # So are these.
    else:
      mark = _NAMES.get(last, last)
    text = text[:-1]
  if not equals:
    return syntax.Flag(name=text, value=None), mark
  return syntax.Flag(name=name, value=text), mark


def _joined(found: list[Word]) -> Iterator[Word]:
  """The words, each joined with a value that was in the next word."""
  while found:
    word, *found = found
    values = [it.written.translate(_QUOTES) for it in found[:2]]
    if values[:1] == ["="] and len(values) == 2:
      taken, value = 2, values[1]
    elif values[:1] and values[0].startswith("="):
      taken, value = 1, values[0][1:]
    else:
      taken, value = 1, values[0] if values else ""
    if word.flags and value and _takes(word.flags[-1], found[:taken]):
      *before, last = word.flags
      flag, _ = _without_marks(f"{last.name}={value}")
      written = " ".join([word.written, *(it.written for it in found[:taken])])
      word = dataclasses.replace(
        word,
        written=written,
        flags=(*before, dataclasses.replace(flag, dashes=last.dashes)),
        why=f"{word.why} A value cannot be a separate word.".lstrip(),
      )
      found = found[taken:]
    yield word


def _takes(flag: syntax.Flag, following: Sequence[Word]) -> bool:
  """Whether the following words are the value of a flag."""
  if any(it.flags or it.is_variable or it.why for it in following):
    return False
  option = debug_options.find(flag.name)
  value = following[-1].written.translate(_QUOTES)
  if flag.value:
    return False
  if following[0].written.startswith("="):
    return True
  if option is None:
    return flag.value is None and "=" not in value
  if option.type == "bool" and not option.is_repeated:
    return value.lower().rstrip(_MARKS) in _BOOLEANS
  if flag.value == "":
    return option.is_scalar and option.type != "string"
  return True
