"""URLs as they may stand in the file. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

AZURE_SCHEMES = ("az", "abfs", "abfss")


def store_url(value: str) -> str:
    """A store's, as it may stand in the file. Raises ValueError."""
    url = urlsplit(value)
    if not url.scheme or "://" not in value:
        raise ValueError("not a URL; write s3://bucket/prefix or file:///folder")
    # the part before the @ is a container of Azure
    if url.query or url.fragment or url.password or ("@" in url.netloc and url.scheme not in AZURE_SCHEMES):
        raise ValueError("write only scheme, bucket and prefix; credentials come from the environment")
    if url.scheme == "s3" and not url.netloc:
        raise ValueError("s3:// needs a bucket: s3://bucket/prefix")
    if url.scheme == "file" and (url.netloc or not url.path.strip("/")):
        raise ValueError("file:// needs an absolute folder: file:///var/lib/archive")
    return value.rstrip("/")
