"""The page as a person meets it, in a browser: figures, pointing, keys, colours, a phone, hostile names."""

from __future__ import annotations

import functools
import random
import time
from pathlib import Path

import pytest

from dryfit.analyse.analysis import Analysis
from dryfit.analyse.holdings import holdings_at, ledger_of
from dryfit.analyse.timeline import Timeline
from dryfit.recording import model
from dryfit.report.page import document, write_page
from dryfit.report.page.payload import payload
from dryfit.units import format_bytes

from .browser import Browser, Tab
from .synthetic import training

INSPECTED = "Object.assign({}, document.getElementById('inspector').dataset)"
FACTS = "Object.fromEntries([...document.querySelectorAll('[data-fact]')].map((e) => [e.dataset.fact, e.textContent]))"
OWNERS = (
    "Object.fromEntries([...document.querySelectorAll('#inspector [data-owner]')]"
    ".map((e) => [e.dataset.owner, Number(e.dataset.bytes)]))"
)


def centre(tab: Tab, selector: str) -> tuple[float, float]:
    """The middle of an element, once it is in sight."""
    box = tab.evaluate(
        f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
        "const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; })()"
    )
    return box[0], box[1]


def focus(tab: Tab, identifier: str) -> None:
    tab.evaluate(f"document.getElementById({identifier!r}).focus()")


def test_the_peak_is_the_figure(tab: Tab, run: Analysis) -> None:
    peak = run.footprint.peak
    label = tab.evaluate(
        "(() => { const e = document.getElementById('peak-label');"
        "return [e.textContent.trim(), e.dataset.bytes, e.hidden, e.querySelector('strong').textContent]; })()"
    )
    assert label == [f"peak {format_bytes(peak.allocated_bytes)}", str(peak.allocated_bytes), False,
                     format_bytes(peak.allocated_bytes)]  # fmt: skip
    # What the script adds up from the lifetimes, against what the analysis found.
    assert tab.evaluate(INSPECTED) | {"block": "-1"} == {
        "event": str(peak.event), "bytes": str(peak.allocated_bytes), "block": "-1",
    }  # fmt: skip
    assert tab.evaluate(OWNERS) == {each.owner: each.size_bytes for each in peak.owners if each.size_bytes}
    assert format_bytes(run.replay.reserved_bytes[peak.event]) in tab.evaluate(
        "document.querySelector('#inspector .reserved').textContent"
    )


def test_the_script_prints_bytes_as_python_does(tab: Tab) -> None:
    chance = random.Random(0)
    sizes = [0, 1, 512, 1023, 1024, 8519680, 8388608 + 41943, (1 << 30) - 1, 3 * (1 << 40) + 5]
    sizes += [chance.randrange(1 << chance.randrange(10, 46)) for _ in range(2000)]
    sizes += [unit * eighths // 8 for unit in (1 << 20, 1 << 30) for eighths in range(8, 200)]  # half a hundredth
    source = (Path(document.__file__).parent / "assets" / "format.js").read_text()
    found = tab.evaluate(f"(() => {{ {source}; return {sizes}.map(formatBytes); }})()")
    assert found == [format_bytes(size) for size in sizes]


def test_pointing_at_the_peak_shows_its_block(tab: Tab, run: Analysis) -> None:
    x, top = tab.evaluate(
        "(() => { const e = document.getElementById('timeline'); e.scrollIntoView();"
        "const b = document.getElementById('peak-label').getBoundingClientRect();"
        "return [b.left + b.width / 2, e.getBoundingClientRect().bottom]; })()"
    )
    tab.point(x, top - 30)  # just above zero: the lowest owner of the stack
    assert tab.evaluate(INSPECTED)["event"] == str(run.footprint.peak.event)
    facts = tab.evaluate(FACTS)
    assert facts["owner"] == "parameter"
    place = int(tab.evaluate(INSPECTED)["block"])
    size_bytes = run.replay.lifetimes.block_bytes[place]
    assert facts["size"] == f"{format_bytes(size_bytes)}, {size_bytes:,} bytes"
    assert facts["module"] == run.attribution.modules[run.attribution.module[place]]
    assert facts["line"] == "train.py:60 in forward"
    assert facts["made"] == f"event {run.replay.lifetimes.begin[place]:,}, setup"
    assert facts["freed"] == "never"


def test_pointing_at_the_block_map_shows_the_block_at_that_address(tab: Tab, run: Analysis) -> None:
    x, y = centre(tab, "#blockmap")
    found = set()
    for shift in range(-120, 130, 20):
        tab.point(x, y + shift)
        inspected, facts = tab.evaluate(INSPECTED), tab.evaluate(FACTS)
        if inspected["block"] == "-1":
            continue
        place, event = int(inspected["block"]), int(inspected["event"])
        lifetimes = run.replay.lifetimes
        assert lifetimes.begin[place] <= event < lifetimes.completed[place]
        assert int(facts["address"], 16) == lifetimes.address[place]
        found.add(place)
    assert len(found) > 3


def test_pointing_draws_only_the_cursor(tab: Tab) -> None:
    tab.evaluate(
        "{ const kind = CanvasRenderingContext2D.prototype, real = kind.putImageData; window.drawn = 0;"
        "kind.putImageData = function (...a) { window.drawn += 1; real.apply(this, a); } }"
    )
    x, y = centre(tab, "#blockmap")
    for shift in range(-200, 200, 50):
        tab.point(x + shift, y + shift / 4)
    assert tab.evaluate("window.drawn") == 0
    tab.evaluate("document.getElementById('zoom-in').click()")
    tab.settle()
    assert tab.evaluate("window.drawn") == 1


def test_arrows_go_from_event_to_event(tab: Tab, run: Analysis) -> None:
    focus(tab, "timeline")
    tab.press("Home")
    assert tab.evaluate(INSPECTED)["bytes"] == "0"
    for event in range(5):
        tab.press("ArrowRight")
        assert tab.evaluate(INSPECTED)["event"] == str(event)
        assert tab.evaluate(INSPECTED)["bytes"] == str(run.replay.allocated_bytes[event])
    tab.press("End")
    assert tab.evaluate(INSPECTED)["bytes"] == str(run.replay.allocated_bytes[-1])


def test_every_moment_is_that_of_the_replay_and_every_owner_that_of_the_analysis(tab: Tab, run: Analysis) -> None:
    """What the script unpacks and adds up, against the analysis: totals at all events, owners at some."""
    folder = Path(document.__file__).parent / "assets"
    names = document._SCRIPTS[: document._SCRIPTS.index("series.js") + 1]
    source = "\n".join((folder / name).read_text() for name in names)
    events = len(run.trace.events)
    totals, owners, highest, reserved = tab.evaluate(
        f"(async () => {{ {source}; const trace = readTrace(await unpack({payload(run).text!r}));"
        f"const series = createSeries(trace), all = [...Array({events}).keys()];"
        "const some = all.filter((event) => event % 40 === 0);"
        "const walked = series.walk([-1, 900, 900, 1800, 2500]);"
        "return [all.map((e) => series.at(e).total), some.map((e) => [...series.at(e).owners]),"
        "[[...walked.highest], [...walked.event]], all.map(series.reservedAt)]; })()"
    )
    assert totals == list(run.replay.allocated_bytes)
    assert reserved == list(run.replay.reserved_bytes)
    moments = range(0, events, 40)
    ledger = ledger_of(run.replay.lifetimes, run.attribution, Timeline(run.trace.marks, events))
    held = holdings_at(moments, run.replay.lifetimes, ledger)
    assert owners == [[held[event].of(owner) for owner in model.OWNERS] for event in moments]
    assert highest[0] == [max(totals[:900]), totals[900], max(totals[900:1800]), max(totals[1800:2500])]
    assert [totals[event] for event in highest[1]] == highest[0]


def test_keys_move_zoom_and_come_back(tab: Tab, run: Analysis) -> None:
    peak = str(run.footprint.peak.event)
    focus(tab, "timeline")
    tab.press("Home")
    tab.press("p")
    assert tab.evaluate(INSPECTED)["event"] == peak
    for _ in range(4):
        tab.press("+")
    tab.press("ArrowLeft")
    assert tab.evaluate(INSPECTED)["event"] == str(run.footprint.peak.event - 1)
    tab.press("ArrowRight", shift=True)
    assert tab.evaluate(INSPECTED)["event"] == peak  # the peak of its phase
    tab.press("ArrowDown")
    largest = tab.evaluate(INSPECTED)["block"]
    sizes = run.replay.lifetimes.block_bytes
    alive = [place for place in range(len(sizes))
             if run.replay.lifetimes.begin[place] <= int(peak) < run.replay.lifetimes.end[place]]  # fmt: skip
    assert sizes[int(largest)] == max(sizes[place] for place in alive)
    tab.evaluate("new Promise((done) => setTimeout(done, 200))")
    spoken = tab.evaluate("document.getElementById('live').textContent")
    assert spoken.startswith("Block: owner ") and f"{sizes[int(largest)]:,} bytes" in spoken
    tab.press("Escape")
    assert tab.evaluate(INSPECTED)["block"] == "-1"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_the_module_tree_opens_by_keys(tab: Tab, run: Analysis) -> None:
    rows = "[...document.querySelectorAll('#tree tr')].map((e) => [e.dataset.path, e.getAttribute('aria-expanded')])"
    layers = {f"h.{layer}" for layer in range(6)}
    tab.evaluate("document.querySelector('#tree tr').focus()")
    tab.press("ArrowDown")
    assert tab.evaluate("document.activeElement.dataset.path") == "h"
    for key, is_open in (
        ("ArrowRight", True),
        ("ArrowLeft", False),
        ("Enter", True),
        (" ", False),
        ("ArrowRight", True),
    ):
        tab.press(key)
        shown = dict(tab.evaluate(rows))
        assert shown["h"] == str(is_open).lower()
        assert layers <= set(shown) if is_open else not layers & set(shown)
    tab.press("ArrowRight")
    first = run.footprint.modules.children[0].children[0]
    assert tab.evaluate("document.activeElement.dataset.path") == first.path
    assert format_bytes(first.size_bytes) in tab.evaluate("document.activeElement.textContent")


def test_the_timeline_as_a_table_has_every_phase(tab: Tab, run: Analysis) -> None:
    tab.evaluate("document.getElementById('phase-table').open = true")
    tab.settle()
    found = tab.evaluate(
        "[...document.querySelectorAll('#phase-table tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    )
    peak = run.footprint.peak
    row = next(row for row in found if row[2] == f"{peak.event:,}")
    assert row[:4] == [f"step {peak.step}", peak.phase, f"{peak.event:,}", format_bytes(peak.allocated_bytes)]


def test_dark_and_light(tab: Tab) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    picture = "document.querySelector('#blockmap .base').toDataURL()"
    seen = {}
    for scheme in ("light", "dark"):
        tab.colours(scheme)
        for _ in range(50):  # the pictures follow when the browser has told the page
            tab.settle()
            drawn = tab.evaluate(background), tab.evaluate(picture)
            if drawn[1] not in {before[1] for before in seen.values()}:
                break
        seen[scheme] = drawn
    assert seen["light"][0] == "rgb(252, 252, 250)" and seen["dark"][0] == "rgb(20, 22, 26)"
    assert seen["light"][1] != seen["dark"][1]
    tab.click(*centre(tab, "#theme"))
    assert tab.evaluate(background) == seen["light"][0]


def test_a_thinned_page_says_so_and_has_the_exact_peak(
    browser: Browser, run: Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "payload", functools.partial(document.payload, most_lifetimes=500))
    write_page(run, tmp_path / "thinned.html")
    tab = Tab(browser)
    tab.open(tmp_path / "thinned.html")
    assert tab.evaluate("document.getElementById('thinned').textContent").startswith("993 of 1,492 allocations")
    assert tab.evaluate(INSPECTED)["bytes"] == str(run.footprint.peak.allocated_bytes)
    assert tab.evaluate(OWNERS) == {each.owner: each.size_bytes for each in run.footprint.peak.owners}
    tab.close()


def test_the_time_axis_and_one_owner_alone(tab: Tab) -> None:
    picture = "document.querySelector('#timeline .base').toDataURL()"
    seen = {tab.evaluate(picture)}
    tab.evaluate("document.querySelector('input[value=time]').click()")
    tab.settle()
    seen.add(tab.evaluate(picture))
    tab.click(*centre(tab, "button[data-owner='saved activation']"))
    assert tab.evaluate("document.querySelector(\"button[data-owner='saved activation']\").ariaPressed") == "true"
    seen.add(tab.evaluate(picture))
    assert len(seen) == 3
    focus(tab, "timeline")
    tab.press("Escape")
    assert tab.evaluate("document.querySelectorAll('[aria-pressed=true]').length") == 0


def test_touch_taps_pinches_drags_and_leaves_scrolling_to_the_page(tab: Tab) -> None:
    tab.resize(390, 844, 1, mobile=True)
    tab.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
    tab.settle()
    x, y = centre(tab, "#peak-label")  # gestures may begin on the label as well

    def touch(*moments: list[tuple[float, float]]) -> str:
        for place, fingers in enumerate(moments):
            points = [{"x": at, "y": down, "id": finger} for finger, (at, down) in enumerate(fingers)]
            tab.call("Input.dispatchTouchEvent", type="touchMove" if place else "touchStart", touchPoints=points)
            tab.settle()
        tab.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        tab.settle()
        return str(tab.evaluate("document.querySelector('#timeline .base').toDataURL()"))

    whole = touch([(x, y + 150)])
    assert tab.evaluate("document.querySelector('.held') !== null")
    closer = touch(*[[(x - apart, y), (x + apart, y)] for apart in (20, 40, 100)])
    aside = touch(*[[(x - moved, y)] for moved in (0, 20, 80)])
    assert len({whole, closer, aside}) == 3
    before = tab.evaluate("scrollY")
    assert touch(*[[(x, y - moved)] for moved in (0, 20, 60, 180)]) == aside
    assert tab.evaluate("scrollY") > before


def test_on_paper_the_pictures_are_as_wide_as_it_and_light(tab: Tab) -> None:
    tab.colours("dark")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    tab.call("Emulation.setEmulatedMedia", media="print")
    tab.settle()
    width, drawn, over = tab.evaluate(
        "(() => { const e = document.getElementById('timeline'), base = e.querySelector('.base');"
        "const { display } = getComputedStyle(e.querySelector('.over'));"
        "return [e.clientWidth, base.width / devicePixelRatio, display]; })()"
    )
    assert (width, drawn, over) == (660, 660, "none")
    assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(27, 30, 36)"
    tab.call("Emulation.setEmulatedMedia", media="")
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    tab.settle()
    assert tab.evaluate("document.getElementById('timeline').clientWidth") > 660


# Of every text on the page, its contrast to what it lies on, by the WCAG's formula: the lowest, and the text.
LOWEST_CONTRAST = """(() => {
  const context = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const linear = (share) => (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (e) => (e ? (rgba(getComputedStyle(e).backgroundColor)[3] > 250
    ? getComputedStyle(e).backgroundColor : ground(e.parentElement)) : 'white');
  const contrast = (...colours) => {
    const [a, b] = colours.map((colour) => light(rgba(colour))).sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
    found.push([contrast(getComputedStyle(element).color, ground(element)), walker.currentNode.data]);
  }
  const theme = TEXT_ON_OWNERS;
  for (const owner of document.querySelectorAll('.swatch')) {
    const colour = getComputedStyle(owner).backgroundColor;
    found.push([contrast(colour, theme(colour)), owner.className]);
  }
  return found.sort((a, b) => a[0] - b[0])[0];
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_it_lies_on(tab: Tab, scheme: str) -> None:
    tab.colours(scheme)
    tab.settle()
    source = (Path(document.__file__).parent / "assets" / "theme.js").read_text()
    text_on_owners = f"(() => {{ {source}; return textOn; }})()"
    ratio, words = tab.evaluate(LOWEST_CONTRAST.replace("TEXT_ON_OWNERS", text_on_owners))
    assert ratio >= 4.5, words


def test_an_old_browser_is_told_what_it_lacks(browser: Browser, page_file: Path) -> None:
    tab = Tab(browser)
    tab.call("Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream")
    tab.call("Page.navigate", url=page_file.as_uri())
    for _ in range(100):
        failure = tab.evaluate("document.querySelector('#failure:not([hidden])')?.textContent")
        if failure:
            break
        time.sleep(0.02)
    assert failure == (
        "This browser cannot draw the pictures and the module tree: DecompressionStream is not defined. "
        "All figures and the other tables are here."
    )
    assert tab.evaluate("document.querySelector('.desk').getClientRects().length") == 0
    tab.close()


@pytest.mark.parametrize("width", [360, 768])
def test_a_narrow_screen_scrolls_one_way_only(tab: Tab, width: int) -> None:
    tab.resize(width, 740, 2, mobile=True)
    tab.settle()
    assert tab.evaluate("document.documentElement.scrollWidth") == width


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)><script>window.owned=1</script>\"'&${x}\u202e\ud800"
    path = tmp_path / "hostile.html"
    write_page(training(1500, layers=2, names=hostile), path, title=f"Peak of {hostile}")
    tab = Tab(browser)
    tab.open(path)
    focus(tab, "timeline")
    tab.press("ArrowDown")
    assert "<img src=x onerror=alert(1)>" in tab.evaluate(FACTS)["line"]
    assert "\\u202e\\ud800" in tab.evaluate(FACTS)["line"]  # seen, and not at work
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    assert tab.evaluate("typeof window.owned") == "undefined"
    assert "<img" in tab.evaluate("document.querySelector('h1').textContent")
    assert tab.evaluate("document.scripts.length") == 1  # the data has been taken out
    assert (tab.requests, tab.problems) == ([path.as_uri()], [])
    tab.close()


def test_the_policy_stops_what_would_get_through(tab: Tab) -> None:
    stopped = tab.evaluate("fetch('https://example.org/').then(() => 'sent', () => 'stopped')")
    assert stopped == "stopped"
    tab.evaluate(
        "{ const s = document.createElement('script'); s.textContent = 'window.owned = 1'; document.body.append(s); }"
    )
    assert tab.evaluate("typeof window.owned") == "undefined"
    assert all("Content Security Policy" in problem for problem in tab.problems)
    tab.problems.clear()
