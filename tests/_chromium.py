"""A headless Chromium, driven through a pipe: no package needed beside the browser.

With `--remote-debugging-pipe` the browser reads commands of the DevTools protocol from
its file descriptor 3 and answers on 4, JSON texts with a zero byte after each.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# The child cannot be given descriptors 3 and 4 directly: it moves them there itself.
_LAUNCH = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find():
    """Path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser with a profile of its own."""

    def __init__(self, executable, profile):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _LAUNCH, str(to_read), str(to_write)),
                *(executable, *_FLAGS, f"--user-data-dir={profile}", "about:blank"),
            ],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._count, self._session = b"", 0, None
        self.events = []
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call(
            "Target.attachToTarget", targetId=target, flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        """End the browser."""
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, EOFError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(10)
        os.close(self._read)
        os.close(self._write)

    def call(self, method, **parameters):
        """Send a command and wait for its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url, *, width=1200, height=900, scheme="light"):
        """Open a page at this width, and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not self.seen("Page.loadEventFired"):
            self.events.append(self._receive())

    def seen(self, method):
        """Parameters of the events of this name since the page was opened."""
        return [e["params"] for e in self.events if e.get("method") == method]

    def evaluate(self, expression):
        """The value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self):
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "scale": 1}
        clip |= {"width": size["width"], "height": size["height"]}
        answer = self.call(
            "Page.captureScreenshot", captureBeyondViewport=True, clip=clip
        )
        return base64.b64decode(answer["data"])

    def complaints(self):
        """Errors and warnings of the console, exceptions, failed requests."""
        return [
            *(e for e in self.seen("Runtime.consoleAPICalled") if e["type"] != "log"),
            *self.seen("Runtime.exceptionThrown"),
            *(e["entry"] for e in self.seen("Log.entryAdded")),
            *self.seen("Network.loadingFailed"),
        ]

    def requests(self):
        """Addresses that the page asked for."""
        return [e["request"]["url"] for e in self.seen("Network.requestWillBeSent")]

    def _receive(self, timeout=30.0):
        end = time.monotonic() + timeout
        while b"\0" not in self._buffer:
            ready, _, _ = select.select(
                [self._read], [], [], max(0, end - time.monotonic())
            )
            if not ready:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._read, 1 << 16)
            if not data:
                raise EOFError("the browser has ended")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)
