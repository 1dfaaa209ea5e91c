"""An application that knows nothing of redrive: it asks a URL again and again, and prints what it got.

Its one setting is HTTP_PROXY, which Python's standard library reads by itself, as most HTTP clients do.
"""

import itertools
import os
import time
import urllib.error
import urllib.request

URL = os.environ.get("URL", "http://flaky:8081/orders")
PAUSE = float(os.environ.get("PAUSE", "0.5"))


def ask(number: int) -> str:
    """One call, in a line."""
    try:
        with urllib.request.urlopen(f"{URL}/{number}", timeout=60) as answer:
            return f"{answer.status} after {answer.headers['X-Attempt-Count'] or 'an unknown number of'} attempts"
    except urllib.error.HTTPError as error:
        told = error.headers["Proxy-Status"] or "no word of a proxy"
        return f"{error.code} after {error.headers['X-Attempt-Count'] or 1} attempts ({told})"
    except OSError as error:
        return f"no answer: {error}"


for number in itertools.count(1):
    print(f"order {number}: {ask(number)}", flush=True)
    time.sleep(PAUSE)
