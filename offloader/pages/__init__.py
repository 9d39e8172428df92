"""What all pages have in common: a server of threads, who may see them, and how they are rendered.

`Site` (`site.py`) is the WSGI application: paths and what answers them, behind an `PageAccess`. `Renderer`
(`rendering.py`) makes HTML of templates. `WebServer` (`server.py`) serves it.
"""
