"""The small proxy: a real process on which agents and rollouts can be tried out.

`configuration_file` reads the file, `service` runs it and swaps it on a reload, `listener` accepts connections,
`forwarding` sends requests to the targets of `upstreams`; `static_files` and `builtin_handlers` respond without
one. The decisions are in `core/proxy`.
"""
