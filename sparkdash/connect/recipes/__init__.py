"""One file per client. Each holds facts: no logic, no I/O."""
