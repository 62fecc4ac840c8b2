"""What `./dev` runs: embedded services, a runner of the Procfile, the demo and its target site.

It imports none of the service's apps: it starts them as processes and talks HTTP, as any caller would.
"""
