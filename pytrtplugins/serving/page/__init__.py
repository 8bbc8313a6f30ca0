"""The demo page at ``/``: images, a camera or a video in, boxes drawn in the browser.

Its files are HTML, CSS and JavaScript modules that a browser reads as they are; nothing comes from another server.
"""

from .routes import PageFile, read_files, show_file

__all__ = ["PageFile", "read_files", "show_file"]
