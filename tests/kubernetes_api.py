"""A Kubernetes API server on loopback with the few requests that Snakemake's plugin sends.

In place of a cluster, it records submitted Jobs, runs their containers' commands on this
machine and reports their exit. It has no images, volumes or limits.
"""

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "users": [{"name": "user", "user": {}}],
    "contexts": [{"name": "double", "context": {"cluster": "double", "user": "user"}}],
    "current-context": "double",
}


@contextmanager
def kubernetes_api(folder):
    """Yield the environment for a client and the list of submitted Jobs."""
    jobs, statuses, threads = [], {}, []
    workdir, programs = folder / "workdir", folder / "programs"
    workdir.mkdir()
    programs.mkdir()
    # The plugin makes each pod install packages that the image already has.
    (programs / "pip").write_text("#!/bin/sh\n")
    (programs / "pip").chmod(0o755)
    own = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{programs}:{own}:{os.environ['PATH']}"}

    def run(name, container):
        command = [*container["command"], *container["args"]]
        done = subprocess.run(
            command, cwd=workdir, env=environment, capture_output=True, check=False
        )
        statuses[name] = {"failed": 1} if done.returncode else {"succeeded": 1}

    class Handler(BaseHTTPRequestHandler):
        def answer(self, content, status=200):
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self):
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.endswith("/jobs"):
                jobs.append(content)
                (container,) = content["spec"]["template"]["spec"]["containers"]
                arguments = (content["metadata"]["name"], container)
                threads.append(threading.Thread(target=run, args=arguments))
                threads[-1].start()
            self.answer(content, 201)

        def do_GET(self):
            if "/pods" in self.path:
                self.answer({"kind": "PodList", "apiVersion": "v1", "items": []})
                return
            name = self.path.split("/jobs/")[1].split("/")[0]
            spec = {"template": {"spec": {"containers": []}}}
            job = {"metadata": {"name": name}, "spec": spec, "status": statuses.get(name, {})}
            self.answer({"kind": "Job", "apiVersion": "batch/v1"} | job)

        def do_DELETE(self):
            self.answer({"kind": "Status", "apiVersion": "v1"})

        def log_message(self, *_words):
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
    config = CONFIG | {"clusters": [{"name": "double", "cluster": cluster}]}
    (folder / "kubeconfig").write_text(json.dumps(config))
    try:
        yield {"KUBECONFIG": str(folder / "kubeconfig")}, jobs
    finally:
        for thread in threads:
            thread.join()
        server.shutdown()
        server.server_close()
