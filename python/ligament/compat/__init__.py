"""Drop-in modules: scripts of the originals run unchanged with `python -m ligament.compat
script.py`."""
