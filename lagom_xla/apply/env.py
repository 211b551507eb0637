# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Environment variables that a plan becomes, as lines of shell.

`script` is env.sh, the one file that a launcher sources on every process before
it starts: XLA and NCCL read their variables once, and ranks that choose
differently wait for each other forever.

NCCL gets one of two: the settings per collective, where lagom_xla's tuner
plugin can be loaded, else one cap on the channels of all. NCCL loads only one
tuner, so one that NCCL_TUNER_PLUGIN names already (Google's images do so) is
left alone unless the user says otherwise. AWS's tuner shows in no variable.

A table that is damaged or missing on one node must not start there with a cap:
then nothing is set, and sourcing fails. Whatever was set, LAGOM_XLA_ENV tells
it, so that `lagom_xla.check_processes` finds nodes where it was another thing.

Only bash and zsh tell a sourced file where it is. Other shells get what needs
no table: the XLA flags and the cap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import hashlib
import shlex
import textwrap

from lagom_xla import plan as plan_lib
from lagom_xla.apply.nccl import state
from lagom_xla.apply.nccl import table
from lagom_xla.compile import rewriting
from lagom_xla.flags import nccl_channels
from lagom_xla.flags import options as xla_options

TABLE = "nccl_table.bin"

_CAP = nccl_channels.VARIABLE

_BEFORE_START = """\
# Set this on every process of the job, before it starts: XLA and NCCL read it
# once."""
_SHELLS = """\
# Source it in bash or zsh: no other shell tells a sourced file where it is, and
# so where the table is."""
_OTHER_TUNERS = """\
# NCCL loads one tuner plugin: this plan's replaces any other, and what that one
# knows about its network is lost. Google's GPU images set NCCL_TUNER_PLUGIN to
# theirs, which stays unless LAGOM_XLA_REPLACE_TUNER=1 is set. AWS's OFI plugin
# brings a tuner without setting NCCL_TUNER_PLUGIN; it is replaced unless that
# variable names AWS's library."""
_ONE_CHOICE = """\
# The plugin must load on every process of the job or on none: ranks with
# different settings wait for each other forever."""
# Where a job does not apply all of a plan.
_APPLIED = {
  "flags": "# Chosen for jobs that set these XLA_FLAGS and nothing else.",
  "env": "# Chosen for jobs that set XLA_FLAGS and"
  f" {_CAP}, and load no plugin.",
}
_IN_PROCESS = """\
# A part of this plan acts only where the step is wrapped in
# lagom_xla.tune(plan=...), and the NCCL table is for steps that are."""

# Shell lines for jobs whose table sets channels: of a cap and the table NCCL
# would take the smaller number.
UNSET_FOR_TABLE = f"""\
if [ -n "${{{_CAP}:-}}${{NCCL_MAX_NCHANNELS:-}}" ]; then
  echo "lagom_xla: {_CAP} and NCCL_MAX_NCHANNELS are unset: they would" \\
    "cap the channels that this plan's table gives to collectives." >&2
fi
unset {_CAP} NCCL_MAX_NCHANNELS"""

_APPEND = """\
case " ${XLA_FLAGS:-}" in
  *" $lagom_xla_flags") ;;  # This was sourced before.
  *) XLA_FLAGS="${XLA_FLAGS:+$XLA_FLAGS }$lagom_xla_flags" ;;
esac
export XLA_FLAGS
unset lagom_xla_flags"""

_UNSET_FOR_OPTION = f"""\
if [ -n "${{{_CAP}:-}}" ]; then
  echo "lagom_xla: {_CAP} is unset: NCCL would take it in place of this" \\
    "plan's {nccl_channels.OPTION}." >&2
fi
unset {_CAP}"""


def script(plan: plan_lib.Plan, *, table_checksum: str | None) -> str:
  """The text of env.sh; the checksum is None where there are no settings."""
  parts = [f"# lagom_xla plan for {plan.module_name} on {plan.cluster.name}."]
  if plan.applied in _APPLIED:
    parts.append(_APPLIED[plan.applied])
  if plan.xla_flags:
    parts += [
      comment("It was made beside these XLA_FLAGS, which it does not set:"),
      comment(f"  {plan.xla_flags}"),
    ]
  parts.append(_BEFORE_START)
  if table_checksum is not None:
    parts.append(_SHELLS)
  if plan.xla.needs_process:
    parts.append(_IN_PROCESS)
  if not plan.xla.program.is_as_written:
    form = rewriting.in_words(plan.xla.program)
    parts.append(
      comment(f"So are the XLA flags: they suit a program with {form}.")
    )
  xla, cap = xla_lines(plan.xla.options), cap_lines(plan)
  content = f"{xla}\n{cap}\n{table_checksum}"
  digest = hashlib.sha256(content.encode()).hexdigest()[:12]
  after_another = _after_another_plan(digest)
  if table_checksum is not None:
    # The table first: where it is refused, nothing is set.
    with_table = _plugin_or_cap(cap, table_checksum, digest)
    parts += [after_another, with_table, xla]
  elif plan.xla.options or plan.nccl_env:
    parts += [after_another, xla, cap, _sourced(digest, "no_table")]
  else:
    parts += [after_another, xla, cap]
  return "\n".join(parts) + "\n"


def _after_another_plan(digest: str) -> str:
  """Lines for where another plan than this was sourced before.

  Its NCCL table would act under the later plan's flags. Its own flags and cap
  cannot be told from the user's, and stay, which is said.
  """
  return f"""\
case "${{{state.ENV}:-}}" in
  "" | {digest}:*) ;;
  *)
    echo "lagom_xla: another plan was sourced here, whose XLA_FLAGS and cap" \\
      "on channels stay; start a new shell to have this one alone." >&2
    if [ -n "${{LAGOM_XLA_NCCL_TABLE:-}}" ]; then
      unset NCCL_TUNER_PLUGIN LAGOM_XLA_NCCL_TABLE LAGOM_XLA_NCCL_CHECKSUM
    fi
    unset {state.ENV}
    ;;
esac"""


def _sourced(digest: str, what: str) -> str:
  """A line that tells `lagom_xla.check_processes` what was set, and of what."""
  return f"export {state.ENV}={digest}:{what}"


def xla_lines(options: Mapping[str, object]) -> str:
  """Lines that append XLA options to XLA_FLAGS, once.

  They come after the flags that are there already, and XLA takes the last
  occurrence; of lists it takes all. Comments before them name the options that
  could not be added.
  """
  if not options:
    return "# XLA's default options are as good as any that were tried."
  fitted = xla_options.flags(options)
  lines = [*map(comment, fitted.messages)]
  if fitted.flags:
    text = shlex.quote(" ".join(map(str, fitted.flags)))
    lines += [f"lagom_xla_flags={text}", _APPEND, *lines_beside(options)]
  return "\n".join(lines)


def lines_beside(options: Mapping[str, object]) -> list[str]:
  """Shell lines that XLA options need beside them to act; most need none."""
  return [_UNSET_FOR_OPTION] if options.get(nccl_channels.OPTION) else []


def cap_lines(plan: plan_lib.Plan) -> str:
  """Lines that set a plan's cap, where that is one of NCCL's variables."""
  if plan.applied == "flags":
    return "# Of NCCL's variables it sets none."
  return nccl_lines(plan.nccl_env)


def nccl_lines(variables: Mapping[str, str]) -> str:
  """Lines that set NCCL's variables, for all collectives of a process."""
  if not variables:
    return "# NCCL's own choices are as good as any cap on its channels."
  return exports(variables)


def exports(variables: Mapping[str, str]) -> str:
  """Lines that set environment variables to exactly these values."""
  return "\n".join(
    f"export {name}={shlex.quote(value)}" for name, value in variables.items()
  )


def comment(text: str) -> str:
  """A comment in one line, whatever is in the text."""
  return "# " + " ".join(text.splitlines())


def _plugin_or_cap(cap: str, table_checksum: str, digest: str) -> str:
  """Lines that load the tuner plugin with the table, or else set the cap."""
  return f"""\
{_OTHER_TUNERS}
{_ONE_CHOICE}
lagom_xla_here=
if [ -n "${{BASH_VERSION:-}}${{ZSH_VERSION:-}}" ]; then
  lagom_xla_here="$(
    CDPATH= cd -- "$(dirname -- "${{BASH_SOURCE[0]:-$0}}")" && pwd
  )"
fi
# Where LAGOM_XLA_NCCL_TABLE is set, the plugin is ours, from an earlier plan.
if [ -n "${{NCCL_TUNER_PLUGIN:-}}" ] && [ -z "${{LAGOM_XLA_NCCL_TABLE:-}}" ] &&
  [ -z "${{LAGOM_XLA_REPLACE_TUNER:-}}" ]
then
  echo "lagom_xla: NCCL_TUNER_PLUGIN stays $NCCL_TUNER_PLUGIN; NCCL runs" \\
    "without this plan's settings." >&2
  {_sourced(digest, "other_tuner")}
else
  lagom_xla_status=1
  if [ -n "$lagom_xla_here" ]; then
    lagom_xla_status=0
    lagom_xla_plugin="$(
      lagom-xla plugin --path --table="$lagom_xla_here/{TABLE}" \\
        --checksum={table_checksum}
    )" || lagom_xla_status=$?
  fi
  if [ "$lagom_xla_status" = 0 ]; then
    export NCCL_TUNER_PLUGIN="$lagom_xla_plugin"
    export LAGOM_XLA_NCCL_TABLE="$lagom_xla_here/{TABLE}"
    export LAGOM_XLA_NCCL_CHECKSUM={table_checksum}
{textwrap.indent(UNSET_FOR_TABLE, "    ")}
    {_sourced(digest, "plugin")}
  elif [ "$lagom_xla_status" = 2 ]; then
    echo "lagom_xla: nothing of this plan is set; no process of the job may" \\
      "start with a part of it." >&2
    {_sourced(digest, "refused")}
    unset lagom_xla_here lagom_xla_plugin lagom_xla_status
    return 2 2>/dev/null || exit 2
  else
    echo "lagom_xla: no tuner plugin, or neither bash nor zsh; NCCL gets one" \\
      "cap instead of settings per collective, as must all processes." >&2
{textwrap.indent(cap, "    ")}
    {_sourced(digest, "cap")}
  fi
fi
unset lagom_xla_here lagom_xla_plugin lagom_xla_status"""


# A rule's kind -> the function as NCCL_ALGO and NCCL_PROTO name it.
_FUNCTIONS = {
  "collective-broadcast": "broadcast",
  "reduce": "reduce",
  "all-gather": "allgather",
  "reduce-scatter": "reducescatter",
  "all-reduce": "allreduce",
}


def per_function(rules: Iterable[table.Rule]) -> Mapping[str, str]:
  """NCCL_ALGO and NCCL_PROTO, which stand in for rules where no plugin loads.

  Both variables hold for every size on every communicator of the process, also
  where no rule applies: one choice per function. So they are set only for a
  function whose rules all agree, and never to what could end a job or corrupt
  its data:
  - Where NCCL can run none of the algorithms named, it fails. A ring runs
    everywhere, so it is always named beside another algorithm.
  - Naming LL128 takes it as safe also on links where NCCL knows that it is not
    (src/graph/tuning.cc), and LL has half the bandwidth. Only Simple is named.

  Raises:
    RuleError: a rule is not usable, or two share a size.
  """
  by_kind: dict[str, list[table.Rule]] = {}
  for rule in table.in_order(rules):
    by_kind.setdefault(rule.kind, []).append(rule)
  algorithms, protocols = [], []
  for kind, same_kind in by_kind.items():
    function = _FUNCTIONS[kind]
    algorithm, *others = {rule.algorithm for rule in same_kind}
    if not others:
      names = algorithm if algorithm == "ring" else f"{algorithm},ring"
      algorithms.append(f"{function}:{names}")
    if {rule.protocol for rule in same_kind} == {"simple"}:
      protocols.append(f"{function}:simple")
  values = {"NCCL_ALGO": algorithms, "NCCL_PROTO": protocols}
  return {name: ";".join(sorted(v)) for name, v in values.items() if v}
