"""The HyperFleet API as its clients see it: fleets to walk, resources to read and report on."""
