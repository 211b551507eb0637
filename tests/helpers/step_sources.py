# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps in a Python file, correct and wrong, as users would write them."""

from __future__ import annotations

import pathlib

# Line 1 is the first import.
SOURCE = """\
import functools
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np

def make_args(devices, width=64):
  mesh = Mesh(np.array(devices), ("x",))
  rows = NamedSharding(mesh, PartitionSpec("x"))
  shape = (int(width), int(width))
  arg = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=rows)
  return arg, arg

step = jax.jit(lambda w, x: x @ w)
step_args = make_args

def factory(devices, width=64):
  return step, make_args(devices, width)

def of_width(devices, width):
  return factory(devices, width)

class Trainer:
  def __init__(self, devices, width=64):
    self.args = make_args(devices, width)
  def lower(self):
    return step.lower(*self.args)

class Filtered:
  # As equinox.filter_jit does, it keeps constant what is no jax.Array.
  def __call__(self, w, x):
    return w[:] @ x
  def lower(self, *args):
    arrays = [isinstance(arg, jax.Array) for arg in args]
    dynamic = [arg for arg, is_array in zip(args, arrays) if is_array]
    def inside(dynamic):
      left = list(dynamic)
      return self(*(left.pop() if a else b for a, b in zip(arrays, args)))
    return jax.jit(inside).lower(dynamic[::-1])

def filtered(devices):
  return Filtered(), make_args(devices)

def mapped_on(devices=None):
  return jax.pmap(lambda x: jax.lax.psum(x, "i"), "i", devices=devices)

mapped = mapped_on()

def mapped_args(devices):
  return (jax.ShapeDtypeStruct((len(devices), 64), jnp.float32),)

def maps(devices):
  return mapped_on(devices), mapped_args(devices)

def sharded_by_jit(devices):
  rows = make_args(devices)[0].sharding
  plain = jax.ShapeDtypeStruct((64, 64), jnp.float32)
  return jax.jit(lambda w, x: x @ w, in_shardings=rows), (plain, plain)

def partly_concrete(devices):
  return step, (np.ones((64, 64), np.float32), make_args(devices)[1])

def plain_shapes(devices):
  plain = jax.ShapeDtypeStruct((64, 64), jnp.float32)
  return step, (plain, plain)

def concrete(devices):
  return step, (jnp.ones((64, 64)), np.ones((64, 64)))

def on_cpu(devices):
  return step, make_args(jax.devices("cpu"))

def on_half(devices):
  return step, make_args(devices[:4])

def not_jitted(w, x):
  return x @ w

def gives_unjitted(devices):
  return not_jitted, make_args(devices)

def gives_step_alone(devices):
  return step

def gives_bare_argument(devices):
  return step, make_args(devices)[0]

@functools.partial(jax.jit, static_argnames="times")
def named(w, *, x, times):
  for _ in range(times):
    w = w @ x
  return w

def by_name(devices):
  w, x = make_args(devices)
  return named, (w,), {"x": x, "times": 1}

def by_partial(devices):
  w, x = make_args(devices)
  return functools.partial(named, w, times=2), (), {"x": x, "times": 1}

scaled = functools.partial(jax.jit(lambda by, w, x: by * (w @ x)), 2.0)
scaled_args = make_args

class Model:
  @functools.partial(jax.jit, static_argnums=0)
  def step(self, w, x):
    return w @ x

def by_method(devices):
  return Model().step, make_args(devices)

def gives_arguments_apart(devices):
  return step, *make_args(devices)

def gives_compiled(devices):
  args = make_args(devices)
  return step.lower(*args).compile(), args

def forgets_to_decorate(devices):
  yield step, make_args(devices)

def puts_an_array(devices):
  like = make_args(devices)[0]
  return step, (jax.device_put(np.ones((64, 64)), like.sharding),) * 2

def makes_a_ref(devices):
  like = make_args(devices)[0]
  array = jax.device_put(np.ones((64, 64)), like.sharding)
  return step, (jax.new_ref(array), like)

def takes_a_ref(devices):
  counter = jax.ref.AbstractRef(jax.core.ShapedArray((), jnp.int32))
  def count(counter, x):
    counter[...] += 1
    return x @ x
  return jax.jit(count), (counter, make_args(devices)[0])

def calls_back(devices):
  args = make_args(devices)
  like = jax.ShapeDtypeStruct((), jnp.float32)
  return jax.jit(lambda w, x: jax.pure_callback(np.sum, like, x)), args

def half_on_cpus(devices):
  w, x = make_args(devices)
  return step, (jax.device_put(np.ones((64, 64)), jax.devices("cpu")[0]), x)

def abstract(devices):
  mesh = jax.sharding.AbstractMesh((8,), ("x",))
  rows = NamedSharding(mesh, PartitionSpec("x"))
  arg = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=rows)
  return step, (arg, arg)

def takes_nothing():
  return step

def does_not_divide(devices):
  rows = NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x"))
  x = jax.ShapeDtypeStruct((60,), jnp.float32, sharding=rows)
  return jax.jit(lambda x: x), (x,)

def raises(devices):
  raise RuntimeError("first line\\nsecond line")

@jax.jit
def raises_inside(w, x):
  return w @ jnp.ones((3, 3))

raises_inside_args = make_args
lonely = jax.jit(lambda w: w)
number = 3
"""


def write(directory: pathlib.Path) -> pathlib.Path:
  """Writes the file into a directory."""
  file = directory / "steps.py"
  file.write_text(SOURCE)
  return file


def line_of(words: str) -> int:
  """The number of the last line with these words."""
  lines = SOURCE.splitlines()
  return max(n for n, line in enumerate(lines, start=1) if words in line)
