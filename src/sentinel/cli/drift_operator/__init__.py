"""The command for the reference operator of OpenBaoClusters."""
