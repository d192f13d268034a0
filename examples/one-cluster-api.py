"""A HyperFleet API with a single cluster, for the tutorial: python3 examples/one-cluster-api.py

`GET /api/hyperfleet/v1/clusters` lists it. `POST /change` increments its generation, as a changed spec
does. `POST /report` sets its status, as the reports of adapters do.
"""

import json
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

CLUSTER = {
    "id": "cls-123",
    "kind": "Cluster",
    "name": "my-first-cluster",
    "generation": 1,
    "labels": {"region": "us-east"},
    "metadata": {"name": "my-first-cluster", "labels": {"region": "us-east"}},
    "spec": {"nodes": 3},
    "status": {"phase": "NotReady", "observed_generation": 0},
}


class Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.respond({"page": 1, "size": 1, "total": 1, "items": [CLUSTER]})

    def do_POST(self) -> None:
        if self.path == "/change":
            CLUSTER["generation"] += 1
        elif self.path == "/report":
            now = datetime.now(UTC).isoformat()
            CLUSTER["status"] = {
                "phase": "Ready",
                "observed_generation": CLUSTER["generation"],
                "last_updated_time": now,
            }
        self.respond(CLUSTER)

    def respond(self, body: object) -> None:
        encoded = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", 8000), Api).serve_forever()
