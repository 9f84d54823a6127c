"""`seekserve swap`: replace the variant that a running launch serves, without losing a request.

This side finds the launch and the new bundle, checks, decides on the way and writes an order; the launch carries it
out.
"""
