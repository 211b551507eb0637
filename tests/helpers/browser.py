# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that opens pages and reports errors and requests.

    with browser.Browser(folder) as chromium:
      chromium.open(page)
      chromium.evaluate("document.title")

It uses the DevTools protocol over a pipe, which needs no package.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
from types import TracebackType
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")

_TIMEOUT_S = 60.0


class Browser:
  """One tab.

  Attributes:
    errors: errors from the console or a script.
    requests: addresses that the page requested.
  """

  def __init__(self, profile: pathlib.Path):
    self.errors: list[str] = []
    self.requests: list[str] = []
    self._profile = profile
    self._number, self._rest = 0, b""
    self._session: str | None = None
    self._loaded = False

  def __enter__(self) -> Browser:
    assert PROGRAM is not None
    theirs_in, self._out = os.pipe()
    self._in, theirs_out = os.pipe()

    self._process = subprocess.Popen(
      [
        # The protocol uses file descriptors 3 and 4. A preexec_fn that sets
        # them is unsafe in a process with JAX's threads.
        *("bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash"),
        *(PROGRAM, "--headless", "--no-sandbox", "--disable-gpu"),
        *("--disable-quic", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update"),
        *("--remote-debugging-pipe", f"--user-data-dir={self._profile}"),
        "--window-size=1200,900",
        "about:blank",
      ],
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      pass_fds=(theirs_in, theirs_out),
    )
    os.close(theirs_in)
    os.close(theirs_out)
    target = self.send("Target.createTarget", url="about:blank")
    attached = self.send(
      "Target.attachToTarget", targetId=target["targetId"], flatten=True
    )
    self._session = attached["sessionId"]
    for domain in ("Page", "Runtime", "Network", "Log"):
      self.send(f"{domain}.enable")
    self._emulate(1200, "light")
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
  ) -> None:
    self._session = None
    try:
      self.send("Browser.close")
      self._process.wait(_TIMEOUT_S)
    finally:
      self._process.kill()
      os.close(self._out)
      os.close(self._in)

  def open(self, page: pathlib.Path) -> None:
    """Opens a file, and waits until it is loaded."""
    self._loaded = False
    self.send("Page.navigate", url=page.resolve().as_uri())
    while not self._loaded:
      self._read()

  def evaluate(self, script: str) -> Any:
    """The value of an expression in the page; awaits promises."""
    answer = self.send(
      "Runtime.evaluate",
      expression=script,
      returnByValue=True,
      awaitPromise=True,
    )
    assert "exceptionDetails" not in answer, answer
    return answer["result"].get("value")

  def until(self, condition: str) -> bool:
    """Waits until an expression is true; returns False after the time limit."""
    return self.evaluate(
      "new Promise(resolve => { const look = left => {"
      f" if ({condition}) resolve(true); else if (!left) resolve(false);"
      " else setTimeout(() => look(left - 1), 50); }; look(200); })"
    )

  def _emulate(self, width: int, scheme: str) -> None:
    """Sets the page's width and color scheme."""
    self.send(
      "Emulation.setDeviceMetricsOverride",
      width=width,
      height=900,
      deviceScaleFactor=1,
      mobile=width < 600,
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    self.send("Emulation.setEmulatedMedia", features=features)

  @contextlib.contextmanager
  def phone(self, label: str, *, is_dark: bool) -> Iterator[None]:
    """Emulates a phone; checks the page's width and its light or dark colors.

    `label` is the selector of a drawn text.
    """
    self._emulate(390, "dark" if is_dark else "light")
    try:
      width = "document.documentElement.scrollWidth"
      assert self.until(f"{width} === 390"), self.evaluate(width)
      styles = "getComputedStyle({}).{}"
      ground, text, ink = (
        # From "rgb(1, 2, 3)".
        sum(map(int, self.evaluate(styles.format(*of))[4:-1].split(",")))
        for of in (
          ("document.body", "backgroundColor"),
          ("document.body", "color"),
          (f"document.querySelector('{label}')", "fill"),
        )
      )
      assert (ground < text) == (ground < ink) == is_dark
      yield
    finally:
      self._emulate(1200, "light")

  def hover(self, x: float, y: float) -> None:
    """Moves the mouse to a point in the window."""
    for dx in (-2, -1, 0):
      self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x + dx, y=y)

  def send(self, method: str, **parameters: Any) -> dict[str, Any]:
    """Sends a command, and returns its result."""
    self._number += 1
    number = self._number
    message: dict[str, Any] = {"id": number, "method": method}
    message["params"] = parameters
    if self._session:
      message["sessionId"] = self._session
    os.write(self._out, json.dumps(message).encode() + b"\0")
    while True:
      answer = self._read()
      if answer.get("id") == number:
        assert "error" not in answer, answer
        return answer["result"]

  def _read(self) -> dict[str, Any]:
    while b"\0" not in self._rest:
      ready, _, _ = select.select([self._in], [], [], _TIMEOUT_S)
      assert ready, "Chromium says nothing."
      data = os.read(self._in, 1 << 20)
      assert data, "Chromium ended."
      self._rest += data
    line, _, self._rest = self._rest.partition(b"\0")
    message = json.loads(line)
    self._keep(message.get("method"), message.get("params", {}))
    return message

  def _keep(self, method: str | None, event: dict[str, Any]) -> None:
    if method == "Page.loadEventFired":
      self._loaded = True
    elif method == "Network.requestWillBeSent":
      self.requests.append(event["request"]["url"])
    elif method == "Runtime.exceptionThrown" or (
      method in ("Runtime.consoleAPICalled", "Log.entryAdded")
      and (event.get("type") or event["entry"]["level"]) in ("error", "warning")
    ):
      self.errors.append(str(event))
