"""Headless Chromium through the DevTools protocol over a pipe: as much of it as these tests need."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_SECONDS = 30
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
)  # fmt: skip


def find_chromium() -> str | None:
    """The path of a browser of this family, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser process; leave it as a context to end it."""

    def __init__(self, chromium: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dryfit-browser-", ignore_cleanup_errors=True)
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser reads from descriptor 3 and writes to 4; both ends are put out of the way of these first.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (to_browser, from_browser)]
        os.close(to_browser), os.close(from_browser)
        self._process = subprocess.Popen(
            [chromium, *_FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"],
            pass_fds=(3, 4),
            preexec_fn=lambda: (os.dup2(ends[0], 3), os.dup2(ends[1], 4)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in ends:
            os.close(end)
        self._number, self._buffer = 0, b""
        self.on_event: Callable[[dict[str, Any]], None] = lambda message: None

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)
        os.close(self._write), os.close(self._read)
        self._folder.cleanup()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Ask for something and wait for the answer; what happens meanwhile goes to `on_event`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._write, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]  # type: ignore[no-any-return]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            got = os.read(self._read, 1 << 20)
            if not got:
                raise RuntimeError("The browser has ended.")
            self._buffer += got
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.on_event(message)
        return message


class Tab:
    """One page: its requests and its complaints are kept from the moment it opens."""

    def __init__(self, browser: Browser, width: int = 1280, height: int = 900, scale: float = 1) -> None:
        self.browser = browser
        self.requests: list[str] = []
        self.problems: list[str] = []
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._target = target
        browser.on_event = self._note
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height, scale)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self._session, **parameters)

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self._target)

    def _note(self, message: dict[str, Any]) -> None:
        method, about = message["method"], message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(about["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(about["args"])[:2000])
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.problems.append(about["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"a dialog: {about['message']}")

    def resize(self, width: int, height: int, scale: float = 1, *, mobile: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def colours(self, scheme: str) -> None:
        """ "light" or "dark", as the system would say it."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path: Path) -> float:
        """Open a page from a file; when it was ready, in milliseconds after the navigation began."""
        self.call("Page.navigate", url=path.as_uri())
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            ready = self.evaluate("window.dryfitReady || 0")
            if ready:
                return float(ready)
            time.sleep(0.02)
        raise RuntimeError(f"The page was not ready within {PATIENCE_SECONDS} s: {self.problems}")

    def evaluate(self, script: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")

    def press(self, key: str, *, shift: bool = False) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 if shift else 0, **text)
        self.settle()

    def point(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def click(self, x: float, y: float) -> None:
        self.point(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **(self._all() if whole else {}))
        path.write_bytes(base64.b64decode(picture["data"]))

    def _all(self) -> dict[str, Any]:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
