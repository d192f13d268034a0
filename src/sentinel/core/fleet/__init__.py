"""Rules of the fleet API: resources, reports and aggregated conditions."""
