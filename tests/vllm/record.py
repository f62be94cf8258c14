"""Records a real server's answers anew: `python -m tests.vllm.record URL KEY`.

The requests are those of recorded.json; the server is to run with the flags that the file names.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import httpx

RECORDED = Path(__file__).with_name("recorded.json")


def recorded() -> dict[str, Any]:
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def asked(client: httpx.Client, request: dict[str, Any]) -> dict[str, Any]:
    """Status, content type and answer, which of a stream is the list of its events."""
    body = request.get("body")
    if "repeat" in request:
        body = body | {"prompt": [[40] * request["repeat"]]}
    sent = {"json": body} if body else {"content": request.get("text", "")}
    headers = {"Authorization": f"Bearer {request['key']}"} if "key" in request else {}
    if sent.keys() == {"content"} and sent["content"]:
        headers["Content-Type"] = "application/json"
    if request["method"] == "GET":
        sent = {}
    answer = client.request(request["method"], request["path"], headers=headers, **sent)
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if kind == "text/event-stream":
        events = [event.removeprefix("data: ") for event in answer.text.split("\n\n") if event]
        told: Any = [event if event == "[DONE]" else json.loads(event) for event in events]
    else:
        told = json.loads(answer.text) if kind == "application/json" else answer.text
    return {"status": answer.status_code, "type": kind, "answer": told}


def main(url: str, key: str) -> None:
    data = recorded()
    with httpx.Client(base_url=url, timeout=120, headers={"Authorization": f"Bearer {key}"}) as client:
        data["version"] = client.get("/version").json()["version"]
        root = client.get("/v1/models").json()["data"][0]["root"]
        data["exchanges"] = [
            {"name": each["name"], "request": each["request"]} | asked(client, each["request"])
            for each in data["exchanges"]
        ]
    text = json.dumps(data, ensure_ascii=False).replace(json.dumps(root), '"/models/smollm2-135m"')
    data = json.loads(re.sub(re.escape(key), "KEY", text))
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in data.pop("exchanges"))
    head = json.dumps(data, ensure_ascii=False, indent=1).removesuffix("\n}")
    RECORDED.write_text(f'{head},\n "exchanges": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
