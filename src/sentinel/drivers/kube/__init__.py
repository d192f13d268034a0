"""The driver for the Kubernetes API, `ports.kube.KubeApi`.

`access.find_access` finds the API server and the credentials, in a pod or by a kubeconfig file.
`client.KubeClient` makes the calls. `kubeconfig`, `exec_plugin` and `credentials` are what access is built from;
`status` translates errors.
"""
