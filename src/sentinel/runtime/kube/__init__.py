"""What operators share on top of `ports.kube.KubeApi`: the reflector, leader election, and the event recorder."""
