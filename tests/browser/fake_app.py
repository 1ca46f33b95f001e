"""The page over the fake feed, as a small server of its own for the browser tests.

``python -m tests.browser.fake_app --port 7900 --scenario chat`` serves it for a look by hand.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr
import plotly
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tests.browser.fake_feed import Simulation, chat_hour, crowd
from ui import page as ui_page
from ui.recording_routes import RECORDINGS_FOLDER
from ui.serving import serve_page

SCENARIOS: dict[str, Callable[[], Simulation]] = {
    "empty": lambda: Simulation([]),
    "chat": lambda: _ran(Simulation(chat_hour()), 16.0),
    "tight": lambda: _ran(Simulation(chat_hour()[:4], blocks=64), 30.0),
    "thirty": lambda: _ran(Simulation(crowd(30), slots=8), 13.0),
    "many": lambda: _ran(Simulation(crowd(64, per_second=3), slots=16, blocks=1200), 24.0),
    "flood": lambda: _ran(Simulation(crowd(500, per_second=8), slots=24, blocks=4096), 80.0),
}


def _ran(simulation: Simulation, seconds: float) -> Simulation:
    simulation.run_until(seconds)
    return simulation


class FakeFeed:
    """Serves one simulation; tests move it on with ``live/test/advance?seconds=``."""

    def __init__(self, scenario: str, *, speed: float = 0.0) -> None:
        self.restarts = 0
        self.failing = False
        self.speed = speed
        self.load(scenario)

    def load(self, scenario: str) -> None:
        self.simulation = SCENARIOS[scenario]()
        self.epoch = f"{scenario}-{id(self.simulation):x}"
        self.frames: list[dict[str, Any]] = []

    def advance(self, seconds: float) -> None:
        self.simulation.run_until(self.simulation.now / 10_000 + seconds)
        self.frames.append(self.simulation.frame())

    async def feed(self, request: Request) -> Response:
        if self.failing:
            return Response(status_code=503)
        if self.speed:
            self.advance(0.4 * self.speed)
        since = int(request.query_params["since"])
        if since < 0 or request.query_params.get("epoch") != self.epoch:
            frames = [self.simulation.frame(reset=True)]
            self.frames = []
            since = -1
        elif since >= len(self.frames):
            return Response(status_code=204)
        else:
            frames = self.frames[since:]
        body = {"cursor": len(self.frames), "epoch": self.epoch, "frames": frames}
        return JSONResponse(body, headers={"Cache-Control": "no-store"})

    async def control(self, request: Request) -> Response:
        """Test switches: scenario, seconds, state, text, failing."""
        query = request.query_params
        if "scenario" in query:
            self.load(query["scenario"])
        if "seconds" in query:
            self.advance(float(query["seconds"]))
        if "state" in query:
            self.simulation.state, self.simulation.state_text = (
                query["state"],
                query.get("text", ""),
            )
            self.frames.append(self.simulation.frame())
        self.failing = query.get("failing") == "1"
        return JSONResponse({"restarts": self.restarts, "now": self.simulation.now})

    async def restart(self, _request: Request) -> Response:
        self.restarts += 1
        return Response(status_code=202)

    async def request_json(self, request: Request) -> Response:
        composition = {"system": 30, "history": 210, "message": 1041, "template": 12}
        return JSONResponse({"id": request.path_params["name"], "composition": composition})

    def routes(self) -> list[Route | Mount]:
        plotly_js = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"

        async def plotly_script(_request: Request) -> Response:
            return FileResponse(plotly_js, headers={"Cache-Control": "public, max-age=86400"})

        return [
            Route("/blank", blank),
            Route("/live/feed", self.feed),
            Route("/live/test", self.control),
            Route("/live/restart", self.restart, methods=["POST"]),
            Route("/live/plotly.js", plotly_script),
            Route("/live/request/{name}.json", self.request_json),
            Mount("/live/assets", StaticFiles(directory=ui_page.SCRIPT_FOLDER)),
            Mount("/live/recordings", StaticFiles(directory=RECORDINGS_FOLDER)),
        ]


async def blank(_request: Request) -> Response:
    """An empty document of the page's origin, to import modules into."""
    return HTMLResponse("<!doctype html><title>blank</title>")


def sample_chat() -> None:
    """Stands in for the chat card: a footer that names an own request, and a field to type in."""
    gr.HTML(
        '<p class="ps-cap" style="padding:16px">No chat in this test page.</p>'
        '<button type="button" data-own="7" data-request="7" style="margin:0 16px">R7</button>'
        '<textarea aria-label="Your message" style="margin:16px"></textarea>',
        js_on_load=None,
    )


def serve(feed: FakeFeed, port: int, *, block: bool = False) -> gr.Blocks:
    """Launch the page over ``feed`` on ``port``; the caller closes the returned Blocks."""
    demo = ui_page.build_page(sample_chat)
    serve_page(demo, "127.0.0.1", port, feed.routes())
    if block:
        demo.block_thread()
    return demo


def main() -> None:
    """Serve a scenario by hand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=7900)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default="chat")
    parser.add_argument("--speed", type=float, default=0.0, help="simulated seconds a second")
    options = parser.parse_args()
    print(json.dumps({"port": options.port, "scenario": options.scenario}))
    serve(FakeFeed(options.scenario, speed=options.speed), options.port, block=True)


if __name__ == "__main__":
    main()
