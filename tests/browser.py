# SPDX-License-Identifier: LGPL-2.1-or-later
"""Headless Chromium for tests, through chromedriver: pages as they are shown, what is on the
console, and what was asked of the network."""
import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

DRIVER = shutil.which("chromedriver")
CHROMIUM = shutil.which("chromium")
ARGUMENTS = ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run",
             "disable-background-networking", "disable-component-update", "disable-sync",
             "disable-dev-shm-usage", "hide-scrollbars", "force-color-profile=srgb")


def missing():
    """Why there is no browser; None: there is one."""
    return None if DRIVER and CHROMIUM else "chromium and chromium-driver are not installed"


class Browser:
    """One window of that width and height, as a phone's if it is told so. Nothing of it is left at
    the end."""

    def __init__(self, width=1200, height=900, dark=False):
        self.folder = tempfile.mkdtemp(prefix="shade-browser-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.base = f"http://127.0.0.1:{port}"
        self.log = open(os.path.join(self.folder, "driver.log"), "wb")
        self.driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=self.log, stderr=self.log,
                                       stdin=subprocess.DEVNULL)
        self.session = None
        try:
            self.begin(width, height, dark)
        except BaseException:
            self.end()
            raise

    def begin(self, width, height, dark):
        until = time.monotonic() + 60
        while True:
            try:
                if self.ask("GET", "/status")["ready"]:
                    break
            except (OSError, urllib.error.URLError):
                pass
            assert time.monotonic() < until and self.driver.poll() is None, "no chromedriver"
            time.sleep(0.05)
        found = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "goog:chromeOptions": {
                "binary": CHROMIUM,
                "args": [*(f"--{word}" for word in ARGUMENTS),
                         f"--user-data-dir={self.folder}/data", f"--window-size={width},{height}"],
                "mobileEmulation": {"deviceMetrics": {"width": width, "height": height,
                                                      "pixelRatio": 1}}}}}})
        self.session = f"/session/{found['sessionId']}"
        # What a new window asks for itself is not a page's.
        self.ask("POST", self.session + "/url", {"url": "about:blank"})
        self.requests()
        self.console()
        if dark:
            self.command("Emulation.setEmulatedMedia", features=[
                {"name": "prefers-color-scheme", "value": "dark"}])

    def ask(self, method, path, body=None):
        request = urllib.request.Request(self.base + path, method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as failure:
            raise AssertionError(f"{path}: {failure.read().decode()[:2000]}") from failure

    def command(self, name, **parameters):
        """Of the protocol of the developer's tools."""
        return self.ask("POST", self.session + "/goog/cdp/execute",
                        {"cmd": name, "params": parameters})

    def open(self, path):
        self.ask("POST", self.session + "/url", {"url": "file://" + os.path.abspath(path)})

    def run(self, script):
        """What a function with that body returns; a page's policy does not bind it."""
        return self.ask("POST", self.session + "/execute/sync", {"script": script, "args": []})

    def console(self):
        """All messages since the last time."""
        return [entry["message"] for entry in
                self.ask("POST", self.session + "/se/log", {"type": "browser"})]

    def requests(self):
        """All addresses that were asked for since the last time."""
        entries = [json.loads(entry["message"])["message"] for entry in
                   self.ask("POST", self.session + "/se/log", {"type": "performance"})]
        return [entry["params"]["request"]["url"] for entry in entries
                if entry["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path):
        """The whole page."""
        height = self.run("return document.documentElement.scrollHeight")
        width = self.run("return innerWidth")
        found = self.command("Page.captureScreenshot", captureBeyondViewport=True,
                             clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(found["data"]))

    def pages(self):
        """As it is printed, a PDF."""
        found = self.ask("POST", self.session + "/print", {"background": False})
        return base64.b64decode(found)

    def end(self):
        try:
            if self.session:
                self.ask("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait(30)
            self.log.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
