"""What stands around a supervisor in its tests: nothing of it is mocked that can be had."""
