"""One self-contained HTML file that shows who owns the peak: no network, no other file, text of recordings inert."""

from dryfit.report.page.document import page, write_page

__all__ = ["page", "write_page"]
