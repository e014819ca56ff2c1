"""Calls echo.v1.Echo/Unary so many times, and prints what each call comes to: the code, the message, and the details.

A third argument of "retry" sets a retry policy, as a service configuration does.
"""

import json
import sys

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

address, times, policy = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None
options = []
if policy == "retry":
    retry = {
        "maxAttempts": 4,
        "initialBackoff": "0.01s",
        "maxBackoff": "0.01s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"],
    }
    options = [("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": retry}]}))]

# The message is given as it is on the wire: text "hello", repeat 1.
MESSAGE = b"\x0a\x05hello\x10\x01"

with grpc.insecure_channel(address, options) as channel:
    unary = channel.unary_unary("/echo.v1.Echo/Unary")
    for _ in range(times):
        try:
            assert unary(MESSAGE, metadata=[("x-account", "alice")], timeout=20) == MESSAGE
            print("OK")
        except grpc.RpcError as error:
            told = [error.code().name, error.details()]
            for detail in rpc_status.from_call(error).details:
                for kind in (error_details_pb2.RetryInfo, error_details_pb2.QuotaFailure):
                    found = kind()
                    if detail.Unpack(found):
                        if kind is error_details_pb2.RetryInfo:
                            told.append(f"{found.retry_delay.ToMilliseconds()} ms")
                        else:
                            told.extend(violation.subject for violation in found.violations)
            print("; ".join(told))
