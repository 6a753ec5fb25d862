"""Makes the README's picture of the page: `python -m tests.report.page.picture` runs examples/gpt2.py and Chromium."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from . import browser

ROOT = Path(__file__).parents[3]
PICTURE = ROOT / "docs" / "report.png"
CARD, WINDOW = "rtx-4090", "1280,1255"


def main() -> None:
    chromium = browser.find_chromium()
    if chromium is None:
        sys.exit("There is no Chromium here to take the picture with; install one.")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "gpt2.html"
        run = [sys.executable, "-m", "dryfit", "run", "--gpu", CARD, "--quiet", "--report", str(page)]
        subprocess.run([*run, "examples/gpt2.py"], cwd=ROOT, check=True)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={WINDOW}"]
        subprocess.run([chromium, *options, f"--screenshot={PICTURE}", page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
