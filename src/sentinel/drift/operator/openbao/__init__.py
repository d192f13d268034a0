"""The reference operator: it keeps the objects of each OpenBaoCluster as they are wanted."""
