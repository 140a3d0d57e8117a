"""The live page's first seconds in three browsers, from its folder and from a server: python -m tests.browsers"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tools.chromium import CHROMIUM, open_chromium
from tools.live import LIVE

MINI = str(next(Path("/usr/lib").glob("*/webkit2gtk*/MiniBrowser"), "MiniBrowser"))
DRIVER = ("127.0.0.1", 4571)  # of WebKit
# Seconds to the first word and to the model's own translation, and that of a sentence typed then.
SCRIPT = """(async () => {
  const text = "Eine Frau liest im Park ein Buch.", at = name => performance.getEntriesByName(name)[0].startTime / 1000;
  const until = async isDone => { while (!isDone()) await new Promise(later => setTimeout(later, 50)); };
  await until(() => shown && find("skip").textContent === "Play again");
  find("sentence").value = text;
  find("sentence").dispatchEvent(new Event("input"));
  await until(() => shown.text === text);
  return JSON.stringify([at("word"), at("live"), tokenizer.decode(shown.ids)]);
})()"""


def measured(name: str) -> Iterator[tuple[str, float, float, str, str]]:
    """Give for each address of the page what it begins with, what the script finds, and the console."""
    kinds = {**SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript; charset=utf-8"}  # as many servers say
    handler = {"protocol_version": "HTTP/1.1", "extensions_map": kinds, "log_message": lambda *_: None}
    quiet = type("Handler", (SimpleHTTPRequestHandler,), handler)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=LIVE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        served = f"http://127.0.0.1:{server.server_port}/index.html"
        for address in [served] if "4G" in name else [(LIVE / "index.html").as_uri(), served]:
            found, console = USED[name](address)
            yield address.split(":")[0], *json.loads(found), console
        server.shutdown()


def chromium(address: str, slowly: bool = False) -> tuple[str, str]:
    """Run the script in Chromium; `slowly` with 1.2 MB/s, 150 ms to and fro, and a quarter of the processor."""
    with open_chromium() as browser:
        page, console = browser.new_page(), []
        page.on("console", lambda message: message.type in ("error", "warning") and console.append(message.text))
        page.on("pageerror", lambda error: console.append(str(error)))
        if slowly:
            send = page.context.new_cdp_session(page).send
            net = {"offline": False, "latency": 150, "downloadThroughput": 1.2e6, "uploadThroughput": 1.2e6}
            send("Network.emulateNetworkConditions", net)
            send("Emulation.setCPUThrottlingRate", {"rate": 4})
        page.goto(address)
        return page.evaluate(SCRIPT), "".join(console)


def firefox(address: str) -> tuple[str, str]:
    """Run it in Firefox, by WebDriver BiDi."""
    import websocket

    def ask(method: str, **params: object) -> Any:
        line.send(json.dumps({"id": 1, "method": method, "params": params}))
        while "id" not in (answer := json.loads(line.recv())):
            console.append(str(answer))
        return answer["result"]

    console, options = [], ["--headless", "--no-remote", "--remote-debugging-port=0", "--profile"]
    with tempfile.TemporaryDirectory() as profile, started("firefox-esr", *options, profile) as process:
        door = next(filter(None, (re.search(r"ws://\S+", line) for line in process.stdout)))[0]
        line = websocket.create_connection(f"{door}/session", timeout=90, suppress_origin=True)
        ask("session.new", capabilities={})
        ask("session.subscribe", events=["log.entryAdded"])
        tab = ask("browsingContext.getTree")["contexts"][0]["context"]
        ask("browsingContext.navigate", context=tab, url=address, wait="complete")
        found = ask("script.evaluate", expression=SCRIPT, target={"context": tab}, awaitPromise=True)
        line.close()
    return found["result"]["value"], "".join(console)


def webkit(address: str) -> tuple[str, str]:
    """Run it in WebKit, by WebDriver."""

    def post(path: str, **data: object) -> Any:
        request = urllib.request.Request(f"http://{DRIVER[0]}:{DRIVER[1]}/session{path}", json.dumps(data).encode())
        return json.load(urllib.request.urlopen(request, timeout=90))["value"]

    with started("xvfb-run", "-a", "WebKitWebDriver", f"--port={DRIVER[1]}") as driver:
        with socket.socket() as door:
            while door.connect_ex(DRIVER) and driver.poll() is None:
                time.sleep(0.1)
        options = {"binary": MINI, "args": ["--automation"]}
        wanted = {"webkitgtk:browserOptions": options, "timeouts": {"script": 90_000}}
        session = "/" + post("", capabilities={"alwaysMatch": wanted})["sessionId"]
        post(f"{session}/url", url=address)
        found = post(f"{session}/execute/async", script=f"{SCRIPT}.then(arguments[0])", args=[])
    # What is driven keeps its console to itself.
    alone = ["timeout", "6", "xvfb-run", "-a", MINI, "--enable-write-console-messages-to-stdout=true", address]
    printed = subprocess.run(alone, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return found, "".join(re.findall(".*CONSOLE.*", printed))


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen]:
    """Run a program, and end it with all that it has started."""
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, start_new_session=True, **out) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGTERM)


SLOW = partial(chromium, slowly=True)
USED = {"Chromium": chromium, "Chromium with 4G and a slow processor": SLOW, "Firefox": firefox, "WebKit": webkit}
NEEDED = {"Firefox": ["firefox-esr"], "WebKit": ["WebKitWebDriver", "xvfb-run", "xauth", MINI]}
BROWSERS = [name for name in USED if all(map(shutil.which, NEEDED.get(name, [CHROMIUM or "chromium"])))]  # here

if __name__ == "__main__":
    for name in BROWSERS:
        for kind, word, live, typed, console in measured(name):
            print(f"{name}, {kind}: word {word:.2f} s, live {live:.2f} s, typed: {typed} {console or 'Console quiet.'}")
