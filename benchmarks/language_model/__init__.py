"""A small language model, to compare embedding tables: see `benchmarks.bench_lm`."""
