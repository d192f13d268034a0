"""Settings: how they are declared, where they are written, and which source wins.

A component declares its settings as a frozen struct whose field docstrings are the reference. Structs that several
components share are here: `hyperfleet_api`, `broker` (with `broker_values`), `log`, `server`.

`loader.load` runs these steps:

1. `yaml_file` reads a file into a `config_tree`: texts with their positions. `configmap` and `sources.from_object`
   read other kinds of documents into the same tree.
2. `sources` reads environment variables and flags as assignments.
3. `merge` lays the assignments over the tree.
4. `schema` derives from the struct how to read the tree, `field_types` parses single texts, and `validation`
   collects accepted values and problems.
5. `report` defines the result: the settings, or every problem with its position.
"""
