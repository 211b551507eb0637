# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The decorator `strands`, which rewrites a jitted step without a search.

    @lagom_xla.strands
    @jax.jit
    def step(state, batch): ...

At its first call with a signature, the step is lowered as jit would lower it,
rewritten so that one micro-batch's collectives can run beside another's
kernels, and compiled. Nothing is predicted, so it works on any platform, and it
always applies the rewrite, without checking that it helps: `lagom_xla.tune`
checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import functools
from typing import Any, Protocol, overload

import jax

from lagom_xla import dispatch
from lagom_xla import errors
from lagom_xla.compile import rewriting
from lagom_xla.passes.program import form as form_lib

# Forms to try if none is given, starting with the one that overlaps most.
_STRONGEST_FIRST = (
  form_lib.Form(strands="paired"),
  form_lib.Form(strands="rotated"),
  form_lib.Form(strands="merged"),
)


class StrandedStep(Protocol):
  """A jitted step that is rewritten as it is called.

  Attributes:
    outcomes: what was rewritten and what was not, for each signature in the
      order of first calls.
  """

  outcomes: Sequence[form_lib.Outcome]

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    """Calls the step."""

  def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
    """Traces the jitted step, without any form."""

  def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
    """Lowers the jitted step, without any form."""


@overload
def strands(
  jitted_step: Callable[..., Any], *, form: form_lib.Form | None = None
) -> StrandedStep: ...


@overload
def strands(
  jitted_step: None = None, *, form: form_lib.Form | None = None
) -> Callable[[Callable[..., Any]], StrandedStep]: ...


def strands(
  jitted_step: Callable[..., Any] | None = None,
  *,
  form: form_lib.Form | None = None,
) -> StrandedStep | Callable[[Callable[..., Any]], StrandedStep]:
  """Rewrites a jitted step at its first call with each signature.

  Results, donation, static arguments, transformations and dispatch time are
  those of the jitted step. Each process of a job rewrites the step itself, with
  the same result: the rewrite depends only on the program.

  If the form cannot act, the step runs as jit would run it, and a
  RuntimeWarning, at most one per step, says why.

  Args:
    jitted_step: what `jax.jit` returned; left out in `@strands(form=...)`.
    form: the form; by default the strongest strands that the program allows:
      "paired", else "rotated", else "merged".

  Returns:
    A jitted function that also has `outcomes`; see `StrandedStep`.

  Raises:
    TypeError: the step is not jitted.
  """
  if jitted_step is None:
    return functools.partial(strands, form=form)
  if dispatch.is_bound(jitted_step):
    return dispatch.bound_alike(
      jitted_step, functools.partial(strands, form=form)
    )
  forms = _STRONGEST_FIRST if form is None else (form,)
  outcomes: list[form_lib.Outcome] = []

  def choose(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    refused = []
    for form in forms:
      rewritten, outcome = rewriting.step(lowered, form)
      if outcome.actions:
        outcomes.append(outcome)
        return rewritten.compile()
      refused.append(outcome)
    outcomes.append(sum(refused, start=form_lib.Outcome()))
    obstacles = map(rewriting.obstacle, forms, refused)
    raise errors.ProgramError(f"it cannot have {', nor '.join(obstacles)}.")

  step = dispatch.wrap(jitted_step, choose, by="lagom_xla.strands")
  step.outcomes = outcomes
  return step
