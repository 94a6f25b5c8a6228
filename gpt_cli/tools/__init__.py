"""What is built around the core: reports, pages, exchange, sweeps, loggers, measurements."""
