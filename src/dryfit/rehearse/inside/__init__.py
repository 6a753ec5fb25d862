"""The child side of a rehearsal: hooks on torch that count steps and read peaks, and never change a byte of them.

Nothing here is imported by the parent. `hook/sitecustomize.py` is what every Python process of the program finds
first; it calls `bootstrap.start`, which waits for the program's own `import torch` before it touches anything.
"""
