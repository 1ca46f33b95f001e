"""Makes a recording with the real engine: a few users of each kind, and then the file.

    python -m ui.record assets/recordings/first-look.json.gz

made the bundled one. It takes the flags of app.py that choose model and machine use; the clock runs
as long as the answers take.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import sys
from pathlib import Path

import orjson

from engine import environment
from engine.contracts import EngineParts, Report, ServiceStatus
from engine.core.errors import PhaseScopeError
from engine.service import EngineService
from engine.settings import Settings, parse
from ui.recording import make_recording
from ui.visitors import Kind, Visitors

# Seconds after the start, users and what they do: streams to watch, a long prompt into the middle
# of them, then several readers of one document.
SCENE = (
    (0.0, 4, Kind.SHORT_CHAT),
    (2.5, 1, Kind.LONG_PROMPT),
    (5.0, 3, Kind.SHARED_DOCUMENT),
)
_LOOK_SECONDS = 0.2


async def play(visitors: Visitors) -> None:
    """Let the scene's users come; returns when all of them have left."""
    began = asyncio.get_running_loop().time()
    for after, count, kind in SCENE:
        await asyncio.sleep(max(0.0, began + after - asyncio.get_running_loop().time()))
        visitors.add(count, kind)
    while visitors.num_running:
        await asyncio.sleep(_LOOK_SECONDS)


async def record(settings: Settings) -> bytes:
    """Load the model, play the scene, and give the recording as gzip-compressed JSON.

    Raises PhaseScopeError when the model cannot be served.
    """

    def build(report: Report) -> EngineParts:
        from engine.assembly import build_engine

        return build_engine(settings, report)

    service = EngineService(build)
    service.start()
    try:
        while service.state.status in (ServiceStatus.LOADING, ServiceStatus.MEASURING):
            await asyncio.sleep(_LOOK_SECONDS)
        if service.state.status is not ServiceStatus.READY:
            raise PhaseScopeError(service.state.reason)
        await play(Visitors(service))
        # Without a date in the header, the same recording is the same file.
        return gzip.compress(orjson.dumps(make_recording(service)), mtime=0)
    finally:
        service.close(wait=5)


def main() -> None:
    """Write a recording to the file that the command line names."""
    parser = argparse.ArgumentParser(description="Record the real engine at work.", add_help=False)
    parser.add_argument("file", type=Path)
    options, rest = parser.parse_known_args()
    settings = parse(rest)
    environment.prepare(settings.threads)
    try:
        data = asyncio.run(record(settings))
        options.file.parent.mkdir(parents=True, exist_ok=True)
        options.file.write_bytes(data)
    except PhaseScopeError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{options.file} cannot be written ({error.strerror}).")
    print(f"{options.file}: {len(data):,} bytes")


if __name__ == "__main__":
    main()
