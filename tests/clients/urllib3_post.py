"""Posts to a URL so many times, with retries as urllib3 makes them by itself; prints status and retries of each."""

import sys

import urllib3

url, times = sys.argv[1], int(sys.argv[2])
pool = urllib3.PoolManager()
for _ in range(times):
    # POST is not retried unless that is asked for; when to retry is what the answers say.
    retries = urllib3.Retry(total=3, allowed_methods=None)
    response = pool.request("POST", url, headers={"x-account": "alice"}, retries=retries)
    print(response.status, len(response.retries.history))
