"""The shape protocol over HTTP: what a request asks for, what it is answered with, and who waits for what."""
