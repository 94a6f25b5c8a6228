"""Tools around the core: benchmarks, export and import, explanations, inspection, loggers, pages, reports, sweeps."""
