"""What was measured and what follows from it: a bounded history, latency metrics, the roofline and
exports. Nothing here knows the model, the service or the page; it reads the core's records.
"""
