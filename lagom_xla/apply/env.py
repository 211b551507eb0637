# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan's environment variables, as lines of shell.

`script` is env.sh, the one file that a launcher sources for every process
before it starts: XLA and NCCL read their variables once, and ranks that choose
differently hang.

It checks before it sets anything. If the job's JAX differs from the plan's, or
XLA_FLAGS would end the job (shell_flags.py), it sets nothing, says why, and
returns 2. It removes what an earlier plan set in the same shell.

NCCL gets settings per collective if lagom_xla's tuner plugin can be loaded, and
otherwise one cap on channels. NCCL loads only one tuner. One that
NCCL_TUNER_PLUGIN already names, as in Google's images, stays unless the user
says otherwise. AWS's tuner shows only in variables of its network. NCCL prefers
NCCL_ALGO and the like to any tuner, and sites set them because their links need
it: they stay, with a message about what they override.

A node with a damaged or missing table must not start with a cap, so nothing is
set and sourcing fails. LAGOM_XLA_ENV records what was set, so that
`lagom_xla.check_processes` finds nodes that differ.

Only bash and zsh tell a sourced file where it is. In other shells, env.sh sets
only the XLA flags and the cap, which need no table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import hashlib
import re
import shlex
import textwrap

from lagom_xla import plan as plan_lib
from lagom_xla.apply import shell_flags
from lagom_xla.apply.nccl import state
from lagom_xla.apply.nccl import table
from lagom_xla.compile import rewriting
from lagom_xla.costs.nccl import environment as nccl_environment
from lagom_xla.flags import environment
from lagom_xla.flags import nccl_channels
from lagom_xla.flags import syntax

TABLE = "nccl_table.bin"

_CAP = nccl_channels.VARIABLE
_comment = shell_flags.comment

_BEFORE_START = """\
# Source this on every process of the job before it starts: XLA and NCCL read
# their variables once."""
_SHELLS = """\
# Use bash or zsh: other shells do not tell a sourced file where it is, so it
# cannot find the table."""
_OTHER_TUNERS = """\
# NCCL loads only one tuner plugin. Google's GPU images set NCCL_TUNER_PLUGIN to
# theirs, which stays unless you set LAGOM_XLA_REPLACE_TUNER=1. AWS's OFI plugin
# brings a tuner without setting NCCL_TUNER_PLUGIN; this plan's replaces it
# unless that variable names AWS's library."""
_ONE_CHOICE = """\
# The plugin must load on every process of the job or on none: ranks with
# different settings hang."""
# For jobs that do not apply all of a plan.
_APPLIED = {
  "flags": "# Chosen for jobs that set these XLA_FLAGS and nothing else.",
  "env": "# Chosen for jobs that set XLA_FLAGS and"
  f" {_CAP}, and load no plugin.",
}
_IN_PROCESS = """\
# Part of this plan acts only if the step is wrapped in
# lagom_xla.tune(plan=...), and the NCCL table expects that."""

# Shell lines for jobs whose table sets channels: NCCL would use the smaller of
# the cap and the table's number.
UNSET_FOR_TABLE = f"""\
if [ -n "${{{_CAP}:-}}${{NCCL_MAX_NCHANNELS:-}}" ]; then
  echo "lagom_xla: {_CAP} and NCCL_MAX_NCHANNELS were unset: they would" \\
    "cap the channels in this plan's table." >&2
  unset {_CAP} NCCL_MAX_NCHANNELS
fi"""

# Skipped if there is no Python here: the job may run one in a container.
_OTHER_JAX = r"""
# XLA schedules differently from version to version.
if [ -z "${LAGOM_XLA_OTHER_JAX:-}" ]; then
  lagom_xla_ask='import importlib.metadata as m
print(*(f"{n} {m.version(n)}" for n in ("jax", "jaxlib")), sep=", ")'
  lagom_xla_jax="$(
    { python -c "$lagom_xla_ask" || python3 -c "$lagom_xla_ask"; } 2>/dev/null
  )" || lagom_xla_jax=
  case "$lagom_xla_jax" in
    @made_with@) ;;
    "jax "*)
      echo "lagom_xla: the plan was not applied: it was made with" \
        @made_with@ "and this is $lagom_xla_jax. Make the plan again, or set" \
        "LAGOM_XLA_OTHER_JAX=1 if the job runs another Python than this." >&2
      unset lagom_xla_ask lagom_xla_jax lagom_xla_flags
      unset lagom_xla_head lagom_xla_rest
      @refuse@
      ;;
  esac
  unset lagom_xla_ask lagom_xla_jax
fi"""

_AFTER_ANOTHER = r"""
case "${LAGOM_XLA_ENV:-}" in
  "" | @digest@:*) ;;
  *)
    echo "lagom_xla: this plan replaces one that was sourced before." >&2
    if [ -n "${LAGOM_XLA_NCCL_TABLE:-}" ]; then
      unset NCCL_TUNER_PLUGIN LAGOM_XLA_NCCL_TABLE LAGOM_XLA_NCCL_CHECKSUM
    fi
    if [ "${NCCL_MAX_CTAS:-}" = "${LAGOM_XLA_CAP:-}" ]; then
      unset NCCL_MAX_CTAS
    fi
    ;;
esac
unset LAGOM_XLA_CAP LAGOM_XLA_ENV"""

_PLUGIN_OR_CAP = r"""
lagom_xla_here=
if [ -n "${BASH_VERSION:-}${ZSH_VERSION:-}" ]; then
  lagom_xla_here="$(
    CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]:-$0}")" && pwd
  )"
fi
# NCCL's variables, from its files if the environment does not set them.
lagom_xla_line='
'
lagom_xla_files="$lagom_xla_line$(
  cat "${NCCL_CONF_FILE:-${HOME:-}/.nccl.conf}" /etc/nccl.conf 2>/dev/null
)" || :
lagom_xla_read() {
  eval "lagom_xla_value=\"\${$1-\$lagom_xla_line}\""
  if [ "$lagom_xla_value" = "$lagom_xla_line" ]; then
    lagom_xla_value=
    case "$lagom_xla_files" in
      *"$lagom_xla_line$1="*)
        lagom_xla_value="${lagom_xla_files#*"$lagom_xla_line$1="}"
        lagom_xla_value="${lagom_xla_value%%"$lagom_xla_line"*}"
        ;;
    esac
  fi
}
lagom_xla_status=1
lagom_xla_read NCCL_TUNER_PLUGIN
# Where LAGOM_XLA_NCCL_TABLE is set, the plugin is ours, from an earlier plan.
if [ -n "$lagom_xla_value" ] && [ -z "${LAGOM_XLA_NCCL_TABLE:-}" ] &&
  [ -z "${LAGOM_XLA_REPLACE_TUNER:-}" ]
then
  echo "lagom_xla: kept NCCL_TUNER_PLUGIN=$lagom_xla_value, so NCCL runs" \
    "without this plan's settings. To use them, set" \
    "LAGOM_XLA_REPLACE_TUNER=1 and source this file again." >&2
  export LAGOM_XLA_ENV=@digest@:other_tuner
else
  if [ -n "$lagom_xla_here" ]; then
    lagom_xla_status=0
    lagom_xla_plugin="$(
      lagom-xla plugin --path --table="$lagom_xla_here/@table@" \
        --checksum=@checksum@
    )" || lagom_xla_status=$?
  fi
  if [ "$lagom_xla_status" = 0 ]; then
    export NCCL_TUNER_PLUGIN="$lagom_xla_plugin"
    export LAGOM_XLA_NCCL_TABLE="$lagom_xla_here/@table@"
    export LAGOM_XLA_NCCL_CHECKSUM=@checksum@
    export LAGOM_XLA_ENV=@digest@:plugin
@unset@
    for lagom_xla_name in NCCL_MAX_CTAS NCCL_MAX_NCHANNELS; do
      lagom_xla_read "$lagom_xla_name"
      if [ -n "$lagom_xla_value" ]; then
        # NCCL prefers an empty variable to its files, and takes it as unset.
        export "$lagom_xla_name="
        echo "lagom_xla: $lagom_xla_name was emptied: NCCL's files have" \
          "$lagom_xla_value, which would cap the channels in this plan's" \
          "table." >&2
      fi
    done
    lagom_xla_others=
    for lagom_xla_name in @costed@; do
      lagom_xla_read "$lagom_xla_name"
      lagom_xla_value="$lagom_xla_name=$lagom_xla_value"
      case "$lagom_xla_value" in
        @made_under@ | NCCL_*_ENABLE=[12]) ;;
        *) lagom_xla_others="$lagom_xla_others $lagom_xla_value" ;;
      esac
    done
    if [ -n "$lagom_xla_others" ]; then
      echo "lagom_xla: NCCL prefers$lagom_xla_others to this plan's settings," \
        "which were made under" @under@". Unset them, or make the plan again" \
        "with them set." >&2
    fi
    case "${NCCL_NET_PLUGIN:-} ${FI_PROVIDER:-}" in
      *ofi* | *efa*)
        echo "lagom_xla: this plan's tuner replaces the one of aws-ofi-nccl;" \
          "to keep that, set NCCL_TUNER_PLUGIN=libnccl-tuner-ofi.so." >&2
        ;;
    esac
  elif [ "$lagom_xla_status" = 2 ]; then
    echo "lagom_xla: the plan was not applied: all processes of a job need" \
      "the same table." >&2
    unset lagom_xla_here lagom_xla_plugin lagom_xla_status lagom_xla_line
    unset lagom_xla_files lagom_xla_value lagom_xla_flags lagom_xla_head
    unset lagom_xla_rest
    @refuse@
  else
    echo "lagom_xla: the tuner plugin cannot be loaded (or this is neither" \
      "bash nor zsh), so NCCL gets one cap on channels instead of settings" \
      "per collective. All processes of the job must do the same." >&2
@cap@
    export LAGOM_XLA_ENV=@digest@:cap
  fi
fi
unset -f lagom_xla_read
unset lagom_xla_here lagom_xla_plugin lagom_xla_status lagom_xla_line
unset lagom_xla_files lagom_xla_value lagom_xla_name lagom_xla_others"""


def _filled(text: str, **values: str) -> str:
  """Shell lines with values in place of @names@."""
  for name, value in values.items():
    text = text.replace(f"@{name}@", value)
  return text.strip("\n")


def script(plan: plan_lib.Plan, *, table_checksum: str | None) -> str:
  """The text of env.sh; the checksum is None if there are no settings."""
  parts = [f"# lagom_xla plan for {plan.module_name} on {plan.cluster.name}."]
  if plan.applied in _APPLIED:
    parts.append(_APPLIED[plan.applied])
  if plan.xla_flags:
    parts += [
      _comment("It was made under these XLA_FLAGS, which it does not set:"),
      _comment(f"  {plan.xla_flags}"),
    ]
  if plan.compiler_options:
    parts += [
      _comment(
        "It was also made under these options of jax.jit or settings of JAX:"
      ),
      _comment(f"  {environment.in_words(plan.compiler_options)}"),
    ]
  parts.append(_BEFORE_START)
  if table_checksum is not None:
    parts.append(_SHELLS)
  if plan.xla.needs_process:
    parts.append(_IN_PROCESS)
  if not plan.xla.program.is_as_written:
    form = rewriting.in_words(plan.xla.program)
    parts.append(
      _comment(f"The XLA flags do, too: they suit a program with {form}.")
    )
  if plan.is_default:
    digest = "none"
  else:
    content = f"{plan.xla.options}\n{plan.nccl_env}\n{table_checksum}"
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
  parts.append(_filled(_AFTER_ANOTHER, digest=digest))
  parts.append(shell_flags.REMOVE)
  refuse = f"export {state.ENV}={digest}:refused\n{shell_flags.REFUSE}"
  # Checks come first, so that nothing is set if one fails.
  if look := shell_flags.looking(plan.xla.options, refuse):
    parts.append(look)
  if not plan.is_default:
    made_with = f"jax {plan.jax_version}, jaxlib {plan.jaxlib_version}"
    parts.append(
      _filled(
        _OTHER_JAX,
        made_with=shlex.quote(made_with),
        refuse=textwrap.indent(refuse, " " * 6).lstrip(),
      )
    )
  cap = cap_lines(plan)
  if table_checksum is not None:
    parts += [_OTHER_TUNERS, _ONE_CHOICE]
    parts.append(_plugin_or_cap(plan, cap, table_checksum, digest, refuse))
  parts.append(shell_flags.appending(plan.xla.options))
  if table_checksum is None:
    parts.append(cap)
    if not plan.is_default:
      parts.append(f"export {state.ENV}={digest}:no_table")
  return "\n".join(parts) + "\n"


# Lines that set a variable; lower case is the script's own.
_SETS = re.compile(
  r"^ *(?:export +)?(lagom_xla_flags|[A-Z][A-Z0-9_]*)=(.*)$", re.MULTILINE
)


def differences(edited: str, planned: str) -> tuple[str, ...]:
  """Names of XLA flags and variables by which an edited env.sh differs.

  Additions that do not change how steps run, such as NCCL_DEBUG or dump flags,
  are the user's own.
  """
  plans = _set_by(planned)
  names = {name for name, _ in _set_by(edited) ^ plans}
  added = names - {name for name, _ in plans}
  return tuple(sorted(names - {name for name in added if not _acts(name)}))


def _acts(name: str) -> bool:
  """Whether a flag or variable may change how steps run."""
  if name.startswith("NCCL_"):
    known = (*nccl_environment.COSTED, *nccl_environment.UNCOSTED)
    return name in (*known, nccl_environment.TUNER)
  is_flag = name.startswith(("xla_", "XLA_", "JAX_"))
  return is_flag and not name.startswith(environment.NOT_OF_THE_STEP)


def _set_by(script: str) -> set[tuple[str, str | None]]:
  """The names that env.sh sets, with values as they are written."""
  found: set[tuple[str, str | None]] = set()
  for name, value in _SETS.findall(script):
    if name == "lagom_xla_flags":
      flags, _ = syntax.parse(value.strip("'"))
      found |= {(flag.name, flag.value) for flag in flags}
    elif name != state.ENV:  # It has a checksum of the others.
      found.add((name, value))
  return found


def flag_lines(options: Mapping[str, object]) -> str:
  """Lines that put XLA options into XLA_FLAGS, as env.sh does."""
  look = shell_flags.looking(options)
  added = shell_flags.appending(options)
  return "\n".join([shell_flags.REMOVE, look, added] if look else [added])


def cap_lines(plan: plan_lib.Plan) -> str:
  """Lines that set a plan's cap, if the plan sets it by NCCL's variable."""
  if plan.applied == "flags":
    return "# It sets none of NCCL's variables."
  lines = nccl_lines(plan.nccl_env)
  if _CAP in plan.nccl_env:
    lines += f"\nexport LAGOM_XLA_CAP={shlex.quote(plan.nccl_env[_CAP])}"
  return lines


def nccl_lines(variables: Mapping[str, str]) -> str:
  """Lines that set NCCL's variables, for all collectives of a process."""
  if not variables:
    return "# No cap on channels beats NCCL's own choices."
  return exports(variables)


def exports(variables: Mapping[str, str]) -> str:
  """Lines that set environment variables to exactly these values."""
  return "\n".join(
    f"export {name}={shlex.quote(value)}" for name, value in variables.items()
  )


def _plugin_or_cap(
  plan: plan_lib.Plan, cap: str, checksum: str, digest: str, refuse: str
) -> str:
  """Lines that load the tuner plugin with the table, or set the cap."""
  under = plan.nccl_variables
  return _filled(
    _PLUGIN_OR_CAP,
    table=TABLE,
    checksum=checksum,
    digest=digest,
    unset=textwrap.indent(UNSET_FOR_TABLE, " " * 4),
    cap=textwrap.indent(cap, " " * 4),
    costed=" ".join(nccl_environment.COSTED),
    made_under=" | ".join(
      shlex.quote(f"{name}={under.get(name, '')}")
      for name in nccl_environment.COSTED
    ),
    under=shlex.quote(nccl_environment.in_words(under)),
    refuse=textwrap.indent(refuse, " " * 4).lstrip(),
  )


def per_function(rules: Iterable[table.Rule]) -> Mapping[str, str]:
  """NCCL_ALGO and NCCL_PROTO, which replace rules if no plugin loads.

  Both variables hold one choice per function, for every size on every
  communicator of the process, even if no rule applies. So they are set only for
  a function whose rules all agree, and never to values that could end a job or
  corrupt its data:
  - NCCL fails if it can run none of the named algorithms. A ring runs
    everywhere, so it is always named, too.
  - Naming LL128 enables it even on links where NCCL knows that it is unsafe
    (src/graph/tuning.cc), and LL has half the bandwidth. Only Simple is named.

  Raises:
    RuleError: a rule is not usable, or two share a size.
  """
  by_kind: dict[str, list[table.Rule]] = {}
  for rule in table.in_order(rules):
    by_kind.setdefault(rule.kind, []).append(rule)
  algorithms, protocols = [], []
  for kind, same_kind in by_kind.items():
    function = nccl_environment.FUNCTIONS[kind]
    algorithm, *others = {rule.algorithm for rule in same_kind}
    if not others:
      names = algorithm if algorithm == "ring" else f"{algorithm},ring"
      algorithms.append(f"{function}:{names}")
    if {rule.protocol for rule in same_kind} == {"simple"}:
      protocols.append(f"{function}:simple")
  values = {"NCCL_ALGO": algorithms, "NCCL_PROTO": protocols}
  return {name: ";".join(sorted(v)) for name, v in values.items() if v}
