"""Files that are no sound recording, for the reader in Python and the one in the browser alike."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

from ui.recording_routes import RECORDINGS_FOLDER

Document = dict[str, Any]


def sound() -> Document:
    """A small recording that both readers take."""
    document: Document = json.loads(
        gzip.decompress((RECORDINGS_FOLDER / "first-look.json.gz").read_bytes())
    )
    return document | {"steps": document["steps"][:3], "reqs": document["reqs"][:3]}


def damage(change: Callable[[Document], object]) -> Callable[[Document], bytes]:
    """The file of a recording after a change to it."""

    def damaged(document: Document) -> bytes:
        change(document)
        return json.dumps(document).encode()

    return damaged


def request(**changes: Any) -> Callable[[Document], bytes]:
    """The file of a recording whose first request has other values."""
    return damage(lambda d: d["reqs"][0].update(changes))


def dated(text: object) -> Callable[[Document], bytes]:
    """The file of a recording of another date."""
    return damage(lambda d: d.update(recorded=text))


DAMAGES: dict[str, Callable[[Document], bytes]] = {
    "recorded": dated("yesterday"),
    "recorded as a number": dated(20261129),
    "recorded as one reader alone writes dates": dated("Nov 29 2026"),
    "recorded in the short form": dated("20261129T120000Z"),
    "recorded without a zone": dated("2026-11-29T12:00:00"),
    "recorded on no day": dated("2026-02-30T12:00:00Z"),
    "recorded at no hour": dated("2026-02-28T24:00:00Z"),
    "machine": damage(lambda d: d.pop("machine")),
    "now": damage(lambda d: d.update(now="soon")),
    "now beyond numbers": damage(lambda d: d.update(now=10**400)),
    "engine": damage(lambda d: d["engine"].pop("budget")),
    "engine.roof": damage(lambda d: d["engine"].update(roof={"flops": "many"})),
    "engine.roof without numbers": damage(lambda d: d["engine"].update(roof={})),
    "engine.roof that is false": damage(lambda d: d["engine"].update(roof=False)),
    "sum": damage(lambda d: d.update(sum=[])),
    "sum.ttft": damage(lambda d: d["sum"].update(ttft=None)),
    "steps": damage(lambda d: d.update(steps=[[0] * 12] * 4_001)),
    "steps[1]": damage(lambda d: d["steps"][1].pop()),
    "reqs[0]": damage(lambda d: d["reqs"].insert(0, None)),
    "reqs[0] with half a token": request(out=1.5),
    "reqs[0] with more than can be counted": request(prompt=2**60),
    "reqs[0] without a time": damage(lambda d: d["reqs"][0].pop("que")),
    "reqs[0] with a time that is too long": request(end=2**60),
    "reqs[2] in no state": damage(lambda d: d["reqs"][2].update(st="<b>done</b>")),
    "reqs[0] in a list of states": request(st=[]),
    "reqs[0] without an end's reason": damage(lambda d: d["reqs"][0].pop("fin")),
    "reqs[0] with a bad token": request(tok=[0, 0, ["x"]]),
    "reqs[0] with more than gaps": request(tok=[0, 0, [], 0]),
    "reqs[0] with a bad chunk": request(chunks=[0, [[1]]]),
    "reqs[0] with chunks of no start": request(chunks=[None, []]),
    "reqs[0] with more than chunks": request(chunks=[0, [], 0]),
    "kv": damage(lambda d: d["kv"].update(n=10**12)),
    "kv of half a block": damage(lambda d: d["kv"].update(n=1.5)),
    "kv with bad runs": damage(lambda d: d["kv"].update(runs=[[1, 2]])),
}
"""By what is wrong; the first word begins the name of the part."""

BROKEN_FILES: dict[str, Callable[[Document], bytes]] = {
    "half a character": damage(lambda d: d.update(machine="a \ud800")),
    "half a character in what nobody reads": damage(lambda d: d["engine"].update({"\udfff": 1})),
    "too many levels": damage(lambda d: d["engine"].update(more=json.loads("[" * 99 + "]" * 99))),
    "another version": damage(lambda d: d.update(version=True)),
    "a number that is none": damage(lambda d: d.update(more=float("nan"))),
    "another encoding": lambda d: json.dumps(d).encode("utf-16"),
    "gzip with more behind it": lambda d: gzip.compress(json.dumps(d).encode()) + b"more",
    "two gzip streams": lambda d: gzip.compress(json.dumps(d).encode()) + gzip.compress(b" "),
    "gzip without its end": lambda d: gzip.compress(json.dumps(d).encode())[:-4],
}
"""Wrong as files, or in what no part of the page shows."""
