"""The options of curl that the pages use, for a machine without it: `python curl.py -s URL …`."""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request


def main() -> None:
    """Send one request and print the body of the answer, whatever its status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-H", action="append", default=[], dest="headers")
    parser.add_argument("-d", dest="data")
    parser.add_argument("url")
    asked = parser.parse_args()
    headers = dict(header.split(": ", 1) for header in asked.headers)
    data = asked.data.encode() if asked.data is not None else None
    request = urllib.request.Request(asked.url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            body = reply.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    sys.stdout.write(body.decode())


if __name__ == "__main__":
    main()
