"""The protocols as code that protoc generates from proto/; `make docs` writes it.

It is committed, so that installing the package needs no compiler. Only modules that speak gRPC import it.
"""
