"""The program over HTTP: the server, who may use it, health and metrics, and the admin API."""
