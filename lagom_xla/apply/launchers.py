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
loaded, so a tuner that is there already (Google's and AWS's images bring one)
is left alone unless the user says otherwise.
"""

from __future__ import annotations

from lagom_xla import plan as plan_lib
from lagom_xla.apply import nccl_env
from lagom_xla.apply import xla_options

TABLE = "nccl_table.bin"

_BEFORE_START = (
  "Set this on every process of the job, before it starts: XLA and NCCL read it"
  " once."
)
_OTHER_TUNERS = """\
# NCCL loads one tuner. Google's GPU images set NCCL_TUNER_PLUGIN to their own,
# and AWS's OFI plugin brings one by itself: this plan's would replace it, and
# all it knows of their network. LAGOM_XLA_REPLACE_TUNER=1 says that it may."""
_GROUPS = """\
# This plan has combine groups. No variable sets them: they act where the step
# is wrapped in lagom_xla.tune(plan=...); the NCCL table is for such steps."""


def env_script(plan: plan_lib.Plan, *, table_checksum: str | None) -> str:
  """The text of env.sh.

  Args:
    plan: the plan.
    table_checksum: of the plan's NCCL table; None where it has no settings.
  """
  parts = [
    f"# lagom_xla plan for {plan.module_name} on {plan.cluster.name}.",
    f"# {_BEFORE_START}",
    *([] if plan.combine_groups is None else [_GROUPS]),
    xla_options.export_line(plan.xla_options),
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
lagom_xla_here="$(cd "$(dirname "${{BASH_SOURCE[0]:-$0}}")" && pwd)"
if [ -n "${{NCCL_TUNER_PLUGIN:-}}" ] && [ -z "${{LAGOM_XLA_REPLACE_TUNER:-}}" ]
then
  echo "lagom_xla: NCCL_TUNER_PLUGIN stays $NCCL_TUNER_PLUGIN; NCCL runs" \\
    "without this plan's settings." >&2
elif lagom_xla_plugin="$(lagom-xla plugin --path)"; then
  export NCCL_TUNER_PLUGIN="$lagom_xla_plugin"
  export LAGOM_XLA_NCCL_TABLE="$lagom_xla_here/{TABLE}"
  export LAGOM_XLA_NCCL_CHECKSUM={table_checksum}
else
  echo "lagom_xla: no tuner plugin here; NCCL gets one cap instead of" \\
    "settings per collective." >&2
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

  Args:
    plan: the plan.
    table_checksum: as for `env_script`.
  """
  flags = xla_options.xla_flags(plan.xla_options)
  settings = [
    ("XLA_FLAGS", flags, "behind the flags that the pod has already"),
  ]
  if table_checksum is not None:
    settings += [
      ("NCCL_TUNER_PLUGIN", "", "what `lagom-xla plugin --path` says there"),
      ("LAGOM_XLA_NCCL_TABLE", f"/etc/lagom_xla/{TABLE}", ""),
      ("LAGOM_XLA_NCCL_CHECKSUM", table_checksum, ""),
    ]
  else:
    settings += [(name, value, "") for name, value in plan.nccl_env.items()]
  lines = "\n".join(
    f"        - name: {name}\n          value: {_quoted(value)}"
    + (f"  # {note}" if note else "")
    for name, value, note in settings
    if value or note
  )
  return f"""\
# What each pod of a job on {plan.cluster.name} needs of this plan.
# {_BEFORE_START}
#
# First, from the folder above this one (all pods then read the same table):
#   kubectl create configmap lagom-xla-plan --from-file=plan/
{_OTHER_TUNERS}
spec:
  template:
    spec:
      containers:
      - name: train
        env:
{lines}
        volumeMounts:
        - name: lagom-xla-plan
          mountPath: /etc/lagom_xla
      volumes:
      - name: lagom-xla-plan
        configMap:
          name: lagom-xla-plan
"""


def _quoted(value: str) -> str:
  """A YAML scalar; none of our values holds a quote or a backslash."""
  return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
