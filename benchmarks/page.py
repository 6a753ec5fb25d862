"""How large the HTML page is and how soon it is ready in a browser: `python benchmarks/page.py [--repeat 3]`.

For synthetic training runs of about 100,000 and 1,000,000 events (see tests/report/page/synthetic.py), one line each:

    events, allocations       what the recording holds
    made in                   seconds that `page` takes, the analysis not included
    size                      of the file
    ready                     milliseconds from the navigation to the second frame after the first drawing; the median
    zoomed                    milliseconds of a frame while the wheel zooms around the whole run, the worst case; median

The budgets: 1 MB and 500 ms for 100,000 events, 6 MB and 1,500 ms for 1,000,000; 33 ms a frame.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from dryfit.report.page import page

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "report"))

from page.browser import Browser, Tab, find_chromium
from page.synthetic import training

RUNS = {100_000: {"layers": 24, "micro_batches": 8}, 1_000_000: {"layers": 48, "micro_batches": 16}}


_ZOOM = """(async () => {
  const picture = document.getElementById('timeline');
  picture.focus();
  const { left, top, width } = picture.getBoundingClientRect();
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  const times = [];
  for (let i = 0; i < 60; i++) {
    const began = performance.now();
    picture.dispatchEvent(new WheelEvent('wheel', { deltaY: i % 2 ? 5 : -5, clientX: left + width / 2, clientY: top }));
    await frame();
    times.push(performance.now() - began);
  }
  return times.sort((a, b) => a - b)[30];
})()"""


def ready_and_zoomed_milliseconds(browser: Browser, path: Path) -> tuple[float, float]:
    tab = Tab(browser)
    ready = tab.open(path)
    zoomed = float(tab.evaluate(_ZOOM))
    tab.close()
    return ready, zoomed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("There is no Chromium here to open the page in; install one.")
    with tempfile.TemporaryDirectory() as folder, Browser(chromium) as browser:
        for events, shape in RUNS.items():
            analysis = training(events, **shape)
            began = time.perf_counter()
            text = page(analysis)
            seconds = time.perf_counter() - began
            path = Path(folder) / "page.html"
            path.write_text(text, encoding="utf-8")
            ready_and_zoomed_milliseconds(browser, path)  # the browser's own first page
            measured = [ready_and_zoomed_milliseconds(browser, path) for _ in range(repeat)]
            ready, zoomed = map(statistics.median, zip(*measured, strict=True))
            print(
                f"{len(analysis.trace.events):9,} events, {len(analysis.replay.lifetimes):7,} allocations:"
                f"  made in {seconds:.2f} s,  size {path.stat().st_size / 1e6:.2f} MB,"
                f"  ready {ready:.0f} ms,  zoomed {zoomed:.0f} ms"
            )


if __name__ == "__main__":
    main()
