"""A small shop on the loopback: pages with a link, a form, and one that is longer than the window."""

from __future__ import annotations

import html
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

# So many that the page is long, and its HTML worth storing once only.
SHELF = "".join(
    f"<li>Lamp number {number}, {17 * number} euros, shade {number % 7}</li>" for number in range(60)
)

PAGES = {
    "/": '<h1>Shop</h1><a href="/lamps">All lamps</a> <a href="/about">About us</a>',
    "/about": "<h1>About</h1><p>We sell lamps.</p>",
    "/lamps": f"""<h1>Lamps</h1><form action="/found"><label>Find <input name="q" type="text"></label>
        <button>Search</button></form><ul>{SHELF}</ul>""",
}


class _Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        asked = urlparse(self.path)
        body = PAGES.get(asked.path)
        if asked.path == "/found":
            body = (
                f"<h1>Found</h1><p>One {html.escape(parse_qs(asked.query).get('q', [''])[0])}: 51 euros</p>"
            )
        page = f"<!doctype html><html lang='en'><head><title>Shop</title></head><body>{body}</body></html>".encode()
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def shop() -> Iterator[str]:
    """The address of a shop that is open while this is entered."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Shop)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
