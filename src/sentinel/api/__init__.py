"""The fleet API: resources with generations, adapters' reports, and the conditions aggregated from them."""
