"""Train and compare a sweep's runs, one per combination of settings. Needs torch only to count GPUs and time steps."""
