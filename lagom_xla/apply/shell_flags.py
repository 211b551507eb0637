# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
r"""Shell lines that put a plan's flags where XLA reads them.

If a flag is given twice, XLA takes the last value; of lists it takes all. It
reads flags up to the first word that is not one. If XLA_FLAGS begins with such
a word, XLA reads the file of that name instead (flags/syntax.py). So these
lines first read XLA_FLAGS: they copy a file's flags into the variable, and add
the plan's flags before such a word. LAGOM_XLA_FLAGS records the added flags, so
that sourcing the lines again, or those of another plan, replaces them. The
lines work in any POSIX shell and in zsh.
"""

from __future__ import annotations

from collections.abc import Mapping
import shlex

from lagom_xla.flags import nccl_channels
from lagom_xla.flags import options as xla_options

# Removes what an earlier plan appended.
REMOVE = """\
case "${LAGOM_XLA_FLAGS:+ ${XLA_FLAGS:-} }" in
  *" ${LAGOM_XLA_FLAGS:-} "*)
    XLA_FLAGS=" $XLA_FLAGS "
    lagom_xla_after="${XLA_FLAGS#*" $LAGOM_XLA_FLAGS "}"
    XLA_FLAGS="${XLA_FLAGS%%" $LAGOM_XLA_FLAGS "*} $lagom_xla_after"
    XLA_FLAGS="${XLA_FLAGS# }"
    XLA_FLAGS="${XLA_FLAGS% }"
    unset lagom_xla_after
    ;;
esac
unset LAGOM_XLA_FLAGS"""

# Ends sourcing with a status that `set -e` sees.
REFUSE = "return 2 2>/dev/null || exit 2"

_LOOK = r"""
# XLA reads flags up to the first other word, or from the file that it names.
lagom_xla_head=
lagom_xla_rest="${XLA_FLAGS:-}"
case "${lagom_xla_rest#"${lagom_xla_rest%%[![:space:]]*}"}" in
  "" | -*) ;;
  *)
    if [ -f "$XLA_FLAGS" ] && lagom_xla_rest="$(cat "$XLA_FLAGS")"; then
      echo "lagom_xla: XLA_FLAGS named the file $XLA_FLAGS; it now has the" \
        "flags of that file and of this plan." >&2
    else
      echo "lagom_xla: the plan was not applied: XLA_FLAGS is '$XLA_FLAGS'," \
        "neither a flag nor a file with flags, and XLA would end the" \
        "process. Fix it and source this file again." >&2
      unset lagom_xla_head lagom_xla_rest lagom_xla_flags
      @refuse@
    fi
    ;;
esac
while :; do
  lagom_xla_rest="${lagom_xla_rest#"${lagom_xla_rest%%[![:space:]]*}"}"
  case "$lagom_xla_rest" in -*) ;; *) break ;; esac
  # The text after the flag; a quoted value may have spaces, and its last quote
  # may be missing.
  lagom_xla_after="${lagom_xla_rest#*=}"
  case "${lagom_xla_rest%%=*}" in *[!_0-9A-Za-z-]*) lagom_xla_after= ;; esac
  case "$lagom_xla_after" in
    \'*\'*)
      lagom_xla_after="${lagom_xla_after#?}"
      lagom_xla_after="${lagom_xla_after#*\'}"
      ;;
    \"*)
      lagom_xla_after="${lagom_xla_after#?}"
      while :; do
        case "$lagom_xla_after" in
          \\?*) lagom_xla_after="${lagom_xla_after#??}" ;;
          \\) lagom_xla_rest="$lagom_xla_rest\\" && lagom_xla_after= ;;
          \"*) lagom_xla_after="${lagom_xla_after#?}" && break ;;
          ?*) lagom_xla_after="${lagom_xla_after#?}" ;;
          *) lagom_xla_rest="$lagom_xla_rest\"" && break ;;
        esac
      done
      ;;
    \'*) lagom_xla_rest="$lagom_xla_rest'" && lagom_xla_after= ;;
    *) lagom_xla_after="${lagom_xla_rest#"${lagom_xla_rest%%[[:space:]]*}"}" ;;
  esac
  lagom_xla_word="${lagom_xla_rest%"$lagom_xla_after"}"
  lagom_xla_head="$lagom_xla_head${lagom_xla_head:+ }$lagom_xla_word"
  lagom_xla_rest="$lagom_xla_after"
done
unset lagom_xla_after lagom_xla_word
if [ -n "$lagom_xla_rest" ]; then
  echo "lagom_xla: XLA stops reading XLA_FLAGS at" \
    "${lagom_xla_rest%%[[:space:]]*}, which is not a flag: this plan's flags" \
    "were put before it." >&2
fi"""

_APPEND = r"""
case " $lagom_xla_head" in
  *" $lagom_xla_flags") ;; # They are there already.
  *)
    lagom_xla_head="$lagom_xla_head${lagom_xla_head:+ }$lagom_xla_flags"
    export LAGOM_XLA_FLAGS="$lagom_xla_flags"
    ;;
esac
export XLA_FLAGS="$lagom_xla_head${lagom_xla_rest:+ }$lagom_xla_rest"
unset lagom_xla_flags lagom_xla_head lagom_xla_rest"""

_UNSET_FOR_OPTION = f"""\
if [ -n "${{{nccl_channels.VARIABLE}:-}}" ]; then
  echo "lagom_xla: {nccl_channels.VARIABLE} was unset: it would override" \\
    "this plan's {nccl_channels.OPTION}." >&2
fi
unset {nccl_channels.VARIABLE}"""


def looking(options: Mapping[str, object], refuse: str = REFUSE) -> str:
  """Lines that find the place for XLA options, or refuse; "" for no flags.

  Comments before them name the options that cannot be added.
  """
  fitted = xla_options.flags(options)
  lines = [*map(comment, fitted.messages)]
  if fitted.flags:
    text = shlex.quote(" ".join(map(str, fitted.flags)))
    lines += [f"lagom_xla_flags={text}", _LOOK.strip("\n")]
  return "\n".join(lines).replace("@refuse@", refuse.replace("\n", "\n      "))


def appending(options: Mapping[str, object]) -> str:
  """Lines that append XLA options at the place that `looking` found."""
  if not options:
    return "# No option that was tried beats XLA's defaults."
  if not xla_options.flags(options).flags:
    return "# The installed jaxlib has no flag for this plan's options."
  return "\n".join([_APPEND.strip("\n"), *beside(options)])


def beside(options: Mapping[str, object]) -> list[str]:
  """Other shell lines that XLA options need to take effect; most need none."""
  return [_UNSET_FOR_OPTION] if options.get(nccl_channels.OPTION) else []


def comment(text: str) -> str:
  """A text as a comment in one line."""
  return "# " + " ".join(text.splitlines())
