"""One adapter per engine kind: its command line, start-up log, probes and metric names. No dialect imports another."""
