# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a launcher needs to start a job with a plan.

    env.sh            sourced by whatever starts each process
    slurm.sh          the lines of a batch script that do so
    kubernetes.yaml   the same for a pod, with the plan's folder as a ConfigMap

All of it must be set before a process starts, on every process: XLA and NCCL
read it once, and ranks that choose differently wait for each other forever.

NCCL gets one of two: the settings per collective, where lagom_xla's tuner
plugin can be loaded, else one cap on the channels of all. Only one tuner can be
loaded, so one that NCCL_TUNER_PLUGIN names already (Google's images do so) is
left alone unless the user says otherwise. AWS's shows in no variable.

A sourced file learns where it is from bash and zsh only. Other shells get what
takes no table: the XLA flags and the cap.
"""

from __future__ import annotations

from collections.abc import Iterator

from lagom_xla import plan as plan_lib
from lagom_xla.apply import nccl_env
from lagom_xla.flags import options as xla_options

TABLE = "nccl_table.bin"

_BEFORE_START = (
  "Set this on every process of the job, before it starts: XLA and NCCL read it"
  " once."
)
_OTHER_TUNERS = """\
# NCCL loads one tuner, and this plan's replaces any other with all that it
# knows of its network. Google's GPU images set NCCL_TUNER_PLUGIN to theirs: it
# stays, unless LAGOM_XLA_REPLACE_TUNER=1 says that it may go. AWS's OFI plugin
# brings one without that variable, which is replaced, unless
# NCCL_TUNER_PLUGIN names AWS's library."""
_ONE_CHOICE = """\
# Whether the plugin is there must be the same for every process of the job:
# ranks with other settings wait for each other forever."""
_IN_PROCESS = """\
# A part of this plan acts only where the step is wrapped in
# lagom_xla.tune(plan=...), and the NCCL table is for steps that are."""


def env_script(plan: plan_lib.Plan, *, table_checksum: str | None) -> str:
  """The text of env.sh.

  Args:
    plan: the plan.
    table_checksum: of the plan's NCCL table; None where it has no settings.
  """
  parts = [
    f"# lagom_xla plan for {plan.module_name} on {plan.cluster.name}.",
    f"# {_BEFORE_START}",
    "# Source it in bash or zsh: no other shell tells it where its table is.",
    *([_IN_PROCESS] if plan.needs_process else []),
    xla_options.export_line(plan.xla.options),
  ]
  cap = nccl_env.export_lines(plan.nccl_env)
  if table_checksum is None:
    parts.append(cap)
  else:
    parts.append(_plugin_or_cap(cap, table_checksum))
  return "\n".join(parts) + "\n"


def _plugin_or_cap(cap: str, table_checksum: str) -> str:
  indented = "\n".join(f"  {line}" for line in cap.splitlines())
  return f"""\
{_OTHER_TUNERS}
{_ONE_CHOICE}
lagom_xla_here=
if [ -n "${{BASH_VERSION:-}}${{ZSH_VERSION:-}}" ]; then
  lagom_xla_here="$(
    CDPATH= cd -- "$(dirname -- "${{BASH_SOURCE[0]:-$0}}")" && pwd
  )"
fi
# A table of ours says that the plugin there is ours, of an earlier plan.
if [ -n "${{NCCL_TUNER_PLUGIN:-}}" ] && [ -z "${{LAGOM_XLA_NCCL_TABLE:-}}" ] &&
  [ -z "${{LAGOM_XLA_REPLACE_TUNER:-}}" ]
then
  echo "lagom_xla: NCCL_TUNER_PLUGIN stays $NCCL_TUNER_PLUGIN; NCCL runs" \\
    "without this plan's settings." >&2
elif [ -n "$lagom_xla_here" ] &&
  lagom_xla_plugin="$(lagom-xla plugin --path)"
then
  export NCCL_TUNER_PLUGIN="$lagom_xla_plugin"
  export LAGOM_XLA_NCCL_TABLE="$lagom_xla_here/{TABLE}"
  export LAGOM_XLA_NCCL_CHECKSUM={table_checksum}
else
  echo "lagom_xla: no tuner plugin, or neither bash nor zsh; NCCL gets one" \\
    "cap instead of settings per collective, as must all processes." >&2
{indented}
fi
unset lagom_xla_here lagom_xla_plugin"""


def slurm_script(plan: plan_lib.Plan) -> str:
  """The text of slurm.sh."""
  cluster = plan.cluster
  return f"""\
#!/bin/bash
# Lines for the batch script of a job on {cluster.name}, one task per GPU.
# {_BEFORE_START}
#SBATCH --nodes={cluster.num_nodes}
#SBATCH --ntasks-per-node={cluster.gpus_per_node}
#SBATCH --gpus-per-node={cluster.gpus_per_node}

# This folder, on a file system that every node sees. All ranks must read the
# same table.
PLAN="${{PLAN:-$PWD/plan}}"

# In each task, not here: the plugin's path may differ from node to node.
srun bash -c 'source "$0/env.sh" && exec "$@"' "$PLAN" \\
  python train.py
"""


def kubernetes_manifest(
  plan: plan_lib.Plan, *, table_checksum: str | None
) -> str:
  """The text of kubernetes.yaml.

  The pod's shell sources env.sh, because no list of variables could add to the
  flags that the pod has, or find the plugin in its image.

  Args:
    plan: the plan.
    table_checksum: as for `env_script`.
  """
  names = ["env.sh"] if table_checksum is None else ["env.sh", TABLE]
  from_files = " ".join(f"--from-file=plan/{name}" for name in names)
  settings = "\n".join(
    xla_options.comment(f"  {text}") for text in _settings(plan, table_checksum)
  )
  other_tuners = "" if table_checksum is None else f"{_OTHER_TUNERS}\n"
  return f"""\
# What each pod of a job on {plan.cluster.name} needs of this plan: a shell that
# sources env.sh before the program starts.
# {_BEFORE_START}
{settings}
#
# First, from the folder above this one (all pods then read the same files):
#   kubectl create configmap lagom-xla-plan {from_files}
{other_tuners}\
spec:
  template:
    spec:
      containers:
      - name: train
        command:
        - bash
        - -c
        - source /etc/lagom_xla/env.sh && exec "$@"
        - "-"
        args:
        - python
        - train.py
        volumeMounts:
        - name: lagom-xla-plan
          mountPath: /etc/lagom_xla
      volumes:
      - name: lagom-xla-plan
        configMap:
          name: lagom-xla-plan
"""


def _settings(plan: plan_lib.Plan, table_checksum: str | None) -> Iterator[str]:
  """What env.sh sets, to read."""
  flags = xla_options.xla_flags(plan.xla.options)
  if flags:
    yield f"XLA_FLAGS: {flags}, behind the flags that are there"
  if table_checksum is not None:
    yield "NCCL_TUNER_PLUGIN: what `lagom-xla plugin --path` says in the image"
    yield f"LAGOM_XLA_NCCL_TABLE: /etc/lagom_xla/{TABLE}"
    yield f"LAGOM_XLA_NCCL_CHECKSUM: {table_checksum}"
  instead = "" if table_checksum is None else ", where there is no plugin"
  for name, value in plan.nccl_env.items():
    yield f"{name}: {value}{instead}"
  if plan.is_default:
    yield "nothing: the defaults are the best that was found"
