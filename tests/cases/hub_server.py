"""A hub on this machine: a server with the paths that `huggingface_hub` asks for.

It keeps repositories in memory, {name: {revision: {file: bytes}}}, and the requests that came.
"""

import base64
import json
import threading
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

COMMIT = "c0ffee" + "0" * 34
PULL_REQUEST = {
    "title": "a pull request",
    "num": 1,
    "createdAt": "2026-01-01T00:00:00.000Z",
    "status": "draft",
    "repo": {"name": "owner/name", "type": "model"},
    "isPullRequest": True,
    "changes": {"base": "refs/heads/main"},
    "filesWithConflicts": [],
    "events": [],
}


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories = {}
        self.requests = []  # (method, path)
        self.failures = {}  # repository -> status, error code
        self.gives_no_metadata = False
        self.created, self.commits = [], []

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"

    def asked_for(self, method):
        return [path for verb, path in self.requests if verb == method]


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(self.path.partition("?")[0])
        self.server.requests.append((self.command, path))
        owner_and_name, found, rest = path[1:].partition("/resolve/")
        if path.endswith("/discussions/1"):
            self.send(PULL_REQUEST)
            return
        if not found:
            self.answer(404, b"{}")
            return
        revision, _, name = rest.rpartition("/")
        if owner_and_name in self.server.failures:
            status, code = self.server.failures[owner_and_name]
            self.answer(status, b"", {"X-Error-Code": code} if code else {})
            return
        revisions = self.server.repositories.get(owner_and_name)
        if revisions is None:
            self.answer(401, b"", {"X-Error-Code": "RepoNotFound"})
        elif revision not in {*revisions, COMMIT}:
            self.answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif name not in revisions[revision]:
            self.answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        else:
            data = revisions[revision][name]
            commit = sha1(revision.encode()).hexdigest()
            headers = {"ETag": f'"{sha1(data).hexdigest()}"', "X-Repo-Commit": commit}
            self.answer(200, data, {} if self.server.gives_no_metadata else headers)

    def do_POST(self):
        path = unquote(self.path.partition("?")[0])
        self.server.requests.append(("POST", self.path))
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            if name in self.server.failures:
                self.answer(self.server.failures[name][0], b'{"error": "not yours"}')
                return
            self.server.created.append(asked)
            self.send({"url": f"{self.server.address}/{name}"})
        elif path == "/api/validate-yaml":
            self.send({"warnings": [], "errors": []})
        elif "/preupload/" in path:
            files = json.loads(body)["files"]
            regular = {"uploadMode": "regular", "shouldIgnore": False}
            self.send({"files": [{"path": file["path"], **regular} for file in files]})
        elif path.endswith("/discussions"):
            self.send({"num": 1})
        elif "/commit/" in path:
            self.commit(path, [json.loads(line) for line in body.splitlines()])
        else:
            self.answer(404, b"{}")

    def commit(self, path, lines):
        name, _, revision = path.removeprefix("/api/models/").partition("/commit/")
        files = self.server.repositories.setdefault(name, {}).setdefault(revision, {})
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.server.commits.append((self.path, value["summary"]))
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
        address = f"{self.server.address}/{name}"
        self.send(
            {
                "commitUrl": f"{address}/commit/{COMMIT}",
                "commitOid": COMMIT,
                "pullRequestUrl": f"{address}/discussions/1",
            }
        )

    def send(self, found):
        self.answer(200, json.dumps(found).encode(), {"Content-Type": "application/json"})

    def answer(self, status, data, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format, *arguments):
        pass


@contextmanager
def local_hub(monkeypatch, folder):
    """The hub of this process: a server on this machine, its cache and no token."""
    from huggingface_hub import constants
    from huggingface_hub.utils import _http, close_session

    hub = Hub()
    template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "no token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)  # between attempts
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        close_session()  # its sockets
        hub.shutdown()
        thread.join()
        hub.server_close()
