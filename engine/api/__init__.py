"""The OpenAI-compatible API and /metrics, beside the page on its port.

It translates between HTTP and the service: it must not know how a model computes or what the page
shows, and keeps no text of anybody once a reply is out.
"""
