"""The trainer's engine on verl: see `engine.py`."""
