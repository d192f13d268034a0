"""Settings: what they are, where they may be written, and which source wins.

A component declares its settings beside itself, as a frozen struct whose field docstrings are the reference. The
structs that several components use are here: `hyperfleet_api`, `broker`, `log`, `server`.

* Sources: `yaml_file` and `configmap` read files, `sources` reads environment variables, flags, and objects that
  are already parsed. Each yields a `config_tree`: texts that know where they were written.
* Schema: `schema` derives from a struct how a tree is read, `field_types` what a single text may mean, and
  `validation` collects what was found.
* `merge` lays one source over another; `loader.load` runs all of it; `report` is the result: the settings, or
  every problem with its place.
"""
