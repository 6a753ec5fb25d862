"""How far dryfit is from what other people measured on real cards: `python -m benchmarks.accuracy`.

`measured/*.csv` are the measurements, `workloads/` our own programs that do the same work, `predicted/` what the
virtual card answers with each version of torch, `misses.toml` what is known of those that are far off. The tables of
docs/accuracy.md are written from these.
"""
